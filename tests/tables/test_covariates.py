"""Covariates of groups: reading them, fits against lme4 and a full Bayes, and every place."""

import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone

import ebfed as eb
from ebfed import channels as ch
from ebfed import wire
from ebfed.engines import Cohort, Local, converse
from ebfed.priors import Normal
from ebfed.streams import Stream, make_key
from ebfed.tables.covariates import read_covariates

REFERENCE = Path(__file__).parents[1] / "reference"
NAMES = ["w1", "w2"]
# Measured: 5e-12 in the coefficients, 2e-12 in the variances, 2e-15 in the log-likelihood.
STORED = 1e-8


# --- lme4 ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["reml", "ml"])
@pytest.mark.parametrize("dataset", ["grunfeld", "unbalanced"])
def test_lme4(dataset, method):
    rows = pd.read_csv(REFERENCE / f"population_{dataset}.csv")
    est = eb.GaussianEB(method=method).fit(rows, groups="group", covariates=NAMES)
    table = pd.read_csv(REFERENCE / "lme4_population.csv", index_col=["dataset", "method"])
    expected = table.loc[dataset, method.upper()]
    prior = est.prior_
    np.testing.assert_allclose(prior.coefficients_[:, 0], expected[["b0", "b1", "b2"]], rtol=STORED)
    np.testing.assert_allclose(
        prior.coefficient_errors_[:, 0], expected[["se0", "se1", "se2"]], rtol=STORED
    )
    assert prior.variance_.item() == pytest.approx(expected["group_variance"], rel=STORED)
    assert est.noise_variance_.item() == pytest.approx(expected["residual_variance"], rel=STORED)
    assert est.log_likelihood_ == pytest.approx(expected["loglik"], rel=STORED)
    assert est.likelihood_kind_ == method.upper()

    table = pd.read_csv(REFERENCE / "lme4_population_ranef.csv", dtype={"group": str})
    table = table[(table["dataset"] == dataset) & (table["method"] == method.upper())]
    effects = table.set_index("group").loc[est.groups_.astype(str)]
    posterior = est.posterior(integrate=False)  # as lme4 conditions on the population
    np.testing.assert_allclose(posterior.mean[:, 0], effects["blup"], rtol=STORED)
    np.testing.assert_allclose(posterior.sd[:, 0], effects["sd"], rtol=STORED)
    # ours add the uncertainty of coefficients and variance, which is about that of second order
    ours = est.posterior()
    np.testing.assert_array_equal(ours.mean, posterior.mean)
    there = prior.at(est._learned.memory["covariates"])
    added = ((1 - posterior.weight) ** 2 * there.mean_variance_)[:, 0]
    assert (ours.sd[:, 0] > np.sqrt(effects["sd"].to_numpy() ** 2 + 0.9 * added)).all()


# --- through noise -------------------------------------------------------------------------------


def test_noisy_messages_give_the_bayes_estimate():
    """Of all messages and a client's own exact mean; flat in the coefficients."""
    rng = np.random.default_rng(1)
    m, t, noise = 12, 0.7, 1.3
    n, w = rng.integers(1, 6, m), rng.standard_normal(m)
    own = rng.normal(w + np.sqrt(t) * rng.standard_normal(m), np.sqrt(noise / n))
    summary = eb.Summary(np.arange(m), n, own[:, None], np.zeros((m, 1)))
    channel = {"noisy": ch.AddNoise(0.8), "open": ch.Exact()}
    consent = dict(enumerate(np.where(np.arange(m) % 3, "noisy", "open").tolist()))
    est = eb.GaussianEB(noise, prior=Normal(variance=t), channel=channel, random_state=0)
    est.fit(summary, consent=consent, covariates=w)
    posterior = est.posterior()
    added = np.where(np.arange(m) % 3, 0.8**2, 0.0)
    report = est._learned.memory["report"][:, 0]
    flat = 1e7
    A = np.column_stack([np.ones(m), w])
    between = t * np.eye(m) + flat * A @ A.T
    for i in range(m):
        seen = report.copy()
        seen[i] = own[i]
        errors = noise / n + np.where(np.arange(m) == i, 0, added)
        gain = np.linalg.solve(between + np.diag(errors), between[i])
        assert posterior.mean[i, 0] == pytest.approx(gain @ seen, abs=1e-5)


def test_open_noise_from_those_who_show_it():
    rows = pd.read_csv(REFERENCE / "population_unbalanced.csv")
    choice = np.where(rows["group"] % 2, "open", "noisy")
    channel = {"noisy": ch.AddNoise(0.3), "open": ch.Exact()}
    est = eb.GaussianEB(channel=channel, random_state=0)
    est.fit(rows, groups="group", consent=pd.Series(choice, name="choice"), covariates=NAMES)
    whole = eb.GaussianEB().fit(rows, groups="group", covariates=NAMES)
    assert np.all(np.abs(est.coef_ - whole.coef_) < whole.prior_.coefficient_errors_[1:, 0])
    assert np.isfinite(est.log_likelihood_)


# --- reading -------------------------------------------------------------------------------------

RNG = np.random.default_rng(5)
COUNTIES = np.array([f"c{i:02d}" for i in range(40)], object)
URANIUM, CLAY = RNG.normal(0, 0.5, 40).round(3), RNG.random(40) < 0.4
OWNER = RNG.permutation(np.repeat(np.arange(40), RNG.integers(1, 12, 40)))
LEVEL = 1.4 + 0.7 * URANIUM - 0.5 * CLAY + RNG.normal(0, 0.3, 40)
RADON = RNG.normal(LEVEL[OWNER], 0.7)
ROWS = pd.DataFrame(
    {
        "county": COUNTIES[OWNER],
        "radon": RADON,
        "uranium": URANIUM[OWNER],
        "clay": CLAY[OWNER],
    }
)
TABLE = pd.DataFrame({"county": COUNTIES, "uranium": URANIUM, "clay": CLAY})
W = np.column_stack([URANIUM, CLAY]).astype(float)
CLASSES = {"means": eb.GaussianEB(), "rates": eb.BernoulliEB(binarize=1.4)}


def fitted(kind="means"):
    return clone(CLASSES[kind]).fit(ROWS, groups="county", covariates=["uranium", "clay"])


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame, pa.table])
@pytest.mark.parametrize("kind", CLASSES)
def test_frames_in_frames_out(kind, library):
    expected = fitted(kind)
    rows = ROWS if library is pd.DataFrame else library(ROWS.to_dict("list"))
    est = clone(CLASSES[kind]).fit(rows, groups="county", covariates=["uranium", "clay"])
    np.testing.assert_array_equal(est.predict(), expected.predict())
    assert isinstance(est.posterior().to_frame(), type(rows))
    assert list(est.feature_names_in_) == ["radon"]
    np.testing.assert_array_equal(est.predict(rows, groups="county"), est.predict()[OWNER])
    # one row for each group, in any order, with others among them
    more = pd.concat([TABLE, pd.DataFrame({"county": ["zz"], "uranium": [0.0], "clay": [True]})])
    more = more.sample(frac=1, random_state=0).reset_index(drop=True)
    table = more if library is pd.DataFrame else library(more.to_dict("list"))
    plain = ROWS[["county", "radon"]]
    plain = plain if library is pd.DataFrame else library(plain.to_dict("list"))
    est = clone(CLASSES[kind]).fit(plain, groups="county", covariates=table)
    np.testing.assert_array_equal(est.predict(), expected.predict())
    assert est.covariate_names_ == ["uranium", "clay"]


@pytest.mark.parametrize("kind", CLASSES)
def test_arrays_and_summaries(kind):
    expected, cls = fitted(kind), CLASSES[kind]
    labels = COUNTIES[OWNER]
    from_array = clone(cls).fit(RADON, groups=labels, covariates=W)
    np.testing.assert_array_equal(from_array.predict(), expected.predict())
    assert from_array.covariate_names_ == ["w0", "w1"]
    values = RADON if kind == "means" else (RADON > 1.4).astype(float)
    block = eb.tables.Clients.from_rows(values, labels)
    order = RNG.permutation(40)
    summary = block.summarise().take(order)  # not sorted by label: covariates are
    table = TABLE.rename(columns={"county": "group"})
    for X in (block, summary):
        for population in (W, W.tolist(), table):
            est = clone(cls).fit(X, covariates=population)
            np.testing.assert_array_equal(est.predict(), expected.predict())


def test_one_covariate_and_rows_of_their_own():
    expected = eb.GaussianEB().fit(RADON, groups=OWNER, covariates=W[:, :1])
    for population in (URANIUM, pd.Series(URANIUM), URANIUM.tolist()):
        est = eb.GaussianEB().fit(RADON, groups=OWNER, covariates=population)
        np.testing.assert_array_equal(est.coef_, expected.coef_)
    named = eb.GaussianEB().fit(
        ROWS[["county", "radon", "uranium"]], groups="county", covariates="uranium"
    )
    np.testing.assert_array_equal(named.predict(), expected.predict())
    assert expected.coef_.shape == (1,)
    assert isinstance(expected.intercept_, float)
    rows = pd.DataFrame({"x": LEVEL, "w": URANIUM})
    alone = eb.GaussianEB(0.01).fit(rows, covariates=["w"])
    assert alone.predict(rows).shape == (40,)
    assert np.isfinite(alone.score(rows))
    with pytest.raises(ValueError, match="covariates= must give the covariates w of 40 groups"):
        alone.predict(rows[["x"]])


def test_several_columns():
    X = np.column_stack([RADON, 3 - 2 * RADON])
    est = eb.GaussianEB().fit(X, groups=OWNER, covariates=W)
    assert est.coef_.shape == (2, 2)
    assert est.intercept_.shape == (2,)
    np.testing.assert_allclose(est.coef_[1], -2 * est.coef_[0], rtol=1e-6)
    assert est.n_parameters_ == 10
    frame = est.tidy()
    assert frame["term"].tolist() == [
        "intercept", "w0", "w1", "sd__intercept", "sd__Observation",
    ] * 2  # fmt: skip


def test_lazy_tables():
    expected = fitted()
    rows = pl.LazyFrame(ROWS[["county", "radon"]].to_dict("list"))
    est = eb.GaussianEB().fit(rows, groups="county", covariates=TABLE)
    np.testing.assert_allclose(est.predict(), expected.predict(), rtol=1e-12)
    with pytest.raises(ValueError, match="not in memory; leave its columns out"):
        eb.GaussianEB().fit(rows, groups="county", covariates=["uranium"])


@pytest.mark.parametrize(
    ("covariates", "error", "refusal"),
    [
        (["iron"], ValueError, "names 'iron', which is not among the columns"),
        (["varied"], ValueError, r"'varied' must be constant within groups; it varies in 'c\d\d'"),
        (["name"], TypeError, "column 'name' of covariates is String, not numeric"),
        (["hole"], ValueError, "missing, infinite or huge values, the first in column 'hole' for "),
        (["one"], ValueError, "constant columns: 'one'; an intercept is always included"),
        (["uranium", "twice"], ValueError, "collinear columns: 'uranium', 'twice'"),
        (TABLE[["uranium"]], ValueError, "covariates must have the column 'county' of labels"),
        (TABLE[["county"]], ValueError, "covariates have no column but the labels"),
        (TABLE[3:], ValueError, "covariates are missing for 3 groups, the first 'c00'"),
        (pd.concat([TABLE, TABLE[5:6]]), ValueError, "one row for each group; 'c05' has two"),
        (TABLE.assign(clay="yes"), TypeError, "column 'clay' of covariates is String"),
        (TABLE.assign(clay=np.inf), ValueError, "infinite or huge values, the first in column"),
        (W[1:], ValueError, r"a row for each of the 40 groups, in the order .* shape \(39, 2\)"),
        (W[:, :0], ValueError, r"it has shape \(40, 0\)"),
        (np.ones((40, 39)), ValueError, "covariates have 39 columns for 40 groups with data"),
        (np.array(["a"] * 40), TypeError, "covariates must be names of columns, a data frame, or"),
        (3.0, ValueError, "covariates must have a row for each"),
    ],
    ids=lambda x: None,
)
@pytest.mark.parametrize("kind", CLASSES)
def test_bad_input(kind, covariates, error, refusal):
    rows = ROWS.assign(
        name="x",
        varied=RADON,
        hole=ROWS["uranium"].where(ROWS["county"] != "c07"),
        one=1,
        twice=2 * URANIUM[OWNER],
    )
    extra = ["uranium", "clay", "name", "hole", "one", "twice", "varied"]
    named = covariates if isinstance(covariates, list) else []
    rows = rows.drop(columns=[name for name in extra if name not in named])
    with pytest.raises(error, match=refusal):
        clone(CLASSES[kind]).fit(rows, groups="county", covariates=covariates)


def test_the_first_group_that_varies_is_named():
    labels, values = np.array(["b", "a", "b", "c", "c"]), np.array([[1.0], [2], [3], [4], [5]])
    frame = pd.DataFrame({"x": values[:, 0]})
    with pytest.raises(ValueError, match="'x' must be constant within groups; it varies in 'b'"):
        read_covariates(["x"], frame, labels, np.array(["a", "b", "c"]))


def test_names_need_a_frame():
    with pytest.raises(ValueError, match="names columns, but X is not a data frame"):
        eb.GaussianEB().fit(RADON, groups=OWNER, covariates=["uranium"])


@pytest.mark.parametrize(
    ("estimator", "refusal"),
    [
        (eb.GaussianEB(prior="npmle"), "covariates= is for priors.Normal"),
        (eb.GaussianEB(prior=Normal(mean=0.0)), "mean must be None"),
        (eb.GaussianEB(1.0, channel=ch.Clip((-1, 1))), "channels.Exact, and for means .*AddNoise"),
        (eb.GaussianEB(1.0, channel=ch.Laplace(1, (-1, 1))), "channels.Exact, and for means"),
        (eb.BernoulliEB(binarize=1, channel=ch.TwoBit(1)), "channels.Exact, and for means"),
        (eb.BernoulliEB(binarize=1, method="paper"), "method must be 'ml'"),
        (eb.OptOutMean(1, 1, 1), "OptOutMean is about one global mean"),
    ],
    ids=repr,
)
def test_what_has_no_covariates_says_so(estimator, refusal):
    with pytest.raises((TypeError, ValueError), match=refusal):
        estimator.fit(ROWS, groups="county", covariates=["uranium", "clay"])


# --- estimates -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CLASSES)
def test_groups_old_and_new(kind):
    est = fitted(kind)
    own = est.posterior()
    np.testing.assert_array_equal(est.posterior(ROWS, groups="county").mean, own.mean)
    plain = ROWS[["county", "radon"]]  # groups of the fit remember their covariates
    np.testing.assert_array_equal(est.posterior(plain, groups="county").mean, own.mean)
    np.testing.assert_array_equal(est.posterior(groups=["c03", "c01"]).mean, own.mean[[1, 3]])
    with pytest.raises(ValueError, match="covariates uranium, clay of 1 groups that were not in"):
        est.posterior(groups=["zz", "c01"])
    with pytest.raises(ValueError, match="of 1 groups"):
        est.score(plain.replace({"c00": "zz"}), groups="county")
    new = pd.DataFrame({"county": ["zz"], "uranium": [0.5], "clay": [False]})
    both = est.posterior(groups=["zz", "c01"], covariates=pd.concat([TABLE, new]))
    assert both.mean[0] == own.mean[1]
    linear = est.intercept_ + 0.5 * est.coef_[0]
    expected = linear if kind == "means" else 1 / (1 + np.exp(-linear))
    assert both.mean[1].item() == pytest.approx(expected, rel=1e-9)
    # as good as any that was fitted, but for its message's share in the coefficients
    unseen = ROWS[ROWS["county"] == "c05"].replace({"c05": "zz"})
    there = est.posterior(unseen, groups="county")
    gap = abs(there.mean[0] - own.mean[5]).item()
    assert gap < 0.1 * own.sd[5].item()
    assert np.isfinite(est.score(unseen, groups="county"))
    given = est.predict(unseen["radon"], groups=unseen["county"], covariates=W[5:6])
    np.testing.assert_allclose(given, there.mean[0, 0])


def test_what_later_calls_refuse():
    est = fitted()
    with pytest.raises(ValueError, match="covariates lack the column 'clay', which the fit had"):
        est.posterior(groups=["zz"], covariates=pd.DataFrame({"county": ["zz"], "uranium": [0.1]}))
    with pytest.raises(ValueError, match="covariates have 1 columns; the fit had 2: 'uranium', "):
        est.posterior(groups=["zz"], covariates=[0.1])
    plain = eb.GaussianEB().fit(RADON, groups=OWNER)
    for call in (plain.posterior, plain.predict):
        with pytest.raises(ValueError, match="the fit had no covariates"):
            call(groups=[99], covariates=[0.1])


@pytest.mark.parametrize("kind", CLASSES)
def test_every_call_takes_them(kind):
    est, plain = fitted(kind), ROWS["radon"]
    groups = {"groups": ROWS["county"]}
    new = {"groups": ROWS["county"] + "x", "covariates": W}
    assert est.predict(plain, **new).shape == est.transform(plain, **new)[:, 0].shape
    assert len(est.augment(plain, **new)) == len(ROWS)
    assert np.isfinite(est.score(plain, **new))
    fit = {**groups, "covariates": W}
    again = clone(est)
    np.testing.assert_array_equal(again.fit_predict(plain, **fit), est.predict()[OWNER])
    np.testing.assert_array_equal(again.fit_transform(plain, **fit)[:, 0], est.predict()[OWNER])
    assert len(est.augment(ROWS, groups="county")) == len(ROWS)


@pytest.mark.parametrize("kind", CLASSES)
def test_partial_fit(kind):
    whole, pieces = fitted(kind), clone(CLASSES[kind])
    for part in (ROWS[:150], ROWS[150:200], ROWS[200:]):
        pieces.partial_fit(part, groups="county", covariates=["uranium", "clay"])
    np.testing.assert_allclose(pieces.predict(), whole.predict(), rtol=1e-6)
    with pytest.raises(ValueError, match="covariates= must give the covariates"):
        pieces.partial_fit(pd.DataFrame({"county": ["zz"], "radon": [1.0]}), groups="county")


def test_score_is_the_gain_in_log_likelihood():
    est = eb.GaussianEB(0.5, prior=Normal(variance=0.1)).fit(RADON, groups=OWNER, covariates=W)
    later = RNG.normal(1, 1, 40)
    gain = 0.0
    for i in range(40):
        old = RADON[i == OWNER]
        mean = est.intercept_ + W[i] @ est.coef_
        precision = 1 / 0.1 + len(old) / 0.5
        centre = (mean / 0.1 + old.sum() / 0.5) / precision
        v = 0.5 + 1 / precision
        gain += -0.5 * np.log(2 * np.pi * v) - 0.5 * (later[i] - centre) ** 2 / v
    assert est.score(later, groups=np.arange(40)) == pytest.approx(gain / 40, rel=1e-9)


def test_estimates_with_standard_errors():
    rng = np.random.default_rng(9)
    errors = rng.uniform(0.2, 1, 40)
    values = LEVEL + errors * rng.standard_normal(40)
    frame = TABLE[["uranium", "clay"]]
    expected = eb.posterior_from(values, errors, mean=W)
    for table in (frame, pl.DataFrame(frame.to_dict("list"))):
        np.testing.assert_array_equal(
            eb.posterior_from(values, errors, mean=table).mean, expected.mean
        )
    assert expected.prior.coefficients_.shape == (3, 1)
    unknown = eb.posterior_from(
        np.r_[values, np.nan], np.r_[errors, np.nan], mean=np.vstack([W, [0.5, 0]])
    )
    assert unknown.mean[-1].item() == pytest.approx(
        unknown.prior.coefficients_[0, 0] + 0.5 * unknown.prior.coefficients_[1, 0]
    )
    with pytest.raises(ValueError, match="collinear columns: 'uranium', 'clay'"):
        eb.posterior_from(values, errors, mean=frame.assign(clay=-URANIUM))
    with pytest.raises(ValueError, match="mean must have a row for each of 40 estimates"):
        eb.posterior_from(values, errors, mean=frame[1:])


@pytest.mark.parametrize("kind", CLASSES)
def test_pandas_indices(kind):
    """A series or frame is aligned by the labels in its index."""
    expected, plain = clone(CLASSES[kind]), ROWS[["county", "radon"]]
    expected.fit(plain, groups="county", covariates=URANIUM)
    by_name = pd.Series(URANIUM, COUNTIES).sample(frac=1, random_state=0)
    more = pd.concat([by_name, pd.Series({"zz": 9.0})])
    frame = TABLE.set_index("county")[["uranium"]].sample(frac=1, random_state=1)
    category = by_name.set_axis(pd.CategoricalIndex(by_name.index))
    rows_only = pd.Series(URANIUM)  # its index counts rows: these come in the order of labels
    for population in (by_name, more, frame, category, rows_only, pl.Series(URANIUM)):
        est = clone(CLASSES[kind]).fit(plain, groups="county", covariates=population)
        np.testing.assert_array_equal(est.predict(), expected.predict())
    new = est.posterior(groups=["zz", "c01"], covariates=more)
    np.testing.assert_array_equal(new.mean[0], est.posterior(groups=["c01"]).mean[0])
    # numbers that label groups, in any order
    shuffled = pd.Series(URANIUM, np.arange(40)).sample(frac=1, random_state=0)
    est = clone(CLASSES[kind]).fit(RADON, groups=OWNER, covariates=shuffled)
    np.testing.assert_array_equal(est.predict(), expected.predict())
    with pytest.raises(ValueError, match="covariates are missing for 1 groups, the first 'c00'"):
        est.fit(plain, groups="county", covariates=pd.Series(URANIUM, COUNTIES).iloc[1:])
    with pytest.raises(ValueError, match="one row for each group; 'c00' has two"):
        est.fit(plain, groups="county", covariates=pd.concat([by_name, by_name[["c00"]]]))


def test_rows_without_groups_take_a_series_in_its_order():
    kept = pd.DataFrame({"x": LEVEL, "w": URANIUM}).sample(frac=0.8, random_state=0)
    expected = eb.GaussianEB(0.1).fit(kept["x"].to_numpy(), covariates=kept["w"].to_numpy())
    est = eb.GaussianEB(0.1).fit(kept["x"].to_numpy(), covariates=kept["w"])
    np.testing.assert_array_equal(est.coef_, expected.coef_)
    errors = np.full(len(kept), 0.3)
    in_series = eb.posterior_from(kept["x"], errors, mean=kept["w"])
    in_array = eb.posterior_from(kept["x"], errors, mean=kept["w"].to_numpy())
    np.testing.assert_array_equal(in_series.mean, in_array.mean)


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame, pa.table])
@pytest.mark.parametrize("kind", CLASSES)
def test_later_frames_need_not_name_the_labels_again(kind, library):
    rows = library(ROWS.to_dict("list"))
    est = clone(CLASSES[kind]).fit(rows, groups="county", covariates=["uranium", "clay"])
    np.testing.assert_array_equal(est.predict(rows), est.predict(rows, groups="county"))
    assert est.score(rows) == est.score(rows, groups="county")
    assert len(est.augment(rows)) == len(ROWS)
    np.testing.assert_array_equal(est.posterior(rows).mean, est.posterior().mean)
    twice = clone(est).fit(rows, groups="county", covariates=["uranium", "clay"])
    assert twice.partial_fit(rows).groups_.tolist() == est.groups_.tolist()
    # frames without that column are rows without groups
    plain = eb.GaussianEB().fit(ROWS[["county", "radon"]], groups="county")
    assert plain.predict(ROWS[["radon"]]).shape == (len(ROWS),)


def test_groups_without_rows_and_groups_not_asked():
    rng = np.random.default_rng(2)
    n = rng.integers(0, 5, 60)
    w = rng.standard_normal((60, 2))
    own = np.where(n > 0, w.sum(axis=1) + rng.standard_normal(60), 0.0)
    summary = eb.Summary(np.arange(60), n, own[:, None], np.maximum(n - 1.0, 0)[:, None])
    est, has_data = eb.GaussianEB().fit(summary, covariates=w), n > 0
    alone = eb.GaussianEB().fit(summary.take(has_data), covariates=w[has_data])
    np.testing.assert_allclose(est.coef_, alone.coef_, rtol=1e-9)
    np.testing.assert_allclose(est.predict()[has_data], alone.predict(), rtol=1e-9)
    np.testing.assert_allclose(est.predict()[~has_data], est.intercept_ + w[~has_data] @ est.coef_)
    asked = rng.random(60) < 0.5
    some = eb.GaussianEB(participation=asked).fit(summary, covariates=w)
    np.testing.assert_allclose(
        some.coef_, eb.GaussianEB().fit(summary.take(asked), covariates=w[asked]).coef_, rtol=1e-9
    )
    assert np.isfinite(some.posterior().sd).all()
    few = np.arange(60) < 3
    with pytest.raises(ValueError, match="covariates have 2 columns for"):
        eb.GaussianEB(participation=few).fit(summary, covariates=w)
    counts = eb.Summary.from_counts(rng.binomial(n, 0.4), n)
    rates = eb.BernoulliEB().fit(counts, covariates=w)
    expected = eb.BernoulliEB().fit(counts.take(has_data), covariates=w[has_data])
    np.testing.assert_allclose(rates.coef_, expected.coef_, rtol=1e-6)
    assert np.isfinite(rates.posterior().to_frame()[["estimate", "sd", "lower"]]).all(axis=None)


# --- reports -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CLASSES)
def test_reports(kind):
    est = fitted(kind)
    tidy = est.tidy().set_index("term")
    names = ["intercept", "uranium", "clay"]
    assert tidy.index[:3].tolist() == names
    np.testing.assert_array_equal(tidy.loc[names, "estimate"], est.prior_.coefficients_[:, 0])
    errors = est.prior_.coefficient_errors_[:, 0]
    np.testing.assert_array_equal(tidy.loc[names, "std.error"], errors)
    np.testing.assert_allclose(tidy["statistic"], tidy["estimate"] / tidy["std.error"])
    assert "sd__intercept" in tidy.index
    text = str(est.summary())
    assert all(name in text for name in names)
    assert f"{est.coef_[0]:.6g}" in text
    assert est.n_parameters_ == (5 if kind == "means" else 4)
    plain = clone(CLASSES[kind]).fit(ROWS[["county", "radon"]], groups="county")
    assert est.glance().columns.tolist() == plain.glance().columns.tolist()
    assert (
        est.posterior().to_frame().columns.tolist() == plain.posterior().to_frame().columns.tolist()
    )
    assert plain.tidy()["term"][:2].tolist() == ["mean", "sd__mean"]
    ledger = est.privacy_
    row = ledger[ledger["what"] == "public covariates: uranium, clay"]
    assert row["assumptions"].tolist() == ["covariates are public; no guarantee covers them"]
    assert np.isinf(row["epsilon"]).all()
    assert len(plain.privacy_) == 1
    copy = pickle.loads(pickle.dumps(est))
    np.testing.assert_array_equal(copy.predict(), est.predict())


# --- places --------------------------------------------------------------------------------------

NOISY = eb.GaussianEB(0.5, channel=ch.AddNoise(0.3), random_state=3)
PLACES = {**CLASSES, "noisy means": NOISY}


@pytest.mark.parametrize("kind", PLACES)
def test_blocks_do_not_matter(kind):
    one = clone(PLACES[kind]).fit(RADON, groups=OWNER, covariates=W)
    for engine in (Local(13), Local(7, threads=2)):
        est = clone(PLACES[kind]).set_params(engine=engine).fit(RADON, groups=OWNER, covariates=W)
        np.testing.assert_array_equal(est.predict(), one.predict())
        np.testing.assert_array_equal(est.posterior().sd, one.posterior().sd)


def over_the_wire(content):
    return wire.unpack(wire.pack(content))


class Nodes(Cohort):
    """Nodes that hold rows of their own, and speak in bytes; some may not answer."""

    def __init__(self, estimator, shares, silent=()):
        self.nodes, self.silent, self.key = [], silent, make_key(estimator.random_state)
        for rows in shares:
            node = clone(estimator)
            given = {"groups": "county", "covariates": ["uranium", "clay"]}
            self.nodes.append([node, *node.protocol().prepare(rows, **given)])
        self.facts = [over_the_wire(node.protocol().describe(*own)) for node, *own in self.nodes]

    def ask(self, sent, round_, turn):
        first, messages = 0, []
        for i, each in enumerate(self.nodes):
            node, clients, memory = each
            own_turn = turn[first : first + len(clients)]
            stream = Stream(self.key, round_, first)
            message, each[2] = node.protocol().local(
                over_the_wire(sent), memory | {"turn": own_turn}, clients, stream
            )
            node.protocol().check_facts(self.facts[i])
            node.protocol().check_message(
                over_the_wire(message), self.facts[i], over_the_wire(sent), own_turn
            )
            if i not in self.silent:
                messages.append(over_the_wire(message))
            first += len(clients)
        return messages


def shares():
    """One node with one group, where covariates are constant, and others with more."""
    place = ROWS["county"].str[1:].astype(int)
    return [ROWS[(low <= place) & (place < high)] for low, high in ((0, 1), (1, 17), (17, 40))]


@pytest.mark.parametrize("kind", PLACES)
def test_places_do_not_matter(kind):
    estimator = PLACES[kind]
    whole = clone(estimator).fit(ROWS, groups="county", covariates=["uranium", "clay"])
    cohort = Nodes(estimator, shares())
    server = clone(estimator)
    state = converse(server.protocol(), cohort, cohort.key)
    server.protocol().conclude(state)
    assert server.log_likelihood_ == pytest.approx(whole.log_likelihood_, rel=1e-12)
    assert server.covariate_names_ == ["uranium", "clay"]
    assert "uranium" in str(server.summary())
    assert "public covariates: uranium, clay" in str(server.privacy_["what"].tolist())
    sent = over_the_wire(server.protocol().broadcast(state))
    estimates = []
    for node, clients, memory in cohort.nodes:
        node.protocol().finish(sent, memory, clients)
        estimates.append(node.predict())
    np.testing.assert_array_equal(np.concatenate(estimates), whole.predict())
    again = (
        clone(estimator)
        .protocol()
        .conclude(over_the_wire(server.protocol().keep(state) | {"log_likelihood": 0.0}))
    )
    new = pd.DataFrame({"county": ["zz"], "radon": [1.0], "uranium": [0.5], "clay": [True]})
    table = new[["county", "uranium", "clay"]]
    np.testing.assert_allclose(
        again.predict(new[["county", "radon"]], groups="county", covariates=table),
        whole.predict(new, groups="county"),
    )
    with pytest.raises(ValueError, match="covariates= must give the covariates"):
        again.predict(new[["county", "radon"]], groups="county")


@pytest.mark.parametrize("kind", CLASSES)
def test_a_node_that_does_not_answer_takes_its_covariates_with_it(kind):
    cohort = Nodes(CLASSES[kind], shares(), silent=(1,))
    server = clone(CLASSES[kind])
    server.protocol().conclude(converse(server.protocol(), cohort, cohort.key))
    rest = pd.concat([shares()[0], shares()[2]])
    expected = clone(CLASSES[kind]).fit(rest, groups="county", covariates=["uranium", "clay"])
    np.testing.assert_array_equal(server.coef_, expected.coef_)
    assert server.log_likelihood_ == pytest.approx(expected.log_likelihood_, rel=1e-12)


def test_what_nodes_may_not_state():
    cohort = Nodes(eb.GaussianEB(), shares())
    node, clients, memory = cohort.nodes[2]
    facts = cohort.facts[2]
    for change in (
        {"covariates": facts["covariates"][1:]},
        {"covariates": np.full_like(facts["covariates"], np.nan)},
        {"covariate_names": np.array(["uranium"])},
        {"covariate_names": np.array([3])},
    ):
        with pytest.raises(ValueError, match="facts must be"):
            node.protocol().check_facts(facts | change)
    others = [cohort.facts[0], facts | {"covariate_names": np.array(["uranium\niron"])}]
    cohort.facts = others
    with pytest.raises(ValueError, match="clients have different columns"):
        converse(clone(node).protocol(), cohort, cohort.key)
    sent = {"done": False, "round": 0, "settings": {}}
    turn = np.zeros(len(clients), np.int8)
    message, _ = node.protocol().local(
        sent, memory | {"turn": turn}, clients, Stream(cohort.key, 0, 0)
    )
    part = message["all clients"]
    node.protocol().check_message(message, facts, sent, turn)
    for invalid in (part["covariates"] + 1, part["covariates"][:, :1]):
        with pytest.raises(ValueError, match="all clients must have"):
            node.protocol().check_message(
                {"all clients": part | {"covariates": invalid}}, facts, sent, turn
            )


def test_collinear_columns_are_found_before_anything_is_sent():
    twice = [share.assign(clay=2 * share["uranium"]) for share in shares()]
    cohort = Nodes(eb.GaussianEB(), twice)
    cohort.ask = None
    with pytest.raises(ValueError, match="collinear columns: 'uranium', 'clay'"):
        converse(eb.GaussianEB().protocol(), cohort, cohort.key)


# --- coverage ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["eb", "robust", "rates"])
def test_coverage(kind):
    """95 % intervals of 1000 groups, 200 times.

    The average over repetitions is held to 93 to 97 %. Measured, a repetition has a standard
    deviation of 0.9 % and the average one of 0.07 %: the bounds are more than twenty of these from
    the 94.9 to 95.4 % found, a false alarm rate of nothing.
    """
    rng = np.random.default_rng(13)
    covered = []
    for _ in range(200):
        w = np.column_stack([rng.standard_normal(1000), rng.random(1000) < 0.3])
        n = rng.integers(1, 15, 1000)
        linear = 0.3 + 0.6 * w[:, 0] - 0.8 * w[:, 1]
        if kind == "rates":
            mean = 1 / (1 + np.exp(-linear))
            theta = rng.beta(8 * mean, 8 * (1 - mean))
            counts = eb.Summary.from_counts(rng.binomial(n, theta), n)
            posterior = eb.BernoulliEB().fit(counts, covariates=w).posterior()
        else:
            theta = linear + 0.5 * rng.standard_normal(1000)
            scatter = rng.chisquare(np.maximum(n - 1, 0) + (n == 1) * 1e-9)
            own = rng.normal(theta, 1 / np.sqrt(n))
            summary = eb.Summary(np.arange(1000), n, own[:, None], scatter[:, None])
            posterior = eb.GaussianEB().fit(summary, covariates=w).posterior()
        low, high = posterior.interval(kind="robust" if kind == "robust" else "eb")
        covered.append(np.mean((low[:, 0] <= theta) & (theta <= high[:, 0])))
    assert 0.93 < np.mean(covered) < (0.98 if kind == "robust" else 0.97)
