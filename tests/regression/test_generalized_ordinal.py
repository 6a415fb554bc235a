"""Ordered classes: against clmm() of R's ordinal (see `clmm.R`), differences, and binomial rows."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import ebfed as eb
from ebfed.priors import IdentificationWarning
from ebfed.regression.families import Ordinal, Responses
from ebfed.regression.numerics.quadrature_population import entries_of, square_of
from ebfed.regression.posteriors.quadrature import derivatives
from ebfed.tables.clients import Clients

REFERENCE = Path(__file__).parents[1] / "reference"
WINE = pd.read_csv(REFERENCE / "wine.csv")
CLMM = pd.read_csv(REFERENCE / "clmm.csv")

RNG = np.random.default_rng(2)
GROUPS = np.repeat(np.arange(40), 8)
N = len(GROUPS)
X = RNG.normal(size=(N, 2))
OFFSET = RNG.normal(0, 0.3, N)
Z = 0.4 + X @ [0.8, -0.5] + OFFSET + (RNG.normal(size=(40, 2)) @ np.diag([0.8, 0.4]))[GROUPS, 0]
THRESHOLDS = np.array([0.0, 1.0, 2.5])
Y = 1.0 + (RNG.random(N)[:, None] > expit(THRESHOLDS - Z[:, None])).sum(axis=1)


@pytest.mark.parametrize("terms", ["temp + contact", "1"])
def test_fits_are_those_of_clmm(terms):
    """It stops where its gradient is 1e-6: some 1e-5 standard errors from the maximum."""
    fit = eb.from_formula(f"rating ~ {terms} + (1 | judge)", WINE, family="ordinal")
    figures = CLMM[CLMM["formula"] == f"rating ~ {terms} + (1 | judge)"].set_index("term")
    ours = fit.tidy().set_index("term")
    names = {"temp[T.warm]": "tempwarm", "contact[T.yes]": "contactyes", "sd__intercept": "sd"}
    ours = ours.rename(index=names)
    rows = [name for name in figures.index if name not in ("sd", "logLik")]
    away = (ours.loc[rows, "estimate"] - figures.loc[rows, "estimate"]) / figures["std_error"][rows]
    assert np.abs(away).max() < 1e-4
    np.testing.assert_allclose(ours.loc[rows, "std.error"], figures["std_error"][rows], rtol=1e-4)
    assert ours.loc["sd", "estimate"] == pytest.approx(figures.loc["sd", "estimate"], rel=1e-4)
    assert fit.log_likelihood_ == pytest.approx(figures.loc["logLik", "estimate"], abs=1e-6)
    assert fit.mean_[0] == -ours.loc["1|2", "estimate"]
    assert fit.n_parameters_ == len(rows) + 1


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_derivatives_are_differences(n_classes):
    y = np.minimum(1.0 + RNG.integers(0, n_classes, N), n_classes)
    clients = Clients.from_rows(np.column_stack([np.ones(N), X[:, 0]]), GROUPS, y)
    rows = Responses(clients.y, RNG.uniform(0.5, 2.0, N), OFFSET)
    family, t = Ordinal(), n_classes - 2
    places, entries = np.arange(2), entries_of(np.zeros(2))

    def at(point):
        root = np.zeros((2, 2))
        root[entries] = point[2:5]
        parts = np.add.reduceat(np.column_stack(family.base(rows, point[5:])), clients.indptr[:-1])
        base = parts[:, 0].copy(), parts[:, 1 : 1 + t], parts[:, 1 + t :]
        given = {
            "frame": np.eye(2),
            "mean": point[:2],
            "root": root,
            "places": places,
            "sizes": [2],
        }
        evidence, score, curvature, _ = derivatives(
            clients, rows, family, point[5:], base, **given, entries=entries, accuracy="fine"
        )
        return evidence.sum(), score.sum(axis=0), square_of(curvature.sum(axis=0))

    point = np.array([0.3, 0.5, 0.7, 0.2, 0.5, *np.linspace(-0.5, 0.3, t)])
    _, score, curvature = at(point)
    step = 1e-4 * np.eye(len(point))
    rise = [(at(point + each)[0] - at(point - each)[0]) / 2e-4 for each in step]
    np.testing.assert_allclose(score, rise, atol=1e-4)
    turn = [(at(point + each)[1] - at(point - each)[1]) / 2e-4 for each in step]
    np.testing.assert_allclose(curvature, turn, rtol=1e-4, atol=1e-3)


def test_two_classes_are_binomial():
    settings = {"covariance": "full", "varying": ["intercept", 0]}
    two = eb.GeneralizedEB("ordinal", **settings)
    two.fit(X, np.where(Y > 2, 2, 1), groups=GROUPS, offset=OFFSET)
    binomial = eb.GeneralizedEB("binomial", **settings).fit(X, Y > 2, groups=GROUPS, offset=OFFSET)
    np.testing.assert_allclose(two.mean_, binomial.mean_, atol=1e-6)
    np.testing.assert_allclose(two.covariance_, binomial.covariance_, atol=1e-5)
    assert two.log_likelihood_ == pytest.approx(binomial.log_likelihood_, abs=1e-7)
    given = {"groups": GROUPS, "offset": OFFSET}
    chance = binomial.predict(X, **given)
    np.testing.assert_allclose(two.predict_proba(X, **given)[:, 1], chance, atol=1e-6)
    with pytest.raises(AttributeError, match="predict_proba"):
        binomial.predict_proba(X, **given)


def test_classes_are_predicted(tmp_path):
    fit = eb.GeneralizedEB("ordinal", varying=["intercept"])
    fit.fit(X, Y, groups=GROUPS, offset=OFFSET)
    given = {"groups": GROUPS, "offset": OFFSET}
    shares = fit.predict_proba(X, **given)
    assert shares.shape == (N, 4)
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-9)
    # averages over the posterior are those of draws
    np.testing.assert_allclose(shares @ np.arange(1, 5), fit.predict(X, **given), rtol=1e-9)
    # over all rows they are the shares of the classes, up to what shrinking changes
    np.testing.assert_allclose(
        shares.mean(axis=0), np.bincount(Y.astype(int), minlength=5)[1:] / N, atol=0.02
    )
    low, high = fit.predict_interval(X, **given, level=0.8)
    assert set(np.unique([low, high])) <= {1.0, 2.0, 3.0, 4.0}
    assert np.mean((low <= Y) & (high >= Y)) > 0.8
    ends = fit.predict_interval(X, **given, kind="mean")
    mean = fit.predict(X, **given)
    assert np.all((ends[0] < mean) & (mean < ends[1]))
    # a group that was not there is predicted by the population, less certainly
    other = fit.predict_proba(X, groups=np.full(N, 99), offset=OFFSET)
    assert (-(other * np.log(other)).sum()) > (-(shares * np.log(shares)).sum())
    fit.save(tmp_path / "fit.json")
    again = eb.load_fit(tmp_path / "fit.json")
    np.testing.assert_array_equal(again.predict_proba(X, **given), shares)
    pd.testing.assert_frame_equal(again.tidy(), fit.tidy())


def test_weights_and_sums():
    times = RNG.integers(0, 3, N)
    row = np.repeat(np.arange(N), times)
    fits = [eb.GeneralizedEB("ordinal", varying=["intercept"], share=s) for s in ("groups", "sums")]
    for fit in fits:
        fit.fit(X, Y, groups=GROUPS, sample_weight=times)
    rows = eb.GeneralizedEB("ordinal", varying=["intercept"]).fit(
        X[row], Y[row], groups=GROUPS[row]
    )
    for fit in fits:
        np.testing.assert_allclose(fit.mean_, rows.mean_, atol=1e-6)
        pd.testing.assert_frame_equal(fit.tidy(), rows.tidy(), rtol=1e-4, atol=1e-6)


def test_categories_in_order_are_classes():
    words = np.array(["bad", "fair", "good", "fine"])[Y.astype(int) - 1]
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(g=GROUPS)
    frame["y"] = pd.Categorical(words, ["bad", "fair", "good", "fine"], ordered=True)
    fit = eb.from_formula("y ~ a + b + (1 | g)", frame, family="ordinal")
    direct = eb.GeneralizedEB("ordinal", varying=["intercept"]).fit(X, Y, groups=GROUPS)
    np.testing.assert_allclose(fit.mean_, direct.mean_, atol=1e-8)
    np.testing.assert_allclose(
        fit.predict_proba(frame), direct.predict_proba(X, groups=GROUPS), atol=1e-8
    )


def test_mistakes():
    fit = eb.GeneralizedEB("ordinal", varying=["intercept"])
    with pytest.raises(ValueError, match="whole, from 1 to 20; row 0 has 0"):
        fit.fit(X, np.zeros(N), groups=GROUPS)
    with pytest.raises(ValueError, match="classes up to 4, and no row of class 2"):
        fit.fit(X, np.where(Y == 2, 3, Y), groups=GROUPS)
    with pytest.raises(ValueError, match="y is 1 in every row"):
        fit.fit(X, np.ones(N), groups=GROUPS)
    with pytest.raises(ValueError, match="needs fit_intercept=True"):
        eb.GeneralizedEB("ordinal", fit_intercept=False).fit(X, Y, groups=GROUPS)


def test_variances_of_nearly_certain_classes_keep_their_digits():
    found = Ordinal().spread(np.array([-25.0, 60.0]), np.log([4.0]))
    chance = np.exp(-25.0) * np.array([1, np.exp(-4.0)])  # of classes 2 and 3
    expected = chance[0] + 3 * chance[1]
    np.testing.assert_allclose(found[0], expected, rtol=1e-6)
    assert found[1] >= 0


@pytest.mark.parametrize(
    ("formula", "y", "x", "f", "g"),
    [
        (
            "y ~ x + f + (1 | g)",
            "121133233",
            [-0.45, -1.36, 0.31, 0.81, 0.66, -0.75, -1.11, 0.21, -0.44],
            "uvvuvvwuu",
            "001122223",
        ),
        (
            "y ~ x + (1 + x || g)",
            "1211211212122222",
            np.array([68, -163, 128, 177, -112, 63, -106, -19, 16, -49, -148, 77, 17, 13, 103, -52])
            / 100,
            "uvvvwuuwuuuvvvwv",
            "0000001123344445",
        ),
    ],
)
def test_spreads_without_end_are_not_called_converged(formula, y, x, f, g):
    """Effects of groups separate the classes: steps ended in errors of the quadrature."""
    frame = pd.DataFrame({"y": list(map(int, y)), "x": x, "f": list(f), "g": list(g)})
    with pytest.warns(IdentificationWarning, match="as a variance between groups grows"):
        fit = eb.from_formula(formula, frame, family="ordinal")
    assert "Converged:      yes" not in str(fit.summary())


def test_thresholds_need_an_intercept_that_rows_identify():
    """With columns x and 2 x + 1 a threshold had an estimate, and a profile without an end."""
    rng = np.random.default_rng(1)
    x, g = rng.normal(size=24), np.repeat(np.arange(6), 4)
    y = 1 + np.digitize(x + rng.logistic(size=24), [-0.5, 1.0])
    frame = pd.DataFrame({"y": y, "x": x, "dup": 2 * x + 1, "b": np.tile([0.0, 1.0], 12), "g": g})
    with pytest.warns(IdentificationWarning, match="collinear"):
        fit = eb.from_formula("y ~ x + dup + b + (1 | g)", frame, family="ordinal")
    tidy = fit.tidy().set_index("term")
    assert tidy.loc[["intercept", "1|2", "2|3"], ["estimate", "std.error"]].isna().all(axis=None)
    ends = fit.confint(method="profile").set_index("term")[["conf.low", "conf.high"]]
    assert ends.loc[["intercept", "1|2", "2|3"]].isna().all(axis=None)
    assert np.isfinite(ends.loc["b"].to_numpy(float)).all()
