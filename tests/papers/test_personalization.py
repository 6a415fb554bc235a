"""The study of personalised learning: who is dealt what, what noise costs, what the page says."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from ebfed.privacy import gaussian_delta
from ebfed.theory.private_learning import adaped_claimed_epsilon
from images import Dealt, deal_images
from ozkara2023 import personalization


@pytest.fixture(scope="module")
def study(quick_studies):
    return quick_studies["personalization"]


def test_price():
    """The claim is Theorem 5's; the truth is that of one Gaussian release with all rounds in it."""
    of_table = personalization.price(13.16, rounds=60, m=50)
    # z = sqrt(K / tau) u / sqrt(2)
    u = of_table.multiplier * np.sqrt(2 * 10 / 50)
    claimed = adaped_claimed_epsilon([u, u], 1e-4, rounds=60, participants=50, n_clients=50)
    assert claimed == pytest.approx(13.16, rel=1e-6)
    at_once = of_table.multiplier / np.sqrt(60)
    for epsilon, sensitivity in ((of_table.epsilon, 1.0), (of_table.exchanged, 2.0)):
        # the account is on a grid of 1e-3 in each of 60 rounds, rounded up
        assert gaussian_delta(at_once, epsilon, sensitivity) <= 1e-4
        assert gaussian_delta(at_once, 0.98 * epsilon, sensitivity) > 1e-4
    assert of_table.epsilon < 13.16 < of_table.exchanged


def test_methods_are_alike_but_for_their_settings():
    """A method that needs noise spends no more than its budget, and others the same rounds."""
    learners = [
        personalization._learner(method, "MLP-16", 20, [0], **more)
        for method, more in (("AdaPeD", {}), ("QuPeD", {}), ("DP-AdaPeD", {"epsilon": 1.0}))
    ]
    for name in ("n_rounds", "local_steps", "batch_size", "decay", "weight_decay", "random_state"):
        assert len({getattr(each, name) for each in learners}) == 1


def test_table(study):
    table = study.table
    compared = table[table["part"] == "comparison"]
    assert set(compared["method"]) == {*personalization.INVITED, *personalization.ALWAYS}
    assert compared["accuracy"].between(0, 1).all()
    private = table[table["part"] == "privacy"].set_index("method")
    assert private.loc["alone, always", "epsilon"] == 0
    of_table = personalization.price(13.16, rounds=10, m=10)
    for method in ("DP-FedAvg", "DP-AdaPeD"):  # the ledger's
        assert private.loc[method, "epsilon"] == pytest.approx(of_table.epsilon, rel=1e-3)
        assert private.loc[method, "exchanged"] == of_table.exchanged


def test_going_on_is_fitting_at_once(study):
    """AdaPeD is stopped ten times to be tested, and ends where a fit without a stop ends."""
    images = deal_images("digits", 10, 3, np.random.default_rng([3, 0, 2]))
    learner = personalization._learner("AdaPeD", "MLP-16", 20, [3, 0, 2])
    learner.fit(images.X, images.y, groups=images.groups)
    runs = study.runs
    row = runs[(runs["part"] == "comparison") & (runs["method"] == "AdaPeD") & (runs["run"] == 0)]
    assert row["accuracy"].item() == personalization._accuracy(learner, images)
    assert row["psi"].item() == learner.history_["psi"].iloc[-1]


def test_accuracy_is_the_mean_over_clients():
    """A client with few images counts as much as one with many."""

    class Zero:
        def predict(self, X, groups):
            return np.zeros(len(X), int)

    groups = np.array([0, 1, 1, 1])
    nothing = np.zeros((4, 1))
    images = Dealt(nothing, groups, groups, nothing, groups, groups)
    assert personalization._accuracy(Zero(), images) == 0.5


def test_the_page_says_who_is_ahead():
    rows = pd.DataFrame(
        {"method": ["alone", "Ditto", "QuPeD"], "ahead": [-0.02, -0.01, -0.03], "ahead_se": 0.001}
    )
    family = ("alone", "Ditto", "QuPeD", "AdaPeD")
    said = personalization._say_who_is_ahead(rows, family)
    assert said == (
        "points ahead of AdaPeD (±: standard error): Ditto -1.00 ± 0.10, alone -2.00 ± 0.10, QuPeD "
        "-3.00 ± 0.10."
    )


def test_parts_may_be_left_out(study):
    """Table 2 alone, and a comparison without those who always work."""
    table = study.table
    of_private = table["part"].eq("privacy") | table["claimed"].notna()
    private = replace(study, table=table[of_private])
    assert "Working" not in private.to_text()
    compared = replace(study, table=table[~of_private])
    assert "Claimed" not in compared.to_text()
    for part, panels in ((private, 2), (compared, 2)):
        assert "nan" not in part.to_text()
        assert len(part.figure().axes) == panels


def test_private_predictors_need_no_noise(study):
    """Where nothing can be learned from others, DP-AdaPeD still learns what clients know.

    Ten clients with noise of epsilon 10.8: DP-FedAvg guesses among ten classes.
    """
    private = study.table[study.table["part"] == "privacy"].set_index("method")["accuracy"]
    assert private["DP-AdaPeD"] > private["DP-FedAvg"] + 0.5
    assert abs(private["DP-AdaPeD"] - private["alone, always"]) < 0.02
