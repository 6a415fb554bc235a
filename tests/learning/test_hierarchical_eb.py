"""Empirical Bayes over the strength of personalisation."""

import numpy as np
import pytest

import ebfed as eb
from ebfed.learning.hierarchical_eb import HierarchicalEBRounds
from ebfed.models import MLP

M, N = 40, 30
GROUPS = np.repeat(np.arange(M), N)
RNG = np.random.default_rng(3)
X = RNG.normal(size=(M * N, 3))
OWN = RNG.normal(size=(M, 3))
NOISE = 0.3 * RNG.logistic(size=M * N)
ALIKE = (X @ [1.0, -1.0, 0.5] + NOISE > 0).astype(int)
APART = (np.einsum("ij,ij->i", X, 3 * OWN[GROUPS]) + NOISE > 0).astype(int)
FAST = {"learning_rate": 1.0, "n_rounds": 30, "random_state": 0}


def fit(y, **others):
    return eb.learning.HierarchicalEB(**(FAST | others)).fit(X, y, groups=GROUPS)


def test_clients_that_are_alike_share_their_predictor():
    est = fit(ALIKE)
    assert est.shared_["strengths"][0] > 0.5
    assert est.shared_["strengths"][:2].sum() > 0.7
    gap = np.abs(est.parameters_ - est.shared_["w"]).max(axis=1)
    free = fit(ALIKE, strengths=[np.inf])
    assert np.median(gap) < 0.1 * np.median(np.abs(free.parameters_ - free.shared_["w"]).max(1))


def test_clients_that_have_nothing_in_common_learn_alone():
    est = fit(APART)
    assert est.shared_["strengths"][-2:].sum() > 0.8
    assert est.responsibilities_[:, 0].max() < 0.05
    assert est.score(X, APART, groups=GROUPS) > 0.9


def test_each_client_has_its_own_strength():
    """Half of the clients have coins for half of their responses: they keep nearer to w."""
    first = GROUPS < M // 2
    coins = np.random.default_rng(0).integers(2, size=len(X))
    est = fit(np.where(first & (np.arange(len(X)) % 2 == 0), coins, APART))
    free = est.responsibilities_[:, -2:].sum(axis=1)
    assert free[M // 2 :].mean() > free[: M // 2].mean() + 0.1


@pytest.mark.parametrize("strengths", [[0.0], [np.inf]])
def test_one_strength_is_a_method_that_exists(strengths):
    """Federated averaging, without and with fine-tuning."""
    est = fit(ALIKE, strengths=strengths, averaged=0, fine_tune=7, strength_rounds=1)
    tuned = eb.learning.FedAvg(
        **(FAST | {"n_rounds": 29}), fine_tune=0 if strengths == [0.0] else 7
    )
    tuned.fit(X, ALIKE, groups=GROUPS)
    np.testing.assert_allclose(est.parameters_, tuned.parameters_, rtol=1e-12, atol=1e-12)


def test_w_is_the_average_of_the_last_rounds():
    short = {"strength_rounds": 2, "strengths": [0.0]}
    last = [
        eb.learning.FedAvg(**(FAST | {"n_rounds": n})).fit(X, ALIKE, groups=GROUPS).shared_["w"]
        for n in (6, 7, 8)
    ]
    est = fit(ALIKE, n_rounds=10, averaged=0.375, **short)
    np.testing.assert_allclose(est.shared_["w"], np.mean(last, axis=0), rtol=1e-12)
    once = fit(ALIKE, n_rounds=10, averaged=0, **short)
    np.testing.assert_allclose(once.shared_["w"], last[-1], rtol=1e-12)


def test_groups_that_no_round_invited_have_predictors_of_their_own():
    few = fit(APART, sample_rate=0.1, n_rounds=4, learning_rate=0.5)
    assert not few._without_own.any()
    assert few.score(X, APART, groups=GROUPS) > 0.8
    shared = few.predict_proba(X, groups=GROUPS + M)  # new groups
    np.testing.assert_allclose(shared, few.predict_proba(X), rtol=1e-12)
    assert np.abs(few.predict_proba(X, groups=GROUPS) - shared).max() > 0.3


def test_a_warm_start_weighs_strengths_anew():
    """Clients that were scored for an earlier w are scored again."""
    est = eb.learning.HierarchicalEB(**FAST, warm_start=True).fit(X, APART, groups=GROUPS)
    before = est._memory["own"]["scores"].copy()
    est.set_params(n_rounds=60).fit(X, APART, groups=GROUPS)
    own = est._memory["own"]
    assert (own["scored"] == 50).all()
    assert (np.abs(own["scores"] - before)[:, 0] > 1e-6).all()


def test_what_clients_keep_is_small():
    est = fit(ALIKE, model=MLP(8), n_rounds=4)
    sizes = {name: x.shape[1] for name, x in est._memory["own"].items()}
    assert sizes == {"scores": 6, "scored": 1}


def test_the_ledger_has_all_rounds():
    privacy = eb.ClientPrivacy(epsilon=4.0)
    est = fit(ALIKE, privacy=privacy)
    row = est.privacy_.iloc[0]
    assert (row["times"], row["epsilon"]) == (30, pytest.approx(4.0, rel=1e-3))
    assert row["bits"] == 64 * (len(est.shared_["w"]) + 6) * M * 30
    plain = eb.learning.FedAvg(**FAST, privacy=privacy).fit(X, ALIKE, groups=GROUPS)
    assert plain.privacy_["epsilon"].iloc[0] == row["epsilon"]


def test_messages_of_the_last_rounds_are_never_clipped():
    """And their noise is that of weights: so many times the root of 2, over the clients."""
    spread = []
    for seed in range(30):
        privacy = eb.ClientPrivacy(noise_multiplier=1.0, clip=1e-3)
        est = fit(
            ALIKE, privacy=privacy, n_rounds=2, strength_rounds=1, random_state=seed, fine_tune=1
        )
        spread.append(est.shared_["strengths"])
        assert est.shared_["w"].size == 8
    quiet = fit(
        ALIKE,
        privacy=eb.ClientPrivacy(noise_multiplier=0.0, clip=1e-3),
        n_rounds=2,
        strength_rounds=1,
        fine_tune=1,
    )
    # standard deviation of a standard deviation of 180 numbers: 5 %; sums are made 1: 9 % less
    assert np.std(np.array(spread) - quiet.shared_["strengths"]) == pytest.approx(
        2**0.5 / M, rel=0.25
    )


def test_noise_in_w_is_not_used_in_the_last_rounds():
    privacy = eb.ClientPrivacy(noise_multiplier=1.0)
    settings = {"privacy": privacy, "averaged": 0, "fine_tune": 1}
    long, short = (fit(ALIKE, n_rounds=n, strength_rounds=n - 3, **settings) for n in (6, 4))
    np.testing.assert_array_equal(long.shared_["w"], short.shared_["w"])


def test_an_interrupted_fit_goes_on_to_the_same_result(tmp_path, monkeypatch):
    settings = {"sample_rate": 0.3, "n_rounds": 12, "batch_size": 8, "strength_rounds": 5}
    whole = fit(APART, **settings)
    inner, seen = HierarchicalEBRounds.update, []

    def update(self, state, messages):
        seen.append(state["round"])
        if len(seen) in (7, 12):
            raise KeyboardInterrupt
        return inner(self, state, messages)

    monkeypatch.setattr(HierarchicalEBRounds, "update", update)
    monkeypatch.setattr("ebfed.learning.checkpoint.SPARE", 0.0)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            fit(APART, checkpoint=tmp_path, **settings)
    again = fit(APART, checkpoint=tmp_path, **settings)
    assert seen[:8] == [0, 1, 2, 3, 4, 5, 6, 6]
    np.testing.assert_array_equal(again.parameters_, whole.parameters_)
    for name, value in whole.shared_.items():
        np.testing.assert_array_equal(again.shared_[name], value)
    assert again.history_.equals(whole.history_)


def test_save_and_load(tmp_path):
    est = fit(APART, n_rounds=4)
    est.save(tmp_path / "fit.json")
    read = eb.load_fit(tmp_path / "fit.json")
    assert read.strengths[-1] == np.inf
    np.testing.assert_array_equal(
        read.predict_proba(X, groups=GROUPS), est.predict_proba(X, groups=GROUPS)
    )
    np.testing.assert_array_equal(read.responsibilities_, est.responsibilities_)
    est.save(tmp_path / "shared.json", groups=False)
    shared = eb.load_fit(tmp_path / "shared.json")
    np.testing.assert_array_equal(
        shared.responsibilities_, np.tile(est.shared_["strengths"], (M, 1))
    )


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("strengths", (), "increasing"),
        ("strengths", (1.0, 0.1), "increasing"),
        ("strengths", (-1.0, 0.1), "increasing"),
        ("strengths", (0.0, np.nan), "increasing"),
        ("folds", 1, "at least 2"),
        ("folds", 2.5, "folds"),
        ("fine_tune", 0, "fine_tune"),
        ("strength_rounds", 0, "strength_rounds"),
        ("averaged", 1.5, "averaged"),
        ("fine_tune_rate", 0, "fine_tune_rate"),
    ],
)
def test_wrong_arguments(name, value, error):
    with pytest.raises(ValueError, match=error):
        fit(ALIKE, **{name: value})


@pytest.mark.parametrize("strengths", [[0.0], [np.inf]])
def test_what_is_evaluated_is_what_would_be_learned(strengths):
    """Federated averaging, without and with fine-tuning; w does not move in the last rounds."""
    settings = {"validation_fraction": 0.2, "evaluate_every": 2, "n_rounds": 11}
    est = fit(APART, **settings, strengths=strengths, averaged=0, fine_tune=7, strength_rounds=4)
    steps = 0 if strengths == [0.0] else 7
    plain = eb.learning.FedAvg(**FAST | settings, fine_tune=steps).fit(X, APART, groups=GROUPS)
    found, expected = (each.history_["validation"][::2].to_numpy() for each in (est, plain))
    np.testing.assert_allclose(found[:4], expected[:4], rtol=1e-6)
    held = np.full(2, found[4])  # of w after seven rounds
    np.testing.assert_array_equal(found[4:], held)
    assert np.ptp(found[:4]) > 0


def test_fits_that_end_early_would_not_weigh_strengths():
    with pytest.raises(ValueError, match="early_stopping is not for HierarchicalEB"):
        fit(ALIKE, validation_fraction=0.2, evaluate_every=1, early_stopping=1)


def test_strengths_that_are_no_sequence():
    with pytest.raises(TypeError, match="strengths must be a sequence"):
        fit(ALIKE, strengths=0.1)
