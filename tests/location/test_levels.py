"""Groups within groups: counties of states, in estimators of a parameter for every group."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import ebfed as eb
from ebfed.tables.unseen import UnseenGroupWarning
from ebfed.testing.nodes import fit_on_nodes

LEVELS = ["state", "county"]


def simulated(n_states, n_counties, sd=(1.0, 0.7), rows=(1, 8), seed=0):
    """Rows of counties of states, and the parameter of each county."""
    rng = np.random.default_rng(seed)
    state, county = np.repeat(np.arange(n_states), n_counties), np.arange(n_states * n_counties)
    theta = rng.normal(0, sd[0], n_states)[state] + rng.normal(0, sd[1], len(state))
    row = np.repeat(county, rng.integers(*rows, len(county)))
    names = np.array([f"s{j:03d}" for j in range(n_states)], object)
    table = {"state": names[state[row]], "county": (county % n_counties)[row]}
    return pd.DataFrame(table | {"y": rng.normal(theta[row], 1)}), theta


@pytest.fixture(scope="module")
def rows():
    return simulated(20, 9)[0]


@pytest.fixture(scope="module")
def fit(rows):
    return eb.GaussianEB().fit(rows, groups=LEVELS)


def test_variances_are_those_of_statsmodels(rows, fit):
    """By REML, as a dense mixed model with components of variance."""
    import statsmodels.formula.api as smf

    model = smf.mixedlm(
        "y ~ 1", rows, groups="state", re_formula="1", vc_formula={"county": "0 + C(county)"}
    )
    found = model.fit(reml=True, method=["lbfgs"])
    prior = fit.prior_
    expected = [float(found.cov_re.iloc[0, 0]), float(found.vcomp[0]), found.scale]
    found_here = [prior.above_[0, 0], prior.variance_[0], prior.noise_variance_[0]]
    np.testing.assert_allclose(found_here, expected, rtol=1e-4)  # its optimiser's precision
    assert fit.log_likelihood_ == pytest.approx(found.llf, rel=1e-9)
    assert prior.mean_[0] == pytest.approx(found.params["Intercept"], rel=1e-5)
    assert np.sqrt(prior.mean_variance_[0]) == pytest.approx(found.bse["Intercept"], rel=1e-4)


def test_frames_have_a_column_for_each_level(rows, fit):
    frame = fit.posterior().to_frame()
    assert frame.columns[:3].tolist() == ["state", "county", "n"]
    assert frame["county"].dtype == rows["county"].dtype
    keys = rows[LEVELS].drop_duplicates().sort_values(LEVELS).reset_index(drop=True)
    pd.testing.assert_frame_equal(frame[LEVELS], keys)
    assert fit.ranef().columns.tolist() == [*LEVELS, "y"]
    assert fit.groups_[0] == ("s000", 0)
    spreads = fit.tidy().set_index("group")["estimate"]
    assert spreads["state"] == pytest.approx(np.sqrt(fit.prior_.above_[0, 0]))
    assert "sd        state" in str(fit.summary())


def test_levels_may_be_given_in_other_forms(rows, fit):
    y, expected = rows["y"].to_numpy(), fit.posterior().mean
    for groups in (
        [rows["state"], rows["county"]],
        [rows["state"].tolist(), rows["county"].tolist()],
        rows[LEVELS],
    ):
        again = eb.GaussianEB().fit(y, groups=groups)
        np.testing.assert_allclose(again.posterior().mean, expected, rtol=1e-9)


def test_a_tuple_is_one_label(rows):
    """As labels of one level are; levels are columns."""
    y = rows["y"].to_numpy()
    labels = pd.Series(list(zip(rows["state"], rows["county"], strict=True))).to_numpy()
    codes = pd.factorize(labels)[0]
    again = eb.GaussianEB().fit(y, groups=labels)
    assert again.covariate_names_ == []
    expected = eb.GaussianEB().fit(y, groups=codes).predict(y, groups=codes)
    np.testing.assert_allclose(again.predict(y, groups=labels), expected, rtol=1e-9)
    assert again.predict(groups=labels[:1])[0] == pytest.approx(expected[0])
    assert len(eb.VarianceEB().fit(y, groups=labels).groups_) == len(set(labels))
    assert eb.GaussianEB().fit(eb.Summary.from_rows(y, labels)).covariate_names_ == []


def test_summaries_have_levels_where_these_are_named(rows, fit):
    labels = pd.Series(list(zip(rows["state"], rows["county"], strict=True))).to_numpy()
    summary = eb.Summary.from_rows(rows["y"].to_numpy(), labels)
    again = eb.GaussianEB().fit(summary, groups=LEVELS)
    np.testing.assert_allclose(again.posterior().mean, fit.posterior().mean, rtol=1e-9)
    assert again.posterior().to_frame().columns[:2].tolist() == LEVELS
    with pytest.raises(ValueError, match="groups must be None: clients and summaries carry"):
        eb.GaussianEB().fit(summary, groups=["state"])


def test_polars_goes_in_and_comes_out(rows, fit):
    polars = pytest.importorskip("polars")
    frame = eb.GaussianEB().fit(polars.from_pandas(rows), groups=LEVELS).posterior().to_frame()
    assert isinstance(frame, polars.DataFrame)
    assert frame.columns[:2] == LEVELS
    np.testing.assert_allclose(frame["estimate"], fit.posterior().mean[:, 0], rtol=1e-12)


def test_rows_that_are_not_in_memory_are_refused(rows, fit):
    """As without states, counties of different states would be one group."""
    polars = pytest.importorskip("polars")
    lazy = polars.from_pandas(rows).lazy()
    for X, groups in ((lazy, LEVELS), (lazy, None), (lazy.drop("state"), "county")):
        with pytest.raises(ValueError, match="levels of groups need the rows of X in memory"):
            fit.posterior(X, groups=groups)


def test_new_counties(fit):
    """Of a known state, what is known of the state; of a new one, the population of states."""
    with pytest.warns(UnseenGroupWarning):
        frame = fit.posterior(groups=[("s003", 77), ("zz", 0)]).to_frame()
    prior = fit.prior_
    known, new = frame["estimate"]
    assert new == pytest.approx(prior.centre_[0])
    assert abs(known - new) > 0.1
    assert frame["sd"][0] ** 2 > prior.variance_[0]
    assert frame["sd"][1] ** 2 > prior.variance_[0] + prior.above_[0, 0]
    assert fit.predict(groups=[("s003", 77)])[0] == pytest.approx(known)


def test_rows_of_new_counties_count(rows, fit):
    new = pd.DataFrame({"state": ["s003", "s003"], "county": [77, 77], "y": [9.0, 9.0]})
    estimate = fit.posterior(new).mean[0, 0]
    with pytest.warns(UnseenGroupWarning):
        before = fit.posterior(groups=[("s003", 77)]).mean[0, 0]
    assert before < estimate < 9
    np.testing.assert_allclose(fit.predict(new), estimate)


def test_saved_published_and_in_blocks(rows, fit, tmp_path):
    fit.save(tmp_path / "fit.ebfed")
    expected = fit.posterior().to_frame()
    pd.testing.assert_frame_equal(
        eb.load_fit(tmp_path / "fit.ebfed").posterior().to_frame(), expected
    )
    some = rows["county"] % 2 == 0
    blocks = eb.GaussianEB().fit(rows[some], groups=LEVELS)
    blocks.partial_fit(rows[~some], groups=LEVELS)
    np.testing.assert_allclose(blocks.posterior().mean, fit.posterior().mean, rtol=1e-9)
    server = fit.published()
    assert server.log_likelihood_ == pytest.approx(fit.log_likelihood_)
    asked = rows.head(4)
    found = server.posterior(asked, groups=LEVELS).mean
    np.testing.assert_allclose(found, fit.posterior(asked).mean, rtol=0.05)


def test_parents_are_stated_and_nothing_else_is_new(fit, rows):
    ledger = fit.privacy_
    assert ledger["what"].tolist() == ["Exact()", "public covariates: (1 | state)"]


def test_known_noise_and_noise_of_a_channel(rows):
    plain = eb.GaussianEB(1.0).fit(rows, groups=LEVELS)
    noisy = eb.GaussianEB(1.0, channel=eb.channels.AddNoise(0.2), random_state=0).fit(
        rows, groups=LEVELS
    )
    assert plain.prior_.noise_variance_ is None
    assert noisy.prior_.variance_[0] == pytest.approx(plain.prior_.variance_[0], rel=0.3)
    error = np.abs(noisy.posterior().mean - plain.posterior().mean)
    assert 0 < error.max() < 0.3


@pytest.mark.parametrize("unit", ["ns", "us", "s"])
@pytest.mark.parametrize("level", LEVELS)
def test_labels_of_a_level_may_be_dates(rows, fit, unit, level):
    """Python has no nanoseconds, and labels of groups are tuples of its own objects."""
    number = pd.factorize(rows[level], sort=True)[0]
    dates = pd.date_range("2020-01-01", periods=20, freq="D").as_unit(unit)[number]
    dated = rows.assign(**{level: dates})
    again = eb.GaussianEB().fit(dated, groups=LEVELS)
    frame = again.posterior().to_frame()
    assert frame[level].dtype == dated[level].dtype
    assert set(frame[level]) == set(dates)
    np.testing.assert_allclose(frame["estimate"], fit.posterior().mean[:, 0], rtol=1e-6)
    np.testing.assert_allclose(again.predict(groups=dated[LEVELS]), again.predict(dated))
    if unit == "ns":
        odd = dated.assign(**{level: dates + pd.Timedelta(1, "ns")})
        with pytest.raises(ValueError, match="must be whole microseconds"):
            again.predict(odd)


def test_several_columns(rows, fit):
    both = rows.assign(z=-2 * rows["y"])
    found = eb.GaussianEB().fit(both, groups=LEVELS).posterior()
    np.testing.assert_allclose(found.mean[:, 0], fit.posterior().mean[:, 0], rtol=1e-6)
    np.testing.assert_allclose(found.mean[:, 1], -2 * found.mean[:, 0], rtol=1e-6)


def test_rows_without_noise_show_the_counties():
    """Then counties are known, and only states are estimated."""
    rows, _ = simulated(8, 6, rows=(1, 2))
    with pytest.warns(eb.IdentificationWarning, match="No group has two rows"):
        fit = eb.GaussianEB().fit(rows, groups=LEVELS)
    np.testing.assert_allclose(fit.posterior().mean[:, 0], rows["y"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prior": "npmle"}, "levels of groups are for"),
        ({"method": "moments"}, "method must be 'reml' or 'ml' with levels"),
        ({"share": "sums"}, "share must be 'groups' with covariates or levels"),
        (
            {"variances": 1.0, "channel": eb.channels.Gaussian(1, 1e-5, range=(-5, 5))},
            "levels of groups need messages",
        ),
    ],
    ids=["prior", "method", "sums", "channel"],
)
def test_what_does_not_fit_is_refused(rows, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        eb.GaussianEB(**options).fit(rows, groups=LEVELS)


def test_wrong_labels_are_refused(rows, fit):
    with pytest.raises(ValueError, match="groups names 'sate'"):
        eb.GaussianEB().fit(rows, groups=["sate", "county"])
    with pytest.raises(ValueError, match="groups has 1 levels; the fit had 2"):
        fit.posterior(groups=["s001"])
    with pytest.raises(ValueError, match="cannot be fitted together"):
        eb.GaussianEB().fit(rows.assign(w=1.0), groups=LEVELS, covariates=["w"])
    with pytest.raises(ValueError, match="missing"):
        eb.GaussianEB().fit(rows.assign(state=None), groups=LEVELS)
    with pytest.raises(ValueError, match="one length"):
        eb.GaussianEB().fit(rows["y"], groups=[[1, 2, 3], [1, 2]])


def test_estimates_are_as_good_as_with_known_variances():
    """Within 1 % of the oracle's squared error, and better than one level."""
    rows, theta = simulated(200, 50, sd=(0.7, 0.5), rows=(2, 6), seed=5)
    estimate = eb.GaussianEB().fit(rows, groups=LEVELS).posterior().mean[:, 0]
    pairs = rows["state"] + rows["county"].astype(str).str.zfill(2)
    flat = eb.GaussianEB().fit(rows["y"], groups=pairs).posterior().mean[:, 0]
    counts = rows.groupby(LEVELS)["y"].agg(["mean", "size"]).reset_index()
    total = 0.25 + 1 / counts["size"]
    weight = (1 / total).groupby(counts["state"]).transform("sum")
    mean = (counts["mean"] / total).groupby(counts["state"]).transform("sum") / weight
    of_state = 0.49 / (0.49 + 1 / weight) * mean  # around a mean of zero
    oracle = of_state + 0.25 / total * (counts["mean"] - of_state)
    errors = [((each - theta) ** 2).mean() for each in (estimate, oracle, flat)]
    assert errors[0] < 1.01 * errors[1]
    assert errors[0] < 0.95 * errors[2]


@pytest.mark.parametrize("n_states", [8, 40])
def test_intervals_hold_what_they_promise(n_states):
    """95 % intervals of counties, and of new counties in known states, over 60 data sets."""
    inside, new = [], []
    for seed in range(60):
        rows, theta = simulated(n_states, 6, sd=(0.6, 0.6), rows=(1, 5), seed=seed)
        kept = rows["county"] > 0
        fit = eb.GaussianEB().fit(rows[kept], groups=LEVELS)
        states = fit.posterior().ids
        of = np.array([int(state[1:]) * 6 + county for state, county in states])
        low, high = fit.posterior().interval()
        inside.append(((low[:, 0] < theta[of]) & (theta[of] < high[:, 0])).mean())
        with pytest.warns(UnseenGroupWarning):
            asked = fit.posterior(groups=[(f"s{j:03d}", 0) for j in range(n_states)])
        low, high = asked.interval()
        new.append(((low[:, 0] < theta[::6]) & (theta[::6] < high[:, 0])).mean())
    for found in (inside, new):
        error = np.std(found) / np.sqrt(len(found))
        assert abs(np.mean(found) - 0.95) < 0.012 + 3 * error, (np.mean(found), error)


def test_a_formula_has_levels(rows, fit, tmp_path):
    formula = eb.from_formula("y | state/county", rows)
    pd.testing.assert_frame_equal(formula.posterior().to_frame(), fit.posterior().to_frame())
    np.testing.assert_allclose(formula.predict(rows[LEVELS].head(1)), fit.predict(rows)[:1])
    new = pd.DataFrame({"state": ["s003", "zz"], "county": [77, 77]})
    with pytest.warns(UnseenGroupWarning):
        expected = fit.predict(groups=new)
    np.testing.assert_allclose(formula.predict(new), expected)
    np.testing.assert_allclose(formula.predict(rows[["y"]].head(2)), fit.prior_.centre_[0])
    assert {".fitted", ".resid", *LEVELS} <= set(formula.augment().columns)
    formula.save(tmp_path / "formula.ebfed")
    again = eb.load_fit(tmp_path / "formula.ebfed")
    np.testing.assert_allclose(again.predict(rows), formula.predict(rows))
    with pytest.raises(ValueError, match="the group of level 1 'country' is not a column"):
        eb.from_formula("y ~ 1 + (1 | country/county)", rows)
    with pytest.raises(ValueError, match="AdaMix has one level of groups"):
        eb.from_formula("y ~ county + (1 | state/county)", rows, eb.AdaMix())


def counted(seed):
    """Rates of 30 states with 12 counties, of 2 to 9 rows each."""
    rng = np.random.default_rng(seed)
    state = np.repeat(np.arange(30), 12)
    mean = rng.beta(3, 2, 30)[state]
    theta, trials = rng.beta(8 * mean, 8 * (1 - mean)), rng.integers(2, 10, 360)
    table = {"state": state, "county": np.tile(np.arange(12), 30), "trials": trials}
    return pd.DataFrame(table | {"won": rng.binomial(trials, theta)}), theta


def test_rates_of_counties_of_states():
    counts, theta = counted(0)
    fit = eb.from_formula("cbind(won, trials=trials) | state/county", counts)
    frame = fit.posterior().to_frame()
    assert frame.columns[:2].tolist() == LEVELS
    flat = eb.BernoulliEB().fit(eb.Summary.from_counts(counts["won"], counts["trials"]))
    errors = [
        ((each.mean[:, 0] - theta) ** 2).mean() for each in (fit.posterior(), flat.posterior())
    ]
    assert errors[0] < 0.85 * errors[1]
    rows = counts.loc[counts.index.repeat(counts["trials"])].reset_index(drop=True)
    first = rows.groupby(LEVELS).cumcount() < rows["won"]
    rows = rows[LEVELS].assign(y=first.astype(int))
    again = eb.BernoulliEB().fit(rows, groups=LEVELS)
    np.testing.assert_allclose(again.posterior().mean, fit.posterior().mean, rtol=1e-6)
    assert again.tidy()["group"].tolist() == ["", *LEVELS]
    with pytest.warns(UnseenGroupWarning):
        new = again.posterior(groups=[(3, 99), (99, 0)]).to_frame()
    assert new["sd"][0] < new["sd"][1]
    assert again.score(rows) < 0


def test_rates_of_events_of_counties_of_states():
    rng = np.random.default_rng(1)
    state = np.repeat(np.arange(20), 15)
    theta = rng.gamma(5, rng.gamma(4, 0.5, 20)[state] / 5)
    years = rng.uniform(1, 5, 300)
    table = {"state": state, "county": np.tile(np.arange(15), 20), "years": years}
    frame = pd.DataFrame(table | {"deaths": rng.poisson(theta * years)})
    fit = eb.PoissonEB().fit(frame, groups=LEVELS, exposure="years")
    flat = eb.PoissonEB().fit(frame[["deaths"]], exposure=years)
    errors = [((each.posterior().mean[:, 0] - theta) ** 2).mean() for each in (fit, flat)]
    assert errors[0] < 0.9 * errors[1]
    assert str(fit.prior_) == "NestedGamma(names=['state'])"


def test_intervals_of_rates_hold_what_they_promise():
    """90 % intervals, over 12 data sets; two states have nothing to do with each other."""
    inside = []
    for seed in range(12):
        counts, theta = counted(seed)
        fit = eb.from_formula("cbind(won, trials=trials) | state/county", counts)
        low, high = fit.posterior().interval(0.9)
        inside.append(((low[:, 0] < theta) & (theta < high[:, 0])).mean())
    error = np.std(inside) / np.sqrt(len(inside))
    assert abs(np.mean(inside) - 0.9) < 0.01 + 3 * error


def test_rates_have_two_levels_and_exact_messages():
    counts, _ = counted(0)
    rows = counts[LEVELS].assign(y=(counts["won"] > 3).astype(int), country=1)
    with pytest.raises(ValueError, match="has one level above the groups"):
        eb.BernoulliEB().fit(rows, groups=["country", *LEVELS])
    with pytest.raises(ValueError, match="levels of groups need messages"):
        eb.BernoulliEB(channel=eb.channels.TwoBit(1.0)).fit(
            rows.drop(columns="country"), groups=LEVELS
        )


@pytest.mark.parametrize("split", ["by state", "across states"])
@pytest.mark.parametrize("kind", ["means", "rates"])
def test_counties_at_two_nodes(rows, kind, split):
    """Two nodes that have whole states, or counties of the same states, fit as one table does."""
    table, estimator = rows, eb.GaussianEB()
    if kind == "rates":
        table, estimator = rows.assign(y=(rows["y"] > 0).astype(float)), eb.BernoulliEB()
    first = table["county"] < 4 if split == "across states" else table["state"] < "s008"
    parts = [{"X": table[own], "groups": LEVELS} for own in (first, ~first)]
    nodes, _, _ = fit_on_nodes(estimator, parts)
    together = clone(estimator).fit(table, groups=LEVELS).posterior().to_frame()
    apart = pd.concat([node.posterior().to_frame() for node in nodes])
    apart = apart.sort_values(LEVELS).reset_index(drop=True)
    assert apart.columns.tolist() == together.columns.tolist()
    pd.testing.assert_frame_equal(apart[[*LEVELS, "n"]], together[[*LEVELS, "n"]])
    estimates = [name for name in ("estimate", "sd", "lower", "upper") if name in apart]
    assert len(estimates) == 4
    # sums of counties are in another order where nodes share states
    np.testing.assert_allclose(apart[estimates], together[estimates], rtol=1e-9, atol=1e-9)


ONE_NAME = {
    "location": eb.GaussianEB(),
    "linear": eb.LinearEB(),
    "logistic": eb.LogisticEB(),
    "learner": eb.learning.FedAvg(n_rounds=1, random_state=0),
}


@pytest.mark.parametrize("groups", [["county"], ("county",)])
@pytest.mark.parametrize("name", ONE_NAME)
def test_a_list_of_one_name_is_one_level(rows, name, groups):
    """Also in later frames, which need not name it again."""
    table = rows.assign(county=rows["county"].astype(str), x=np.arange(len(rows)) % 7 - 3.0)
    features, given = table[["county", "x"]], {"y": table["y"] > 0}
    if name == "location":
        features, given = table[["county", "y"]], {}
    fits = [clone(ONE_NAME[name]).fit(features, **given, groups=g) for g in (groups, "county")]
    np.testing.assert_array_equal(fits[0].groups_, fits[1].groups_)
    later = features.head(20)
    for options in ({}, {"groups": groups}):
        np.testing.assert_array_equal(fits[0].predict(later, **options), fits[1].predict(later))
    with pytest.raises(ValueError, match="groups names 'parish', and X has the columns"):
        clone(ONE_NAME[name]).fit(features, **given, groups=["parish"])


@pytest.mark.parametrize("kind", ["polars", "lazy", "duckdb"])
def test_a_list_of_one_name_in_other_tables(rows, kind):
    pl, duckdb = pytest.importorskip("polars"), pytest.importorskip("duckdb")
    table = pl.from_pandas(rows[["county", "y"]].assign(x=np.arange(len(rows)) % 7 - 3.0))
    if kind == "lazy":
        table = table.lazy()
    elif kind == "duckdb":
        table = duckdb.from_df(table.to_pandas())
    for estimator, given in ((eb.GaussianEB(), {}), (eb.LinearEB(), {"y": "y"})):
        fits = [clone(estimator).fit(table, **given, groups=g) for g in ("county", ["county"])]
        found = [fit.posterior().mean for fit in fits]
        # sums of a table of another engine are in any order
        np.testing.assert_allclose(found[0], found[1], rtol=1e-9, atol=1e-12)
        if kind != "polars":
            with pytest.raises(ValueError, match="levels of groups need the rows of X in memory"):
                clone(estimator).fit(table, **given, groups=["county", "x"])


def test_the_label_of_one_row_is_no_name():
    fit = eb.GaussianEB().fit(pd.DataFrame({"y": [1.0, 2.0, 4.0, 3.0]}), groups=list("aabb"))
    one = pd.DataFrame({"y": [2.0]})
    np.testing.assert_array_equal(
        fit.predict(one, groups=["b"]), fit.predict(one, groups=np.array(["b"]))
    )
