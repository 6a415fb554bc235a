"""The odometer: compositions against dp-accounting called directly, and what a group has spent."""

import json
import math

import dp_accounting as dpa
import numpy as np
import pytest
from dp_accounting import pld, rdp

from ebfed.privacy import accountant, events, gaussian_sigma
from ebfed.privacy.calibration import gaussian_epsilon
from ebfed.privacy.odometer import Charge, Odometer, compose

RELATIONS = {
    "add_or_remove": dpa.NeighboringRelation.ADD_OR_REMOVE_ONE,
    "replace_one": dpa.NeighboringRelation.REPLACE_ONE,
}


def settings(seed):
    """Draw a mechanism, its repetitions, a delta and a relation."""
    rng = np.random.default_rng(seed)
    z, q, times = rng.uniform(0.7, 4), rng.uniform(0.02, 0.5), int(rng.integers(1, 60))
    relation = ["add_or_remove", "replace_one"][seed % 2]
    event = [dpa.GaussianDpEvent(z), dpa.PoissonSampledDpEvent(q, dpa.GaussianDpEvent(z))][
        (seed // 2) % 2
    ]
    return event, times, 10 ** rng.uniform(-8, -3), relation


@pytest.mark.parametrize("seed", range(30))
def test_accounts_are_those_of_dp_accounting(seed):
    event, times, delta, relation = settings(seed)
    direct = pld.PLDAccountant(RELATIONS[relation], value_discretization_interval=1e-3)
    direct.compose(event, times)
    found = accountant.epsilon(
        events.repeated(event, times), delta, relation=relation, interval=1e-3
    )
    np.testing.assert_allclose(found, direct.get_epsilon(delta), atol=1e-6)
    two = accountant.joint_epsilon(
        [(event, relation), (events.repeated(event, max(times - 1, 1)), relation)],
        delta,
        interval=1e-3,
    )
    if times > 1:
        np.testing.assert_allclose(two, direct.get_epsilon(delta), atol=1e-6)


def test_rdp_of_several_relations_is_the_sum():
    releases = [(events.gaussian(3.0), "replace_one"), (events.gaussian(2.0), "add_or_remove")]
    found = accountant.joint_epsilon(releases, 1e-5, method="rdp")
    # exchanging doubles the distance: a multiplier of 3 is one of 1.5
    direct = rdp.RdpAccountant()
    direct.compose(dpa.GaussianDpEvent(1.5)).compose(dpa.GaussianDpEvent(2.0))
    np.testing.assert_allclose(found, direct.get_epsilon(1e-5), rtol=1e-12)


def test_pld_of_several_relations_is_that_of_one_gaussian():
    releases = [(events.gaussian(3.0), "replace_one"), (events.gaussian(2.0), "add_or_remove")]
    found = accountant.joint_epsilon(releases, 1e-5, interval=1e-4)
    sigma = 1 / math.hypot(1 / 1.5, 1 / 2.0)
    np.testing.assert_allclose(found, gaussian_epsilon(sigma, 1e-5), atol=2e-3)


def test_reports_add_up_where_that_is_less():
    """Two pure reports: no distribution of losses gives less than the sum at so small a delta."""
    report = Charge(events.pure(0.5), "replace_one", 0.5, 0.0)
    assert compose([report] * 2, 1e-12) == pytest.approx(1.0, abs=1e-9)
    assert compose([report] * 100, 1e-5) < 35.0
    assert compose([report], 1e-5) == 0.5
    assert compose([], 1e-5) == 0.0


def test_one_plan_costs_what_it_states():
    sigma = gaussian_sigma(1.0, 1e-5, 2.0)
    report = Charge(events.gaussian(sigma), "replace_one", 1.0, 1e-5)
    assert compose([report], 1e-5) == 1.0
    # with a delta below that of the plan, its statement does not help
    np.testing.assert_allclose(
        compose([report], 1e-7), gaussian_epsilon(sigma / 2, 1e-7), rtol=1e-2
    )


def test_a_mechanism_without_losses_is_accounted_by_renyi_divergences():
    integer = Charge(events.concentrated(0.1), "replace_one", 2.0, 1e-6)
    report = Charge(events.pure(0.5), "replace_one", 0.5, 0.0)
    assert 2.0 < compose([integer, report], 1e-6) <= 2.5
    assert compose([integer] * 10, 1e-6) < 20.0


def test_an_open_release_has_no_guarantee():
    exact = Charge(events.open_release(), "replace_one", math.inf, 0.0)
    assert compose([exact], 1e-5) == math.inf


def test_groups_are_charged_one_by_one():
    odometer = Odometer()
    report = Charge(events.pure(1.0), "replace_one", 1.0, 0.0)
    odometer.add(report, ["a", "b"])
    odometer.add(report, ["b"])
    assert odometer.spent(1e-9) == pytest.approx({"a": 1.0, "b": 2.0}, abs=1e-6)
    assert odometer.spent(1e-9, ["b", "new"]) == pytest.approx({"b": 2.0, "new": 0.0}, abs=1e-6)


@pytest.mark.parametrize(
    "event",
    [
        events.pure(0.7),
        events.gaussian(1.3),
        events.repeated(events.poisson(0.2, events.gaussian(1.1)), 40),
        events.fixed_size(200, 10, events.gaussian(0.9)),
        events.concentrated(0.3),
        events.open_release(),
        dpa.ComposedDpEvent([events.gaussian(1.0), events.pure(1.0)]),
    ],
)
def test_events_survive_a_file(event):
    assert events.from_dict(json.loads(json.dumps(events.to_dict(event)))) == event


@pytest.mark.parametrize(
    "description", [{}, {"kind": "os"}, {"kind": "GaussianDpEvent", "x": 1}, {"kind": "DpEvents"}]
)
def test_what_is_no_event_is_refused(description):
    with pytest.raises(ValueError, match="event"):
        events.from_dict(description)
