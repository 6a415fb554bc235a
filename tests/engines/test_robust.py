"""What one node can do to a fit: facts that differ, figures that no rows have, and its shift."""

import numpy as np
import pytest

import ebfed as eb
from ebfed.engines.robust import (
    alone_in_units,
    check_finite,
    check_max_shift,
    differing,
    newton_step,
    settle,
    shifts_of_means,
)


def facts(**changes):
    stated = {"n": np.array([3]), "n_features": np.array([2]), "columns": np.array(["a\nb"])}
    return stated | {name: np.array(x) for name, x in changes.items()}


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"columns": ["a\nc"]}, "columns is a, c rather than a, b"),
        ({"n_features": [3]}, "n_features is 3 rather than 2"),
        ({"weight": [1.0]}, "weight is stated by few nodes"),
        ({"n": [3.0]}, "kind of n is f rather than i"),
    ],
)
def test_a_node_with_other_facts_is_named(other, said):
    found = differing({"a": facts(), "b": facts(**other), "c": facts(n=[1, 2])})
    assert found == {"b": f"facts that differ from those of most nodes: {said}"}


def test_facts_of_groups_may_differ():
    one, other = facts(classes=["no"]), facts(n=[7, 8], classes=["yes"])
    assert differing({"a": one, "b": other}) == {}


def test_without_a_majority_all_are_named():
    stated = {"a": facts(), "b": facts(columns=["a\nc"])}
    with pytest.raises(ValueError, match=r"a: columns is a, b; b: columns is a, c"):
        differing(stated)


@pytest.mark.parametrize("limit", [0.0, -1.0, np.nan, "3", True])
def test_limits_that_are_none_are_refused(limit):
    with pytest.raises(ValueError, match="max_shift must be a positive number"):
        check_max_shift(limit)


class Mean:
    """A method of one round: the mean of what nodes send, and its error."""

    begins_again = False

    def shifts(self, before, after, messages):
        return None

    def update(self, state, message):
        if message.max() == np.inf:
            raise np.linalg.LinAlgError("it is not finite")
        return {"done": True, "mean": message.mean(keepdims=True), "error": len(message) ** -0.5}

    def fitted_parameters(self, state):
        return {"mean": (state["mean"], np.array([state["error"]]))}


def settled(values, limit=None, least=1):
    messages = {name: np.array([value]) for name, value in zip("abcdef", values, strict=False)}
    before = {"round": 0}

    def at(names):
        return before, np.concatenate([messages[name] for name in names])

    return settle(Mean(), before, at, messages, limit=limit, least=least)


def test_a_shift_is_in_errors_of_the_fit_without_the_node():
    found = settled([0.0, 0.0, 0.0, 4.0])
    assert found.left == {}
    # the mean of four is 1, that of the others is 0 with an error of 1 / sqrt(3)
    np.testing.assert_allclose(found.shifts["d"], 3**0.5)
    np.testing.assert_allclose(found.shifts["a"], 3**0.5 / 3)


def test_the_node_that_moves_too_far_is_left_out():
    found = settled([0.0, 0.1, 0.2, 50.0], limit=5.0)
    np.testing.assert_allclose(found.state["mean"], 0.1)
    assert found.left.keys() == {"d"}
    assert "max_shift is 5" in found.left["d"]
    assert found.shifts["d"] > 5 > max(found.shifts[name] for name in "abc")


def test_two_nodes_that_move_too_far_are_left_out_one_after_the_other():
    found = settled([0.0, 0.1, 0.2, 0.1, 50.0, -300.0], limit=5.0)
    assert list(found.left) == ["f", "e"]


@pytest.mark.parametrize(("values", "least"), [([0.0, 50.0], 1), ([0.0, 0.0, 0.0, 50.0], 4)])
def test_without_a_majority_or_a_quorum_nothing_is_estimated(values, least):
    with pytest.raises(RuntimeError, match=r": it moves the fit by .* Nothing was estimated"):
        settled(values, limit=5.0, least=least)


def test_a_node_with_which_the_fit_fails_is_left_out():
    found = settled([0.0, 0.1, 0.2, np.inf])
    np.testing.assert_allclose(found.state["mean"], 0.1)
    assert found.left == {"d": "the fit fails with its answer: it is not finite"}


def test_no_error_of_the_arithmetic_is_anonymous():
    with pytest.raises(RuntimeError, match="answers of a, b, c fails in the arithmetic: it is not"):
        settled([0.0, np.inf, np.inf])


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_a_fit_that_is_not_finite_is_refused(value):
    found = {"done": True, "mean": np.array([value]), "error": 1.0}
    with pytest.raises(ValueError, match="the fit is not finite: mean is no finite number"):
        check_finite(Mean(), found)


def test_a_local_fit_that_is_not_finite_is_refused(monkeypatch):
    """No rows are known that lead there, as they are refused before: so a wrong one is made."""
    made = eb.priors.Normal.fit

    def spoilt(self, *given):
        made(self, *given).variance_ = np.array([np.nan])
        return self

    monkeypatch.setattr(eb.priors.Normal, "fit", spoilt)
    with pytest.raises(ValueError, match="the fit is not finite: variance is no finite number"):
        eb.GaussianEB().fit([1.0, 2.0, 4.0, 7.0], groups=list("aabb"))


def test_shifts_of_means_are_of_lengths_of_the_others():
    sums, weights = np.array([[2.0, 0.0], [0.0, 3.0], [0.0, 40.0]]), np.array([2.0, 1.0, 1.0])
    # mean (0.5, 10.75); without the last (2, 3) / 3, with an error of sqrt(2**2 + 3**2) / 3
    away = np.hypot(0.5 - 2 / 3, 10.75 - 1)
    np.testing.assert_allclose(shifts_of_means(sums, weights)[2], away / (13**0.5 / 3))
    assert shifts_of_means(1e200 * sums, weights)[2] == pytest.approx(away / (13**0.5 / 3))


def test_shifts_of_one_node_are_not_known():
    assert np.isnan(shifts_of_means(np.ones((1, 2)), np.ones(1))).all()


def test_columns_that_only_one_node_has_do_not_accuse_it():
    assert np.isnan(alone_in_units(np.array([[1.0, 0.0], [1.0, 5.0]]))).all()
    assert np.isinf(alone_in_units(np.array([[1.0, 1.0], [1.0, 1e200]]))).tolist() == [False, True]


def test_newton_steps_do_not_depend_on_units():
    slope, second = np.array([1.0, 2.0]), -np.array([[4.0, 1.0], [1.0, 9.0]])
    units = np.array([1e-90, 1e90])
    step, errors = newton_step(slope * units, second * units * units[:, None])
    np.testing.assert_allclose(step * units, np.linalg.solve(-second, slope))
    np.testing.assert_allclose(errors * units, np.sqrt(np.diag(np.linalg.inv(-second))))
