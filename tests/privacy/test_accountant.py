"""The account agrees with closed forms and published values, whatever the method and relation."""

import math
import subprocess
import sys

import numpy as np
import pytest

from ebfed.privacy import events, gaussian_delta, gaussian_sigma
from ebfed.privacy.accountant import delta, epsilon, epsilons, noise_multiplier

TRAINING = events.repeated(events.poisson(0.05, events.gaussian(1.0)), 500)


@pytest.mark.parametrize(
    ("relation", "method", "expected"),
    [
        ("add_or_remove", "pld", 6.4775),
        ("add_or_remove", "rdp", 7.2641),
        ("replace_one", "pld", 10.7784),
    ],
)
def test_known_values(relation, method, expected):
    spent = epsilon(TRAINING, 1e-4, relation=relation, method=method)
    assert spent == pytest.approx(expected, abs=5e-5)


def test_fixed_size_samples():
    """Noise for (3.6, 1e-4) under Poisson accounting is 22.3 for fixed-size samples."""
    sampled = events.fixed_size(2000, 100, events.gaussian(1.502))
    spent = epsilon(events.repeated(sampled, 500), 1e-4, relation="replace_one", method="rdp")
    assert spent == pytest.approx(22.3, abs=0.05)


@pytest.mark.parametrize(("relation", "sensitivity"), [("add_or_remove", 1), ("replace_one", 2)])
def test_a_gaussian_means_the_same_to_both_methods(relation, sensitivity):
    """Noise is measured by the norm of a contribution; replacing one moves a sum twice as far."""
    event = events.gaussian(2.0)
    exact = gaussian_delta(2.0, 1.0, sensitivity)
    assert delta(event, 1.0, relation=relation) == pytest.approx(exact, rel=1e-5)
    assert epsilon(event, exact, relation=relation) == pytest.approx(1.0, rel=1e-5)
    assert exact < delta(event, 1.0, relation=relation, method="rdp") < 3 * exact
    assert 1.0 < epsilon(event, exact, relation=relation, method="rdp") < 1.6


def test_halving_reaches_every_noise():
    import dp_accounting as dpa

    parts = dpa.ComposedDpEvent([events.repeated(events.gaussian(3.0), 4), dpa.NoOpDpEvent()])
    for method in ("pld", "rdp"):
        spent = epsilon(parts, 1e-5, relation="replace_one", method=method)
        single = epsilon(events.gaussian(1.5), 1e-5, relation="replace_one", method=method)
        assert spent == pytest.approx(single, rel=1e-6)


def test_pure_reports_compose():
    """Epsilon of k pure reports is that of k coin flips with odds e^epsilon (Kairouz et al.)."""
    assert epsilon(events.pure(1.0), 1e-12, relation="replace_one") == pytest.approx(1, abs=1e-6)
    three, truth = events.repeated(events.pure(0.5), 3), 1 / (1 + math.exp(-0.5))
    counts = [math.comb(3, k) * truth**k * (1 - truth) ** (3 - k) for k in range(4)]
    exact = sum(max(0, p - math.e**0.7 * q) for p, q in zip(counts, counts[::-1], strict=True))
    assert delta(three, 0.7, relation="replace_one") == pytest.approx(exact, rel=1e-3)
    nested = events.repeated(events.repeated(events.pure(0.01), 20), 25)
    assert epsilon(nested, 1e-5, relation="replace_one") == pytest.approx(0.92, abs=0.1)
    assert epsilon(three, 1e-9, relation="replace_one", method="rdp") >= 1.5


@pytest.mark.parametrize("method", ["pld", "rdp"])
@pytest.mark.parametrize("relation", ["add_or_remove", "replace_one"])
def test_an_open_release_promises_nothing(relation, method):
    for event in (events.open_release(), events.repeated(events.open_release(), 3)):
        assert epsilon(event, 1e-5, relation=relation, method=method) == math.inf
        assert delta(event, 10.0, relation=relation, method=method) == 1


@pytest.mark.parametrize(("relation", "sensitivity"), [("add_or_remove", 1), ("replace_one", 2)])
@pytest.mark.parametrize("target", [0.01, 1.0, 10.0])
def test_noise_multiplier_is_the_analytic_one(relation, sensitivity, target):
    found = noise_multiplier(events.gaussian, target, 1e-6, relation=relation)
    # a thousandth covers the search's tolerance and the discretisation
    assert found == pytest.approx(gaussian_sigma(target, 1e-6, sensitivity), rel=1e-3)
    assert epsilon(events.gaussian(found), 1e-6, relation=relation) <= target


@pytest.mark.parametrize(("method", "expected"), [("pld", 1.400), ("rdp", 1.502)])
def test_noise_multiplier_of_training(method, expected):
    def training(z):
        return events.repeated(events.poisson(0.05, events.gaussian(z)), 500)

    z = noise_multiplier(training, 3.6, 1e-4, relation="add_or_remove", method=method)
    assert z == pytest.approx(expected, abs=1e-3)
    spent = epsilon(training(z), 1e-4, relation="add_or_remove", method=method)
    assert 3.6 * 0.999 < spent <= 3.6


@pytest.mark.parametrize(
    ("event", "relation"),
    [
        (events.poisson(0.05, events.gaussian(1.0)), "add_or_remove"),
        (events.gaussian(30.0), "replace_one"),
        (events.fixed_size(2000, 100, events.gaussian(2.0)), "replace_one"),
        (events.poisson(1e-5, events.gaussian(5.0)), "add_or_remove"),  # delta alone covers it
        (events.pure(0.1), "replace_one"),
        (events.repeated(events.concentrated(1e-3), 3), "add_or_remove"),
        (events.open_release(), "add_or_remove"),
    ],
)
def test_epsilons_of_all_rounds(event, relation):
    spent = epsilons(event, 40, 1e-4, relation=relation)
    assert spent.shape == (40,)
    assert np.all(spent[1:] >= spent[:-1])
    for times in (1, 2, 11, 40):
        alone = events.repeated(event, times)
        expected = epsilon(alone, 1e-4, relation=relation, method="rdp")
        assert spent[times - 1] == pytest.approx(expected, rel=1e-9)


def test_epsilons_bound_the_exact_account():
    spent = epsilons(events.gaussian(2.0), 9, 1e-6, relation="replace_one")
    # nine releases with noise 2 are one with noise 2/3, of sensitivity 2
    assert 1e-6 > gaussian_delta(2 / 3, spent[-1], 2.0) > 1e-8


def test_noise_multiplier_at_its_ends():
    def leaky(z):
        import dp_accounting as dpa

        return dpa.ComposedDpEvent([events.gaussian(z), events.open_release()])

    with pytest.raises(ValueError, match="no noise multiplier up to"):
        noise_multiplier(leaky, 1.0, 1e-5, relation="replace_one")
    # so rarely sampled that delta alone covers it
    rare = noise_multiplier(
        lambda z: events.poisson(1e-6, events.gaussian(z)), 9.0, 1e-4, relation="add_or_remove"
    )
    assert rare < 0.1


@pytest.mark.parametrize(
    ("event", "relation", "method", "message"),
    [
        (events.gaussian(1.0), "swap", "pld", "relation must be one of .*got 'swap'"),
        (events.gaussian(1.0), "replace_one", "gdp", "method must be one of .*got 'gdp'"),
        (
            TRAINING,
            "replace_one",
            "rdp",
            "use .*'pld' with relation='replace_one'",
        ),
        (events.pure(1.0), "add_or_remove", "pld", "cannot account for Randomized.*'replace_one'"),
        ("noise", "add_or_remove", "pld", "no other method can either"),
    ],
)
def test_what_has_no_account(event, relation, method, message):
    with pytest.raises(ValueError, match=message):
        epsilon(event, 1e-5, relation=relation, method=method)


def test_bad_arguments():
    event = events.gaussian(1.0)
    with pytest.raises(TypeError, match="relation"):
        epsilon(event, 1e-5)
    with pytest.raises(ValueError, match="delta must lie"):
        epsilon(event, 0, relation="replace_one")
    with pytest.raises(ValueError, match="epsilon must be"):
        delta(event, math.nan, relation="replace_one")
    with pytest.raises(ValueError, match="interval must be"):
        delta(event, 1.0, relation="replace_one", interval=0)
    with pytest.raises(ValueError, match="noise_multiplier must be"):
        events.gaussian(0)
    for rate in (0, 1.5, math.nan):
        with pytest.raises(ValueError, match="rate must be"):
            events.poisson(rate, event)
    with pytest.raises(ValueError, match="sample must be at most total"):
        events.fixed_size(10, 11, event)
    with pytest.raises(ValueError, match="times must be"):
        events.repeated(event, 0)
    with pytest.raises(ValueError, match="times must be"):
        epsilons(event, 0, 1e-5, relation="replace_one")
    with pytest.raises(ValueError, match="use method='pld'"):
        epsilons(events.poisson(0.1, event), 5, 1e-5, relation="replace_one")


def test_importing_is_cheap():
    heavy = "[m for m in ('scipy', 'dp_accounting', 'attr') if m in sys.modules]"
    code = f"import sys, ebfed.privacy; assert not {heavy}, {heavy}"
    subprocess.run([sys.executable, "-c", code], check=True)
