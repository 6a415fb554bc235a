"""What privacy costs."""

import numpy as np
import pandas as pd
import pytest
import tqdm

import ebfed as eb
from ebfed.channels import Exact, Gaussian, Laplace, Piecewise, TwoBit
from ebfed.evaluation import price
from ebfed.report.view import view_of

Y, GROUPS, _ = eb.datasets.make_bernoulli_groups(1500, 6, random_state=0)


@pytest.fixture(scope="module")
def rates():
    return eb.BernoulliEB().fit(Y, groups=GROUPS)


def test_rows_and_order(rates):
    price = eb.price_of_privacy(rates, [0.1, 8], n_runs=2)
    columns = ["channel", "epsilon", "error", "std_error", "local_error", "verdict"]
    assert price.columns.tolist() == columns
    assert price["channel"].tolist() == ["TwoBit"] * 2 + ["Piecewise"] * 2 + ["Gaussian"] * 2
    assert price["epsilon"].tolist() == [0.1, 8.0] * 3
    assert (price["error"] < price["local_error"])[price["epsilon"] == 8].all()
    local = rates.summaries_.mean - rates.posterior().mean
    np.testing.assert_allclose(price["local_error"], np.sqrt(np.mean(local**2)), rtol=1e-12)


def test_error_is_that_of_fits_made_by_hand(rates):
    price = eb.price_of_privacy(rates, [2], channels={"two": TwoBit}, n_runs=2, random_state=5)
    squares = []
    for run in range(2):
        est = eb.BernoulliEB(channel=TwoBit(2.0), random_state=[5, run])
        away = est.fit(Y, groups=GROUPS).predict() - rates.predict()
        squares.append(np.mean(away**2))
    assert price["error"].item() == pytest.approx(np.sqrt(np.mean(squares)), rel=1e-12)


def test_rows_that_are_worse_than_taking_no_part_say_so(monkeypatch, rates):
    best, local = rates.posterior().mean, rates.summaries_.mean
    away = {TwoBit: 0.0, Piecewise: 0.97, Laplace: 1.02, Gaussian: 3.0}

    def refit(summary, channel, **others):
        return best + away[type(channel)] * (local - best)

    view = view_of(rates)
    monkeypatch.setattr(price, "_checked", lambda fit: (view, refit))
    table = price.price_of_privacy(rates, [1], channels=list(away), n_runs=2)
    expected = ["better than own data", *["like own data"] * 2, "worse than own data"]
    assert table["verdict"].tolist() == expected
    np.testing.assert_allclose(table["error"], table["local_error"] * list(away.values()))


def test_default_prices_fit_a_screen(rates):
    names = dict.fromkeys(("TwoBit", "Piecewise", "Gaussian"), TwoBit)
    price = eb.price_of_privacy(rates, [0.25, 1, 2, 4], channels=names, n_runs=1)
    with pd.option_context("display.width", 80):
        assert "..." not in str(price)


def test_channels_are_given_by_name_or_class(rates):
    def names_and_errors(channels):
        price = eb.price_of_privacy(rates, [2], channels=channels, n_runs=1)
        return price["channel"].tolist(), price["error"].tolist()

    (name,), (error,) = names_and_errors("TwoBit")
    assert name == "TwoBit"
    for same in (TwoBit, ["TwoBit"], [TwoBit], (TwoBit,)):
        assert names_and_errors(same) == (["TwoBit"], [error])
    for same in ({"two": "TwoBit"}, {"two": TwoBit}, {"two": lambda epsilon: TwoBit(epsilon)}):
        assert names_and_errors(same) == (["two"], [error])
    names, errors = names_and_errors([Gaussian, "TwoBit"])
    assert names == ["Gaussian", "TwoBit"]
    noise = {"noise": lambda epsilon: Gaussian(epsilon, 1e-6)}
    assert errors == names_and_errors(noise)[1] + [error]


@pytest.mark.parametrize(
    ("channels", "kind", "message"),
    [
        ("Towbit", ValueError, "channels must be among DiscreteGaussian, .*TwoBit.*; got 'Towbit'"),
        ("Exact", ValueError, "channels must be among"),
        ([Exact], ValueError, "Exact has no epsilon"),
        (["TwoBit", TwoBit], ValueError, "channels must name each once; got 'TwoBit' twice"),
        (TwoBit(1.0), TypeError, r"a class such as channels.TwoBit.*got TwoBit\(epsilon=1.0\)"),
        ([TwoBit(1.0)], TypeError, "a class such as channels.TwoBit"),
        ({"two": TwoBit(1.0)}, TypeError, "functions from epsilon to a channel; got TwoBit"),
        (7, TypeError, "channels must be a name such as 'TwoBit'.*got 7"),
        ({"two": lambda epsilon: epsilon}, TypeError, "must return a channel.*got 1.0"),
        ([], ValueError, "channels must name at least one"),
    ],
)
def test_channels_that_are_none(channels, kind, message, rates):
    with pytest.raises(kind, match=message):
        eb.price_of_privacy(rates, [1], channels=channels, n_runs=1)


def test_long_computations_show_that_they_go_on(monkeypatch, capsys, rates):
    shown = tqdm.tqdm
    monkeypatch.setattr(tqdm, "tqdm", lambda **more: shown(**more | {"delay": 0, "mininterval": 0}))
    for verbose in (1, 0):
        eb.price_of_privacy(rates, [2], channels="TwoBit", n_runs=2, verbose=verbose)
        text = capsys.readouterr().err
        assert ("TwoBit, epsilon 2" in text and "/2" in text) == bool(verbose)


def test_nothing_is_paid_where_nothing_is_hidden(rates):
    price = eb.price_of_privacy(rates, [1], channels={"as it is": lambda epsilon: Exact()})
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


def test_numbers_of_numpy_are_numbers(rates):
    settings = {"epsilons": np.array([2.0]), "channels": {"two": TwoBit}}
    price = eb.price_of_privacy(rates, n_runs=2, random_state=5, **settings)
    same = eb.price_of_privacy(rates, n_runs=np.int64(2), random_state=np.int32(5), **settings)
    np.testing.assert_array_equal(price["error"], same["error"])


def test_without_a_seed_draws_are_new(rates):
    first, second = (
        eb.price_of_privacy(rates, [2], channels={"two": TwoBit}, n_runs=1, random_state=None).iloc[
            0
        ]
        for _ in range(2)
    )
    assert first["error"] != second["error"]
    assert np.isnan(first["std_error"])


def test_bad_input(rates):
    with pytest.raises(TypeError, match="GaussianEB or BernoulliEB; got LocalOnly"):
        eb.price_of_privacy(eb.learning.LocalOnly())
    private = eb.BernoulliEB(channel=TwoBit(1.0), random_state=0).fit(Y, groups=GROUPS)
    with pytest.raises(ValueError, match="without privacy"):
        eb.price_of_privacy(private)
    with pytest.raises(ValueError, match="n_runs must be a whole number from 1; got 0"):
        eb.price_of_privacy(rates, n_runs=0)
    for epsilons in ([], 2.0):
        with pytest.raises(ValueError, match="epsilons must be a list of at least one number"):
            eb.price_of_privacy(rates, epsilons)
    with pytest.raises(ValueError, match="channels must name at least one"):
        eb.price_of_privacy(rates, channels={})
    for seed in (-1, 1.5, "today"):
        with pytest.raises(ValueError, match="random_state must be a whole number from 0"):
            eb.price_of_privacy(rates, random_state=seed)
    with_covariates = eb.BernoulliEB().fit(Y, groups=GROUPS, covariates=np.arange(1500.0) % 7)
    with pytest.raises(ValueError, match="without covariates"):
        eb.price_of_privacy(with_covariates)
