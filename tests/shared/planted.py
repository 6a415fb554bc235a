"""Learners with planted errors: an audit of trainings must refute what they promise."""

from ebfed.learning import DPFedAvg
from ebfed.learning.privacy import PrivateExchange


class Planted(DPFedAvg):
    """`DPFedAvg` with another way to protect messages, whose account it keeps."""

    kind = PrivateExchange

    def exchange(self, n_clients):
        return self.kind(self.schedule, n_clients, self.privacy, self.message_bounds)


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
