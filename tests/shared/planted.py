"""Learners with planted errors: an audit of trainings must refute what they promise."""

from ebfed.learning import DPFedAvg
from ebfed.learning.dp_fed_avg import DPFedAvgRounds
from ebfed.learning.privacy import PrivateExchange


class PlantedRounds(DPFedAvgRounds):
    def exchange(self, n_clients):
        given = self.estimator
        return given.kind(self.schedule, n_clients, given.privacy, self.message_bounds)


class Planted(DPFedAvg):
    """`DPFedAvg` with another way to protect messages, whose account it keeps."""

    kind = PrivateExchange

    def protocol(self):
        return PlantedRounds(self)


class HalfTheNoise(Planted):
    """Adds half of the noise that the account states."""

    class kind(PrivateExchange):
        def scales(self, sent):
            scales, bits = super().scales(sent)
            return {name: scale / 2 for name, scale in scales.items()}, bits / 2


class NoClip(Planted):
    """Does not clip the changes of clients."""

    class kind(PrivateExchange):
        def send(self, changes, *others):
            return super().send(changes, *others) | {"changes": changes}
