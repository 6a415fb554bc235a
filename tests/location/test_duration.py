"""Rates from durations, against brute force and against rates of counts."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import stats
from scipy.optimize import minimize
from sklearn.base import clone

import ebfed as eb
from ebfed import channels, families
from ebfed.testing.nodes import fit_on_two_nodes

RNG = np.random.default_rng(0)
GROUPS = np.repeat(np.arange(120), 4)
HOURS = RNG.exponential(1 / RNG.gamma(4, 0.05, 120)[GROUPS])
TIMES, SEEN = np.minimum(HOURS, 10.0), (HOURS < 10).astype(int)
FRAME = pd.DataFrame({"machine": GROUPS, "hours": TIMES, "failed": SEEN})


@pytest.fixture(scope="module")
def machines():
    return eb.DurationEB().fit(TIMES, groups=GROUPS, observed=SEEN)


def test_maximum_likelihood_by_brute_force(machines):
    """Rates integrated out: ``Gamma(a + y) / Gamma(a) r**a / (r + T)**(a + y)`` for each group."""
    from scipy.special import gammaln

    events = np.bincount(GROUPS, SEEN)
    total = np.bincount(GROUPS, TIMES)

    def minus(x):
        shape, rate = np.exp(x)
        logs = gammaln(shape + events) - gammaln(shape) + shape * np.log(rate)
        return -(logs - (shape + events) * np.log(rate + total)).sum()

    best = minimize(minus, np.zeros(2), method="BFGS", options={"gtol": 1e-7})
    shape, rate = np.exp(best.x)
    assert machines.prior_.shape_[0] == pytest.approx(shape, rel=1e-5)
    assert machines.prior_.mean_[0] == pytest.approx(shape / rate, rel=1e-6)
    assert machines.log_likelihood_ == pytest.approx(-best.fun, rel=1e-10)
    np.testing.assert_allclose(machines.predict(), (shape + events) / (rate + total), rtol=1e-5)


def test_one_duration_is_lomax(machines):
    """The density of a first duration of a new group, and its tail where it is censored."""
    shape = machines.prior_.shape_[0]
    law = stats.lomax(shape, scale=shape / machines.prior_.mean_[0])
    assert machines.score([3.0], groups=[999]) == pytest.approx(law.logpdf(3.0), rel=1e-10)
    assert machines.score([3.0], groups=[999], observed=[0]) == pytest.approx(
        law.logsf(3.0), rel=1e-10
    )


def test_rates_are_those_of_events_in_time(machines):
    counts = eb.PoissonEB().fit(SEEN, groups=GROUPS, exposure=TIMES)
    np.testing.assert_allclose(machines.predict(), counts.predict(), rtol=1e-12)
    for prior in ("npmle", "log_spline"):
        rates = eb.DurationEB(prior=prior).fit(TIMES, groups=GROUPS, observed=SEEN)
        counts = eb.PoissonEB(prior=prior).fit(SEEN, groups=GROUPS, exposure=TIMES)
        np.testing.assert_allclose(rates.predict(), counts.predict(), rtol=1e-9)
    warm = np.arange(120) % 3 * 1.0
    rates = eb.DurationEB().fit(TIMES, groups=GROUPS, observed=SEEN, covariates=warm)
    counts = eb.PoissonEB().fit(SEEN, groups=GROUPS, exposure=TIMES, covariates=warm)
    np.testing.assert_allclose(rates.coef_, counts.coef_, rtol=1e-10)


@pytest.mark.parametrize(
    "table",
    [FRAME, FRAME.sample(frac=1.0, random_state=0), pl.from_pandas(FRAME)],
    ids=["pandas", "shuffled", "polars"],
)
def test_tables(table, machines):
    fit = eb.DurationEB().fit(table, groups="machine", observed="failed")
    np.testing.assert_allclose(fit.predict(), machines.predict(), rtol=1e-12)
    rates = fit.predict(table, type="rate")
    assert len(rates) == 480
    expected = machines.score(TIMES, groups=GROUPS, observed=SEEN)
    assert fit.score(table) == pytest.approx(expected, rel=1e-12)
    found = fit.augment(table)
    np.testing.assert_array_equal(np.asarray(found["hours"]), np.asarray(table["hours"]))
    np.testing.assert_allclose(np.asarray(found[".fitted"]), rates * np.asarray(table["hours"]))
    np.testing.assert_array_equal(fit.predict(table), np.asarray(found[".fitted"]))
    residuals = np.asarray(table["failed"]) - np.asarray(found[".fitted"])
    np.testing.assert_allclose(np.asarray(found[".resid"]), residuals, atol=1e-12)
    assert isinstance(fit.posterior().to_frame(), pl.DataFrame) == isinstance(table, pl.DataFrame)


def test_series_pair_by_label(machines):
    index = RNG.permutation(480)
    order = RNG.permutation(480)
    times, seen = pd.Series(TIMES, index), pd.Series(SEEN == 1, index)
    groups = pd.Series(GROUPS, index)
    fit = eb.DurationEB().fit(times, groups=groups.iloc[order], observed=seen.iloc[order])
    np.testing.assert_allclose(fit.predict(), machines.predict(), rtol=1e-12)


def test_without_censoring():
    fit = eb.DurationEB().fit(HOURS, groups=GROUPS)
    every = eb.DurationEB().fit(HOURS, groups=GROUPS, observed=np.ones(480))
    np.testing.assert_array_equal(fit.predict(), every.predict())
    np.testing.assert_allclose(
        fit.posterior(HOURS, groups=GROUPS).mean, fit.posterior().mean, rtol=1e-12
    )
    np.testing.assert_array_equal(
        eb.DurationEB().fit_predict(HOURS, groups=GROUPS), fit.predict(HOURS, groups=GROUPS)
    )
    np.testing.assert_array_equal(
        eb.DurationEB().fit_transform(HOURS, groups=GROUPS)[:, 0],
        fit.predict(HOURS, groups=GROUPS, type="rate"),
    )


def test_blocks_and_nodes(machines):
    pieces = eb.DurationEB()
    for part in np.array_split(np.arange(480), 3):
        pieces.partial_fit(TIMES[part], groups=GROUPS[part], observed=SEEN[part])
    np.testing.assert_allclose(pieces.predict(), machines.predict(), rtol=1e-9)
    apart = fit_on_two_nodes(eb.DurationEB(), HOURS, GROUPS)
    whole = eb.DurationEB().fit(HOURS, groups=GROUPS)
    np.testing.assert_array_equal(
        np.concatenate([node.predict() for node in apart]), whole.predict()
    )
    summary = clone(machines).fit(machines.summaries_)
    np.testing.assert_allclose(summary.predict(), machines.predict(), rtol=1e-12)


@pytest.mark.parametrize(
    ("arguments", "rows", "given", "text"),
    [
        ({}, [1.0, 0.0], {}, "positive durations; row 1 has 0.0"),
        ({}, [1.0, np.nan], {}, "X contains NaN: 1 missing value"),
        ({}, [1.0, 1e308], {}, "row 1 has"),
        ({}, [1.0, 2.0], {"observed": [1, 2]}, "censored; row 1 has 2"),
        ({}, [1.0, 2.0], {"observed": [1]}, "observed has 1 entries for the 2 rows"),
        ({}, [1.0, 2.0], {"observed": "failed"}, "not a data frame"),
        ({}, [[1.0, 2.0], [3.0, 4.0]], {}, "one column of durations; got 2"),
        ({}, FRAME, {"groups": "machine"}, "one column of durations"),
    ],
)
def test_refused(arguments, rows, given, text):
    with pytest.raises(ValueError, match=text):
        eb.DurationEB(**arguments).fit(rows, **given)


def test_text_is_not_observed():
    with pytest.raises(TypeError, match=r"observed must be numbers; got \['yes', 'no'\]"):
        eb.DurationEB().fit([1.0, 2.0], observed=["yes", "no"])


def test_copies_and_reports(tmp_path, machines):
    np.testing.assert_allclose(
        machines.published().predict(TIMES, groups=GROUPS, observed=SEEN),
        machines.predict(TIMES, groups=GROUPS, observed=SEEN),
    )
    machines.save(tmp_path / "fit.json")
    np.testing.assert_array_equal(eb.load_fit(tmp_path / "fit.json").predict(), machines.predict())
    assert "DurationEB" in str(machines.summary())
    assert len(machines.tidy()) == 3
    for plot in (eb.report.plot_caterpillar, eb.report.plot_population, eb.report.plot_shrinkage):
        assert plot(machines) is not None


def test_metadata_routing():
    """A grid search passes groups and what is observed to fits and scores."""
    from sklearn import config_context
    from sklearn.model_selection import GridSearchCV, GroupKFold

    with config_context(enable_metadata_routing=True):
        search = GridSearchCV(
            eb.DurationEB(), {"prior": ["gamma", "npmle"]}, cv=GroupKFold(3), error_score="raise"
        )
        search.fit(TIMES[:, None], groups=GROUPS, observed=SEEN)
    assert search.best_estimator_.log_likelihood_ <= 0
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


# Private durations -------------------------------------------------------------------------------

RATES = np.random.default_rng(21).gamma(4, 0.05, 4000)
OWNERS = np.repeat(np.arange(4000), np.random.default_rng(22).integers(1, 12, 4000))
LIFETIMES = np.random.default_rng(23).exponential(1 / RATES[OWNERS])


@pytest.fixture(scope="module")
def open_rates():
    return eb.DurationEB().fit(LIFETIMES, groups=OWNERS)


@pytest.mark.parametrize(
    ("channel", "prior", "limit"),
    [
        (channels.TwoBit(2.0, range=(0, 0.6)), "gamma", 1.3),
        (channels.Laplace(2.0, (0, 0.6)), "gamma", 1.3),
        (channels.Quantizer(4, (0, 0.6)), "gamma", 1.02),
        (channels.Quantizer(4, (0, 0.6)), "log_spline", 1.02),
    ],
    ids=repr,
)
def test_risk_of_private_populations(channel, prior, limit, open_rates):
    """Risk over that of a gamma population fitted to the durations.

    Of 20 seeds of TwoBit and Laplace's noise, ratios were 1.03 and 1.05 on average, and 1.09 and
    1.26 at most.
    """
    fit = eb.DurationEB(prior=prior, channel=channel, random_state=0).fit(LIFETIMES, groups=OWNERS)
    risk, best = (np.mean((each.predict() - RATES) ** 2) for each in (fit, open_rates))
    assert risk < limit * best
    assert fit.prior_.mean_[0] == pytest.approx(0.2, abs=0.02)


def test_a_guess_gives_the_range():
    guess = channels.Guess(mean=(0.1, 0.4), spread=0.1)
    fit = eb.DurationEB(channel=channels.TwoBit(2.0), guess=guess, random_state=0)
    fit.fit(LIFETIMES, groups=OWNERS)
    assert fit.prior_.mean_[0] == pytest.approx(0.2, abs=0.02)


def test_total_times_are_no_facts():
    """Of private durations nobody is told more than numbers of rows, and reports of their rates."""
    channel = {"private": channels.Laplace(2.0, (0, 0.6)), "open": channels.Exact()}
    rows = families.EndedDuration().summarise(LIFETIMES[:, None], OWNERS)
    assert channel["private"].encode(rows, 0).keys() == {"n", "report"}
    est = eb.DurationEB(channel=channel, random_state=0)
    choice = np.where(OWNERS % 2, "private", "open")
    fit = est.fit(LIFETIMES, groups=OWNERS, consent=choice)
    assert fit.summaries_.weight is None
    ledger = fit.privacy_.set_index("who")
    assert ledger.loc["private", "epsilon"] == 2.0
    assert ledger.loc["open", "epsilon"] == np.inf
    assert fit.prior_.mean_[0] == pytest.approx(0.2, abs=0.01)


def test_clients_refuse_censored_rows_of_private_fits():
    est = eb.DurationEB(channel=channels.Laplace(2.0, (0, 0.6)))
    with pytest.raises(ValueError, match="observed must be 1 in all rows where channel hides"):
        est.fit(LIFETIMES, groups=OWNERS, observed=LIFETIMES < 5)
