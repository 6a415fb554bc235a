"""Several Gaussian releases of one round are one event; a total is split among them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebfed.privacy import accountant, events

MULTIPLIERS = st.floats(0.01, 100)


def test_parts_on_all_clients_are_worth_the_joint_release():
    """Without sampling, parts may as well be composed."""
    import dp_accounting as dpa

    parts = dpa.ComposedDpEvent([events.gaussian(1.5), events.gaussian(5.0)])
    joint = events.gaussian(events.joint_multiplier([1.5, 5.0]))
    for relation in ("add_or_remove", "replace_one"):
        composed = accountant.epsilon(parts, 1e-5, relation=relation)
        assert accountant.epsilon(joint, 1e-5, relation=relation) == pytest.approx(
            composed, rel=1e-3
        )


def test_one_sample_for_all_parts_is_not_one_for_each():
    """A part that reveals who was drawn helps to read the other."""
    import dp_accounting as dpa

    def spent(release):
        return accountant.epsilon(
            events.repeated(release, 100), 1e-5, relation="add_or_remove", interval=1e-3
        )

    joint = events.poisson(0.05, events.gaussian(events.joint_multiplier([1.0, 1.0])))
    apart = dpa.ComposedDpEvent([events.poisson(0.05, events.gaussian(1.0))] * 2)
    assert spent(joint) > 1.1 * spent(apart)


@given(first=MULTIPLIERS, others=st.lists(st.floats(1, 100), max_size=4))
def test_splitting_undoes_joining(first, others):
    total = events.joint_multiplier([first, *others])
    # what others alone reveal is subtracted: up to 4e4 times what is left
    assert events.split_multiplier(total, others) == pytest.approx(first, rel=1e-9)
    assert total <= first * (1 + 1e-12)


def test_one_part_is_the_whole():
    assert events.joint_multiplier([1.5]) == pytest.approx(1.5)
    assert events.split_multiplier(1.5, []) == 1.5


def test_bits_need_noise_above_half_the_total():
    """Bits minus 1/2 with noise s have multiplier 2 s."""
    assert events.split_multiplier(1.4, [2 * 0.71]) > 1.4
    with pytest.raises(ValueError, match=r"multiplier above total=1\.4; got 1\.4\. Add noise"):
        events.split_multiplier(1.4, [2 * 0.7])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: events.joint_multiplier([]), "at least one noise multiplier"),
        (lambda: events.joint_multiplier([1.0, 0.0]), "multipliers must be .* got 0.0"),
        (lambda: events.split_multiplier(-1.0, [1.0]), "total must be"),
        (lambda: events.split_multiplier(1.0, [float("nan")]), "others must be"),
    ],
)
def test_bad_multipliers_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
