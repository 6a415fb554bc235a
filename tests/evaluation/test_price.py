"""What privacy costs."""

import numpy as np
import pytest

import ebfed as eb
from ebfed.channels import Exact, TwoBit

Y, GROUPS, _ = eb.datasets.make_bernoulli_groups(1500, 6, random_state=0)
RATES = eb.BernoulliEB().fit(Y, groups=GROUPS)


def test_rows_and_order():
    price = eb.price_of_privacy(RATES, [0.1, 8], n_runs=2)
    assert price.columns.tolist() == ["channel", "epsilon", "error", "std_error", "local_error"]
    assert price["channel"].tolist() == ["TwoBit"] * 2 + ["Piecewise"] * 2 + ["Gaussian"] * 2
    assert price["epsilon"].tolist() == [0.1, 8.0] * 3
    assert (price["error"] < price["local_error"])[price["epsilon"] == 8].all()
    local = RATES.summaries_.mean - RATES.posterior().mean
    np.testing.assert_allclose(price["local_error"], np.sqrt(np.mean(local**2)), rtol=1e-12)


def test_error_is_that_of_fits_made_by_hand():
    price = eb.price_of_privacy(RATES, [2], channels={"two": TwoBit}, n_runs=2, random_state=5)
    squares = []
    for run in range(2):
        est = eb.BernoulliEB(channel=TwoBit(2.0), random_state=[5, run])
        away = est.fit(Y, groups=GROUPS).predict() - RATES.predict()
        squares.append(np.mean(away**2))
    assert price["error"].item() == pytest.approx(np.sqrt(np.mean(squares)), rel=1e-12)


def test_nothing_is_paid_where_nothing_is_hidden():
    price = eb.price_of_privacy(RATES, [1], channels={"as it is": lambda epsilon: Exact()})
    assert price["error"].item() < 1e-12
    assert price["std_error"].item() < 1e-12


def test_means_keep_their_noise():
    X, groups, _ = eb.datasets.make_gaussian_groups(800, 5, random_state=0)
    est = eb.GaussianEB().fit(X, groups=groups)
    price = eb.price_of_privacy(est, [4], n_runs=2).set_index("channel")
    assert (price["error"] < price["local_error"])[["TwoBit", "Piecewise"]].all()


def test_where_nothing_varies_there_is_no_range():
    est = eb.GaussianEB().fit(np.ones(8), groups=np.arange(8) // 2)
    with pytest.raises(ValueError, match="rows that vary; 'value' is the same in all"):
        eb.price_of_privacy(est)


def test_numbers_of_numpy_are_numbers():
    settings = {"epsilons": np.array([2.0]), "channels": {"two": TwoBit}}
    price = eb.price_of_privacy(RATES, n_runs=2, random_state=5, **settings)
    same = eb.price_of_privacy(RATES, n_runs=np.int64(2), random_state=np.int32(5), **settings)
    np.testing.assert_array_equal(price["error"], same["error"])


def test_without_a_seed_draws_are_new():
    first, second = (
        eb.price_of_privacy(RATES, [2], channels={"two": TwoBit}, n_runs=1, random_state=None).iloc[
            0
        ]
        for _ in range(2)
    )
    assert first["error"] != second["error"]
    assert np.isnan(first["std_error"])


def test_bad_input():
    with pytest.raises(TypeError, match="GaussianEB or BernoulliEB; got LocalOnly"):
        eb.price_of_privacy(eb.LocalOnly())
    private = eb.BernoulliEB(channel=TwoBit(1.0), random_state=0).fit(Y, groups=GROUPS)
    with pytest.raises(ValueError, match="without privacy"):
        eb.price_of_privacy(private)
    with pytest.raises(ValueError, match="n_runs must be a whole number from 1; got 0"):
        eb.price_of_privacy(RATES, n_runs=0)
    for epsilons in ([], 2.0):
        with pytest.raises(ValueError, match="epsilons must be a list of at least one number"):
            eb.price_of_privacy(RATES, epsilons)
    with pytest.raises(ValueError, match="channels must name at least one"):
        eb.price_of_privacy(RATES, channels={})
    for seed in (-1, 1.5, "today"):
        with pytest.raises(ValueError, match="random_state must be a whole number from 0, or None"):
            eb.price_of_privacy(RATES, random_state=seed)
    with_covariates = eb.BernoulliEB().fit(Y, groups=GROUPS, covariates=np.arange(1500.0) % 7)
    with pytest.raises(ValueError, match="without covariates"):
        eb.price_of_privacy(with_covariates)
