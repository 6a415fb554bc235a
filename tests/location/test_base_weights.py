"""Weights of rows: precisions and frequencies, by brute force and by repeated rows."""

import functools
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import optimize, stats
from sklearn.base import clone

import ebfed as eb
from ebfed import Summary, channels
from ebfed.testing.nodes import fit_on_nodes

REFERENCE = Path(__file__).parents[1] / "reference"
RNG = np.random.default_rng(7)
M = 40
GROUPS = np.concatenate([np.repeat(np.arange(M), 4), RNG.integers(0, M, 90)])
WEIGHTS = RNG.gamma(2.0, 1.0, len(GROUPS))
VALUES = 5 + RNG.normal(0, 1.5, M)[GROUPS] + RNG.normal(0, 2, len(GROUPS)) / np.sqrt(WEIGHTS)
FRAME = pd.DataFrame({"school": GROUPS, "score": VALUES, "w": WEIGHTS})
TIMES = RNG.integers(0, 4, len(GROUPS))
YEARS = RNG.uniform(0.5, 2.0, M)[GROUPS]


# --- Buhlmann and Straub ------------------------------------------------------------------------


def test_credibility_of_hachemeisters_states():
    """The figures that actuar prints; see tests/reference/actuar.R."""
    rows = pd.read_csv(REFERENCE / "hachemeister.csv").drop(columns="quarter")
    fit = eb.GaussianEB(method="moments").fit(rows, groups="state", sample_weight="weight")
    assert f"{fit.prior_.mean_[0]:.6f}" == "1683.713437"
    assert f"{fit.prior_.variance_[0]:.5f}" == "89638.72623"
    assert f"{fit.noise_variance_[0]:.1f}" == "139120025.9"
    total = rows.groupby("state")["weight"].sum().to_numpy()
    factor = total / (total + fit.noise_variance_[0] / fit.prior_.variance_[0])
    assert_allclose(fit.posterior(integrate=False).weight[:, 0], factor, rtol=1e-12)
    own = fit.posterior().to_frame()["local"].to_numpy()
    premium = factor * own + (1 - factor) * fit.prior_.mean_[0]
    assert_allclose(fit.posterior(integrate=False).mean[:, 0], premium, rtol=1e-12)


# --- precisions ---------------------------------------------------------------------------------


def log_likelihood(mean, between, noise, values=VALUES, weights=WEIGHTS, groups=GROUPS):
    """Density of all rows, group by group, by their covariance matrices."""
    total = 0.0
    for label in np.unique(groups):
        some = groups == label
        covariance = between + np.diag(noise / weights[some])
        total += stats.multivariate_normal(np.full(some.sum(), mean), covariance).logpdf(
            values[some]
        )
    return total


def test_maximum_likelihood_by_brute_force():
    fit = eb.GaussianEB(method="ml").fit(VALUES, groups=GROUPS, sample_weight=WEIGHTS)
    best = optimize.minimize(
        lambda x: -log_likelihood(x[0], np.exp(x[1]), np.exp(x[2])),
        [5.0, 0.5, 1.0],
        method="BFGS",
        options={"gtol": 1e-6},
    )
    assert fit.log_likelihood_ == pytest.approx(-best.fun, abs=1e-8)
    found = [fit.prior_.mean_[0], np.log(fit.prior_.variance_[0]), np.log(fit.noise_variance_[0])]
    assert_allclose(found, best.x, rtol=1e-4)


def test_score_is_the_density_of_new_rows_given_those_of_the_fit():
    old, new = np.arange(len(GROUPS)) < 160, np.arange(len(GROUPS)) >= 160
    fit = eb.GaussianEB().fit(VALUES[old], groups=GROUPS[old], sample_weight=WEIGHTS[old])
    parameters = fit.prior_.mean_[0], fit.prior_.variance_[0], fit.noise_variance_[0]
    both = log_likelihood(*parameters)
    first = log_likelihood(*parameters, VALUES[old], WEIGHTS[old], GROUPS[old])
    found = fit.score(VALUES[new], groups=GROUPS[new], sample_weight=WEIGHTS[new])
    # the mean of the population is not known, and its plausible values are averaged over
    assert found == pytest.approx((both - first) / new.sum(), abs=0.02)


@pytest.mark.parametrize("prior", ["normal", "npmle", "laplace"])
def test_equal_weights_change_the_noise_alone(prior):
    plain = eb.GaussianEB(prior=prior).fit(VALUES, groups=GROUPS)
    equal = eb.GaussianEB(prior=prior).fit(
        VALUES, groups=GROUPS, sample_weight=np.full(len(VALUES), 2.5)
    )
    assert_allclose(equal.noise_variance_, 2.5 * plain.noise_variance_, rtol=1e-12)
    assert_allclose(equal.predict(), plain.predict(), rtol=1e-7)
    assert equal.log_likelihood_ == pytest.approx(plain.log_likelihood_, rel=1e-9)


def test_variances_are_of_rows_of_weight_one():
    plain = eb.VarianceEB().fit(VALUES, groups=GROUPS)
    equal = eb.VarianceEB().fit(VALUES, groups=GROUPS, sample_weight=np.full(len(VALUES), 4.0))
    assert_allclose(equal.predict(), 4 * plain.predict(), rtol=1e-6)
    weighted = eb.VarianceEB().fit(VALUES, groups=GROUPS, sample_weight=WEIGHTS)
    scaled = eb.VarianceEB().fit(3 * VALUES, groups=GROUPS, sample_weight=WEIGHTS / 9)
    assert_allclose(scaled.predict(), weighted.predict(), rtol=1e-6)
    blocks = eb.VarianceEB()
    for part in np.array_split(np.arange(len(GROUPS)), 3):
        blocks.partial_fit(VALUES[part], groups=GROUPS[part], sample_weight=WEIGHTS[part])
    assert_allclose(blocks.predict(), weighted.predict(), rtol=1e-9)
    assert blocks.log_likelihood_ == pytest.approx(weighted.log_likelihood_, rel=1e-10)


def test_density_of_rows_around_a_mean_of_no_interest():
    """The mean integrated out by a grid, for one group of known variance."""
    from ebfed.families import Variance

    family, x, w = Variance(), np.array([1.0, 2.5, 0.2]), np.array([0.5, 2.0, 3.0])
    summary = family.summarise(x[:, None], np.zeros(3, int), {"sample_weight": w})
    log = family.likelihood(family.figures(summary)).logpdf(np.log([[1.7]]))[0, 0]
    log += family.log_base_measure(summary)[0]
    mu = np.linspace(-30, 30, 200_001)
    rows = stats.norm.pdf(x[:, None], mu, np.sqrt(1.7 / w)[:, None])
    assert log == pytest.approx(np.log(np.trapezoid(rows.prod(axis=0), mu)), rel=1e-9)


def test_added_noise_is_of_the_weighted_mean():
    given = {"groups": GROUPS, "sample_weight": WEIGHTS}
    exact = eb.GaussianEB(4.0).fit(VALUES, **given)
    noisy = eb.GaussianEB(4.0, channel=channels.AddNoise(1e-9), random_state=0)
    assert_allclose(noisy.fit(VALUES, **given).predict(), exact.predict(), rtol=1e-6)


# --- frequencies --------------------------------------------------------------------------------

P = RNG.beta(3, 4, M)[GROUPS]
FREQUENT = {
    "rates": (eb.BernoulliEB(), {"X": (RNG.random(len(GROUPS)) < P) * 1.0}),
    "any rates": (eb.BernoulliEB(prior="npmle"), {"X": (RNG.random(len(GROUPS)) < P) * 1.0}),
    "private rates": (
        eb.BernoulliEB(channel=channels.TwoBit(epsilon=2.0), random_state=1),
        {"X": (RNG.random(len(GROUPS)) < P) * 1.0},
    ),
    "events": (eb.PoissonEB(), {"X": RNG.poisson(3 * P * YEARS), "exposure": YEARS}),
    "negative binomial": (
        eb.NegativeBinomialEB(),
        {"X": RNG.negative_binomial(2, 1 / (1 + 2 * P)), "exposure": YEARS},
    ),
    "categories": (
        eb.CategoricalEB(categories=["a", "b", "c"]),
        {"X": np.array(["a", "b", "c"])[RNG.integers(0, 3, len(P))]},
    ),
    "counts": (eb.CategoricalEB(), {"X": RNG.multinomial(3, [0.5, 0.3, 0.2], len(P))}),
    "durations": (
        eb.DurationEB(),
        {"X": RNG.exponential(1 / P), "observed": (RNG.random(len(P)) < 0.7) * 1.0},
    ),
}


@pytest.mark.parametrize("name", FREQUENT)
def test_a_frequency_is_a_number_of_rows(name):
    estimator, given = FREQUENT[name]
    rows = given | {"groups": GROUPS, "sample_weight": TIMES}
    repeated = {
        key: np.repeat(x, TIMES, axis=0) for key, x in rows.items() if key != "sample_weight"
    }
    one, other = clone(estimator).fit(**rows), clone(estimator).fit(**repeated)
    assert_array_equal(one.groups_, other.groups_)
    assert_array_equal(one.summaries_.n, other.summaries_.n)
    # a dispersion is where a likelihood is highest: known to the root of what that rounds by
    close = 1e-6 if name == "negative binomial" else 1e-12
    assert_allclose(one.predict(), other.predict(), rtol=close)
    assert one.log_likelihood_ == pytest.approx(other.log_likelihood_, rel=close)
    assert one.score(**rows) == pytest.approx(other.score(**repeated), rel=10 * close)
    assert_allclose(
        np.repeat(one.predict(**rows), TIMES, axis=0), other.predict(**repeated), rtol=close
    )
    if name == "private rates":  # a second report would cost as much again
        return
    blocks = clone(estimator)
    for part in np.array_split(np.arange(len(GROUPS)), 3):
        blocks.partial_fit(**{key: x[part] for key, x in rows.items()})
    assert_allclose(blocks.predict(), one.predict(), rtol=max(close, 1e-9))


def test_frequencies_are_whole_numbers():
    with pytest.raises(ValueError, match="sample_weight of poisson rows must be whole"):
        eb.PoissonEB().fit([1, 2], groups=[0, 1], sample_weight=[1.0, 0.5])
    with pytest.raises(ValueError, match="sample_weight of binomial rows must be whole"):
        eb.BernoulliEB().fit([1, 0], sample_weight=[1.0, 0.5])


# --- the same from wherever the rows are --------------------------------------------------------


@functools.cache
def whole():
    return eb.GaussianEB().fit(VALUES, groups=GROUPS, sample_weight=WEIGHTS)


def test_blocks():
    fit = eb.GaussianEB()
    for part in np.array_split(np.arange(len(GROUPS)), 4):
        fit.partial_fit(VALUES[part], groups=GROUPS[part], sample_weight=WEIGHTS[part])
    assert_allclose(fit.predict(), whole().predict(), rtol=1e-10)
    assert fit.log_likelihood_ == pytest.approx(whole().log_likelihood_, rel=1e-12)


@pytest.mark.parametrize("engine", [eb.engines.Local(n_blocks=3)])
def test_engines(engine):
    fit = eb.GaussianEB(engine=engine).fit(VALUES, groups=GROUPS, sample_weight=WEIGHTS)
    assert_array_equal(fit.predict(), whole().predict())


def test_nodes():
    order = np.argsort(GROUPS, kind="stable")
    rows = {"X": VALUES[order], "groups": GROUPS[order], "sample_weight": WEIGHTS[order]}
    half = rows["groups"] < M // 2
    nodes = [{name: x[some] for name, x in rows.items()} for some in (half, ~half)]
    apart, *_ = fit_on_nodes(eb.GaussianEB(), nodes)
    assert_allclose(np.concatenate([node.predict() for node in apart]), whole().predict())


def test_one_group_at_two_nodes():
    place = np.arange(len(GROUPS)) % 2 == 0
    rows = {"X": VALUES, "groups": GROUPS, "sample_weight": WEIGHTS}
    nodes = [{name: x[some] for name, x in rows.items()} for some in (place, ~place)]
    fitted, *_ = fit_on_nodes(eb.GaussianEB(), nodes, b"k" * 32)
    for node in fitted:
        at = np.searchsorted(whole().groups_, node.groups_)
        assert_allclose(node.predict(), whole().predict()[at], rtol=1e-9)


def test_frames_and_files(tmp_path):
    frame = FRAME.sample(frac=1, random_state=1)
    for table in (FRAME, frame, pl.from_pandas(FRAME)):
        fit = eb.GaussianEB().fit(table, groups="school", sample_weight="w")
        assert list(fit.feature_names_in_) == ["score"]
        assert_allclose(fit.predict(), whole().predict(), rtol=1e-12)
        # later frames with the columns of the fit need not name them again
        again = fit.posterior(table)
        assert_allclose(again.mean, fit.posterior().mean, rtol=1e-9)
        assert len(fit.augment(table)) == len(table)
    fit.save(tmp_path / "fit.json")
    loaded = eb.load_fit(tmp_path / "fit.json")
    assert_array_equal(loaded.predict(), fit.predict())
    assert_array_equal(loaded.predict(FRAME), fit.predict(FRAME))
    with pytest.raises(ValueError, match="sample_weight= must give the weight of each row"):
        loaded.predict(FRAME[["school", "score"]])
    series = pd.Series(WEIGHTS, FRAME.index).sample(frac=1, random_state=2)
    fit = eb.GaussianEB().fit(FRAME[["score", "school"]], groups="school", sample_weight=series)
    assert_allclose(fit.predict(), whole().predict(), rtol=1e-12)
    fit.set_output(transform="pandas")
    assert isinstance(fit.fit_transform(FRAME, groups="school", sample_weight="w"), pd.DataFrame)
    new = {"groups": GROUPS + M, "sample_weight": WEIGHTS}
    assert_allclose(
        whole().published().predict(VALUES, **new), whole().predict(VALUES, **new), rtol=1e-9
    )


def test_metadata_routing():
    from sklearn import config_context
    from sklearn.model_selection import GridSearchCV, GroupKFold

    with config_context(enable_metadata_routing=True):
        search = GridSearchCV(
            eb.GaussianEB(), {"method": ["ml", "reml"]}, cv=GroupKFold(3), error_score="raise"
        )
        search.fit(VALUES[:, None], groups=GROUPS, sample_weight=WEIGHTS)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert_allclose(search.best_estimator_.noise_variance_, whole().noise_variance_, rtol=0.05)


def test_a_row_of_weight_zero_adds_nothing():
    weights = np.where(GROUPS == 3, 0.0, WEIGHTS)
    weights[::5] = 0.0
    kept = weights > 0
    found = eb.GaussianEB().fit(VALUES, groups=GROUPS, sample_weight=weights)
    alone = eb.GaussianEB().fit(VALUES[kept], groups=GROUPS[kept], sample_weight=weights[kept])
    assert_allclose(found.prior_.variance_, alone.prior_.variance_, rtol=1e-9)
    assert_allclose(found.predict()[found.groups_ != 3], alone.predict(), rtol=1e-9)
    assert found.predict(groups=[3])[0] == pytest.approx(found.prior_.mean_[0], rel=1e-9)
    assert found.log_likelihood_ == pytest.approx(alone.log_likelihood_, rel=1e-10)


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("estimator", "text"),
    [
        (eb.MixtureEB(2), "MixtureEB takes no sample_weight="),
        (eb.OptOutMean(1.0, 4.0, 0.1), "OptOutMean takes no sample_weight="),
        (eb.GaussianEB(4.0, channel=channels.OneBit(1.0)), "needs channels.Exact, or channels.Add"),
        (eb.GaussianEB(share="sums"), "share must be 'groups' where rows have weights"),
    ],
    ids=repr,
)
def test_weights_are_never_ignored(estimator, text):
    with pytest.raises(ValueError, match=text):
        estimator.fit(VALUES, groups=GROUPS, sample_weight=WEIGHTS)
    with pytest.raises(ValueError, match=text):
        estimator.fit(Summary.from_rows(VALUES, GROUPS, WEIGHTS))


def test_other_arguments():
    with pytest.raises(TypeError, match="there is no argument 'weights'"):
        eb.GaussianEB().fit(VALUES, groups=GROUPS, weights=WEIGHTS)
    with pytest.raises(ValueError, match="sample_weight must be None: clients and summaries"):
        eb.GaussianEB().fit(Summary.from_rows(VALUES, GROUPS), sample_weight=WEIGHTS)
    with pytest.raises(ValueError, match="sample_weight has 2 entries"):
        eb.GaussianEB().fit(VALUES, groups=GROUPS, sample_weight=[1.0, 2.0])
    counts = eb.PoissonEB().fit([1, 2, 3], groups=[0, 0, 1]).summaries_
    with pytest.raises(ValueError, match="X must summarise rows with or without weights"):
        eb.GaussianEB().fit(counts)


# --- formulas, commands and queries -------------------------------------------------------------


def test_formulas():
    for weights in ("w", WEIGHTS, pd.Series(WEIGHTS).sample(frac=1, random_state=3)):
        fit = eb.from_formula("score | school", FRAME, weights=weights)
        assert_allclose(fit.estimator_.predict(), whole().predict(), rtol=1e-12)
        assert_allclose(fit.predict(), whole().predict()[GROUPS], rtol=1e-9)
    holes = FRAME.assign(w=np.where(np.arange(len(FRAME)) == 8, np.nan, WEIGHTS))
    with pytest.raises(ValueError, match="'w'"):
        eb.from_formula("score | school", holes, weights="w")
    fit = eb.from_formula("score | school", holes, weights="w", na_action="drop")
    kept = np.arange(len(FRAME)) != 8
    alone = eb.GaussianEB().fit(VALUES[kept], groups=GROUPS[kept], sample_weight=WEIGHTS[kept])
    assert_allclose(fit.estimator_.predict(), alone.predict(), rtol=1e-12)
    with pytest.raises(ValueError, match=r"weights must be one number per row, 250"):
        eb.from_formula("score | school", FRAME, weights=[1.0])
    with pytest.raises(ValueError, match="weights 'x' is not a column of data"):
        eb.from_formula("score | school", FRAME, weights="x")


def test_formulas_of_counts():
    table = pd.DataFrame({"g": GROUPS, "won": RNG.integers(0, 5, len(GROUPS)), "w": TIMES})
    fit = eb.from_formula("cbind(won, lost) | g", table.assign(lost=4 - table.won), weights="w")
    repeated = table.loc[table.index.repeat(TIMES)]
    other = eb.from_formula("cbind(won, lost) | g", repeated.assign(lost=4 - repeated.won))
    place = np.searchsorted(fit.estimator_.groups_, other.estimator_.groups_)
    assert_allclose(fit.estimator_.predict()[place], other.estimator_.predict(), rtol=1e-9)
    events = table.assign(y=FREQUENT["events"][1]["X"], e=YEARS)
    fit = eb.from_formula(
        "y ~ offset(log(e)) + (1 | g)", events, family="poisson", weights="w", prior="gamma"
    )
    direct = eb.PoissonEB().fit(events.y, groups=GROUPS, exposure=YEARS, sample_weight=TIMES)
    assert_allclose(fit.estimator_.predict(), direct.predict(), rtol=1e-9)


def test_queries_in_a_database():
    duckdb = pytest.importorskip("duckdb")
    pytest.importorskip("sqlglot")
    fit = eb.GaussianEB().fit(FRAME, groups="school", sample_weight="w")
    with pytest.raises(ValueError, match="weight= must name the column of weights"):
        fit.to_sql(table="FRAME")
    found = duckdb.connect().register("FRAME", FRAME).sql(fit.to_sql(table="FRAME", weight="w"))
    found = found.df().sort_values("school")
    assert_allclose(found["estimate"], fit.predict(), rtol=1e-10)


def test_pictures_and_tables():
    for fit in (whole(), eb.VarianceEB().fit(VALUES, groups=GROUPS, sample_weight=WEIGHTS)):
        assert "Residual" in str(fit.summary()) or fit.protocol().family.is_transformed
        assert len(fit.tidy()) > 1
    for plot in (eb.report.plot_caterpillar, eb.report.plot_population, eb.report.plot_shrinkage):
        axes = plot(whole())
        assert "exposure" not in axes.get_xlabel() + axes.get_ylabel()
    compared = eb.compare(
        whole(), eb.GaussianEB(prior="npmle").fit(VALUES, groups=GROUPS, sample_weight=WEIGHTS)
    )
    assert len(compared) == 2


def test_shares_with_weights_are_of_so_many_trials():
    rng = np.random.default_rng(7)
    groups, n = np.repeat(np.arange(40), 3), rng.integers(1, 9, 120)
    won = rng.binomial(n, rng.beta(4, 4, 40)[groups])
    counts = eb.Summary.from_counts(np.bincount(groups, won), np.bincount(groups, n))
    expected = eb.BernoulliEB().fit(counts)
    found = eb.BernoulliEB().fit(won / n, groups=groups, sample_weight=n)
    np.testing.assert_allclose(found.predict(), expected.predict(), rtol=1e-10)
    assert found.log_likelihood_ == pytest.approx(expected.log_likelihood_, rel=1e-10)
    again = found.predict(won / n, groups=groups, sample_weight=n)
    np.testing.assert_allclose(again, expected.predict()[groups], rtol=1e-10)
    for wrong in ({}, {"sample_weight": n + 1}):
        with pytest.raises(ValueError, match=r"only 0 and 1|whole number of successes"):
            eb.BernoulliEB().fit(won / n, groups=groups, **wrong)
    with pytest.raises(ValueError, match="X must hold only 0 and 1; row 0 has"):
        eb.BernoulliEB().fit([1.5, 0.0], sample_weight=[2, 2])
