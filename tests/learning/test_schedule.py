"""Schedules of learning rates: their shapes, and that rounds follow them."""

import numpy as np
import pytest

import ebfed as eb
from ebfed.learning import RateSchedule
from ebfed.learning.feo2 import OptOutExchange

RNG = np.random.default_rng(2)
GROUPS = np.repeat(np.arange(5), 6)
X = RNG.normal(size=(30, 2))
Y = (X[:, 0] + RNG.normal(size=5)[GROUPS] > 0).astype(int)


def rates(schedule, n_rounds):
    return [schedule.peak * schedule.share(t, n_rounds) for t in range(n_rounds)]


def test_shapes():
    np.testing.assert_allclose(rates(RateSchedule(2.0), 3), [2, 2, 2])
    np.testing.assert_allclose(rates(RateSchedule(2.0, warm_up=3), 5), [0.5, 1, 1.5, 2, 2])
    stairs = RateSchedule(8.0, "step", warm_up=1, every=2, factor=0.5)
    np.testing.assert_allclose(rates(stairs, 6), [4, 8, 8, 4, 4, 2])
    wave = RateSchedule(1.0, "cosine", end=0.2)
    np.testing.assert_allclose(rates(wave, 2), [1, 0.6])
    assert wave.share(2, 2) == pytest.approx(0.2) == wave.share(9, 2)


def test_rates_are_those_of_pytorch():
    torch = pytest.importorskip("torch")
    for ours, make in (
        (
            RateSchedule(0.5, "step", every=3, factor=0.4),
            lambda opt: torch.optim.lr_scheduler.StepLR(opt, 3, 0.4),
        ),
        (
            RateSchedule(0.5, "cosine", end=0.1),
            lambda opt: torch.optim.lr_scheduler.CosineAnnealingLR(opt, 10, 0.05),
        ),
    ):
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
        schedule, theirs = make(optimizer), []
        for _ in range(10):
            theirs.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            schedule.step()
        np.testing.assert_allclose(rates(ours, 10), theirs, rtol=1e-10)


@pytest.mark.parametrize(
    "learner", [eb.learning.FedAvg, eb.learning.Ditto, eb.learning.AdaPeD, eb.learning.PFedMe]
)
def test_stairs_of_each_round_are_a_decay(learner):
    some = {"n_rounds": 5, "random_state": 0}
    stairs = RateSchedule(0.3, "step", every=1, factor=0.7)
    one = learner(learning_rate=stairs, **some).fit(X, Y, groups=GROUPS).parameters_
    other = learner(learning_rate=0.3, decay=0.7, **some).fit(X, Y, groups=GROUPS).parameters_
    np.testing.assert_allclose(one, other, rtol=1e-10)


def test_the_server_follows_its_own_schedule():
    """Half of every step of clients by the server is half the rate of clients, for one step."""
    some = {"n_rounds": 4, "random_state": 0}
    rate = RateSchedule(1.0, "step", every=1, factor=0.5)
    server = eb.learning.FedAvg(learning_rate=0.3, server_learning_rate=rate, **some)
    client = eb.learning.FedAvg(learning_rate=0.3, decay=0.5, **some)
    one, other = (est.fit(X, Y, groups=GROUPS).shared_["w"] for est in (server, client))
    np.testing.assert_allclose(one, other, rtol=1e-10)


def test_a_fit_is_written_with_its_schedule(tmp_path):
    rate = RateSchedule(0.3, "cosine", warm_up=2)
    fit = eb.learning.FedAvg(learning_rate=rate, n_rounds=5, random_state=0).fit(
        X, Y, groups=GROUPS
    )
    fit.save(tmp_path / "fit.json")
    again = eb.load_fit(tmp_path / "fit.json")
    assert again.learning_rate == rate
    np.testing.assert_array_equal(again.predict_proba(X), fit.predict_proba(X))


def test_an_interrupted_fit_goes_on_at_the_rate_of_its_round(tmp_path, monkeypatch):
    def learner(**others):
        rate = RateSchedule(0.3, "cosine", warm_up=3)
        privacy = eb.ClientPrivacy(noise_multiplier=1.0)
        return eb.learning.FeO2(
            learning_rate=rate, privacy=privacy, n_rounds=12, random_state=0, **others
        )

    inner, seen = OptOutExchange.average, []

    def average(self, state, *others):
        seen.append(state["round"])
        if len(seen) == 6:
            raise KeyboardInterrupt
        return inner(self, state, *others)

    whole = learner().fit(X, Y, groups=GROUPS)
    with monkeypatch.context() as context:
        context.setattr(OptOutExchange, "average", average)
        with pytest.raises(KeyboardInterrupt):
            learner(checkpoint=tmp_path).fit(X, Y, groups=GROUPS)
    again = learner(checkpoint=tmp_path).fit(X, Y, groups=GROUPS)
    np.testing.assert_array_equal(whole.parameters_, again.parameters_)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"peak": 0}, "peak must be a finite number above 0"),
        ({"peak": float("nan")}, "peak must be a finite number above 0"),
        ({"peak": 1.0, "shape": "line"}, "shape must be one of"),
        ({"peak": 1.0, "warm_up": -1}, "warm_up"),
        ({"peak": 1.0, "every": 0}, "every"),
        ({"peak": 1.0, "factor": 2.0}, "factor must be at most 1"),
        ({"peak": 1.0, "end": 0.0}, "end must be a finite number above 0"),
    ],
)
def test_schedules_that_cannot_be(arguments, message):
    with pytest.raises(ValueError, match=message):
        RateSchedule(**arguments)


def test_a_schedule_has_no_decay():
    with pytest.raises(ValueError, match="decay must be 1"):
        eb.learning.FedAvg(learning_rate=RateSchedule(0.1), decay=0.9).fit(X, Y, groups=GROUPS)
