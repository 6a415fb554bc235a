"""Shares of categories, in tables as people have them."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone

import ebfed as eb
from ebfed.engines.base import join
from ebfed.streams import make_key

RNG = np.random.default_rng(0)
SHARES = RNG.dirichlet([6, 3, 1], 40)
GROUPS = np.repeat(np.arange(40), 10)
LABELS = np.array(["blue", "green", "red"])[
    (RNG.random((400, 1)) > SHARES.cumsum(axis=1)[GROUPS]).sum(axis=1)
]
FRAME = pd.DataFrame({"county": GROUPS, "party": LABELS})


@pytest.fixture(scope="module")
def parties():
    return eb.CategoricalEB().fit(LABELS, groups=GROUPS)


def test_two_categories_are_rates():
    red = LABELS == "red"
    rates = eb.BernoulliEB().fit(red.astype(float), groups=GROUPS)
    both = eb.CategoricalEB().fit(red, groups=GROUPS)
    np.testing.assert_array_equal(both.classes_, [False, True])
    np.testing.assert_allclose(both.predict()[:, 1], rates.predict(), rtol=1e-8)
    assert both.log_likelihood_ == pytest.approx(rates.log_likelihood_, rel=1e-10)
    assert both.score(red, groups=GROUPS + 7) == pytest.approx(
        rates.score(red.astype(float), groups=GROUPS + 7), rel=1e-9
    )


@pytest.mark.parametrize(
    "table",
    [
        FRAME,
        FRAME.astype({"party": "category"}),
        FRAME.sample(frac=1.0, random_state=0),
        pl.from_pandas(FRAME),
        pd.crosstab(GROUPS, LABELS).rename_axis(index="county").reset_index(),
        pd.crosstab([GROUPS, np.arange(400) % 3], LABELS).reset_index(0, names="county"),
    ],
    ids=["text", "category", "shuffled", "polars", "counts", "counts in parts"],
)
def test_tables(table, parties):
    fit = eb.CategoricalEB().fit(table, groups="county")
    np.testing.assert_allclose(fit.predict(), parties.predict(), rtol=1e-12)
    assert fit.classes_.tolist() == fit.feature_names_in_.tolist() == ["blue", "green", "red"]
    assert len(fit.predict(table)) == len(table)
    np.testing.assert_allclose(fit.score(table), parties.score(LABELS, groups=GROUPS), rtol=1e-12)
    found = fit.augment(table)
    fitted = np.column_stack([np.asarray(found[f".fitted_{name}"]) for name in fit.classes_])
    counted = np.column_stack([np.asarray(found[name]) for name in fit.classes_])
    np.testing.assert_allclose(fitted.sum(axis=1), counted.sum(axis=1))
    assert fit.posterior().terms == ("blue", "green", "red")
    assert isinstance(fit.posterior().to_frame(), pl.DataFrame) == isinstance(table, pl.DataFrame)


def test_series_and_lists(parties):
    index = np.arange(400)[::-1]
    series = eb.CategoricalEB().fit(pd.Series(LABELS, index), groups=pd.Series(GROUPS, index))
    np.testing.assert_array_equal(series.predict(), parties.predict())
    for labels in (LABELS.tolist(), LABELS[:, None], pl.Series(LABELS), LABELS.astype(object)):
        np.testing.assert_array_equal(
            eb.CategoricalEB().fit(labels, groups=GROUPS).predict(), parties.predict()
        )
    numbers = eb.CategoricalEB().fit(np.unique(LABELS, return_inverse=True)[1], groups=GROUPS)
    np.testing.assert_array_equal(numbers.predict(), parties.predict())
    np.testing.assert_array_equal(numbers.predict([0.0, 2.0]), parties.predict(["blue", "red"]))


def test_labels_beyond_integers_stay_apart():
    huge = eb.CategoricalEB().fit(np.resize([1e300, 1e308, 2.0], 30), groups=np.repeat(range(5), 6))
    assert huge.classes_.tolist() == [2.0, 1e300, 1e308]
    assert {"1e+300", "1e+308"} <= set(str(huge.summary()).split())


def test_estimates_and_draws_add_up(parties):
    posterior = parties.posterior()
    np.testing.assert_allclose(posterior.mean.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(posterior.sample(50, 0).sum(axis=2), 1.0, rtol=1e-12)
    unseen = parties.predict(["red"], groups=[999])
    weight = 1 / (1 + parties.prior_.concentration_)
    expected = (1 - weight) * parties.prior_.mean_ + weight * np.array([0, 0, 1])
    np.testing.assert_allclose(unseen[0], expected, rtol=1e-12)


def test_intervals_hold_the_shares():
    """2,000 groups: 95 % intervals hold 93.5 to 96.5 % of each share (three standard errors)."""
    rng = np.random.default_rng(4)
    shares = rng.dirichlet([3, 2, 1], 2000)
    fit = eb.CategoricalEB().fit(rng.multinomial(np.full(2000, 8), shares))
    lower, upper = fit.posterior().interval(0.95)
    held = ((lower <= shares) & (shares <= upper)).mean(axis=0)
    assert np.all((held > 0.935) & (held < 0.965))
    robust = fit.posterior().interval(0.95, kind="robust")
    assert np.all((robust[0] <= lower) & (robust[1] >= upper))


def test_blocks_of_rows_and_new_categories(parties):
    known = eb.CategoricalEB(categories=["red", "blue", "green"])
    for part in np.array_split(np.arange(400), 3):
        known.partial_fit(LABELS[part], groups=GROUPS[part])
    np.testing.assert_allclose(known.predict(), parties.predict(), rtol=1e-10)
    with pytest.raises(ValueError, match=r"not among the 3 known ones: 'pink'. .*categories="):
        parties.predict(["pink"], groups=[0])


def test_a_known_population():
    fit = eb.CategoricalEB(prior=eb.priors.Dirichlet([1, 2, 3])).fit(LABELS, groups=GROUPS)
    counts = np.array([(LABELS[:10] == name).sum() for name in fit.classes_])
    np.testing.assert_allclose(fit.predict()[0], (counts + np.array([1, 2, 3])) / 16, rtol=1e-12)


@pytest.mark.parametrize(
    ("arguments", "rows", "text"),
    [
        ({}, [0.5, 0.2], "Cut measurements into classes"),
        ({}, ["a", None], "missing"),
        ({}, np.array([], object), "at least one row"),
        ({}, [[1, 2], [0.5, 1]], "whole numbers from 0"),
        ({}, [[1, 2], [-1, 1]], "whole numbers from 0"),
        ({}, np.array(["2026-01-01"], "M8[D]"), "labels of categories"),
        ({"categories": ["a", "a"]}, ["a"], "all different"),
        ({"categories": ["a", "b", "c"]}, [[1, 2], [3, 4]], "those of the 2 columns"),
        ({"channel": eb.channels.OneBit(1.0)}, ["a", "b"], r"channel must be .*RandomizedCategory"),
        ({"prior": "beta"}, ["a", "b"], "'dirichlet' or an ebfed.priors.Prior"),
    ],
)
def test_refused(arguments, rows, text):
    with pytest.raises(ValueError, match=text):
        eb.CategoricalEB(**arguments).fit(rows)


def test_answers_of_lazy_tables_are_counted_by_their_engine():
    fit = eb.CategoricalEB().fit(pl.LazyFrame({"g": GROUPS, "x": LABELS}), groups="g")
    expected = eb.CategoricalEB().fit(LABELS, groups=GROUPS)
    assert fit.classes_.tolist() == expected.classes_.tolist()
    np.testing.assert_array_equal(fit.predict(), expected.predict())


def test_summaries_and_formulas(parties):
    fit = eb.CategoricalEB(categories=parties.classes_).fit(parties.summaries_)
    np.testing.assert_array_equal(fit.predict(), parties.predict())
    assert fit.classes_.tolist() == parties.classes_.tolist()
    written = eb.from_formula("party ~ 1 + (1 | county)", FRAME, family="categorical")
    np.testing.assert_allclose(written.estimator_.predict(), parties.predict(), rtol=1e-12)


def test_the_ledger_says_that_categories_are_public():
    """Which there are is learned from all rows, as they are."""
    channel = eb.channels.RandomizedCategory(1.0)
    ledger = eb.CategoricalEB(channel=channel).fit(LABELS, groups=GROUPS).privacy_
    assert "rows and categories are public" in ledger["assumptions"].item()


def test_copies_without_rows(tmp_path, parties):
    server = parties.published()
    np.testing.assert_allclose(
        server.predict(LABELS, groups=GROUPS), parties.predict(LABELS, groups=GROUPS)
    )
    parties.save(tmp_path / "fit.json")
    again = eb.load_fit(tmp_path / "fit.json")
    np.testing.assert_array_equal(again.predict(), parties.predict())
    assert again.classes_.tolist() == ["blue", "green", "red"]


@pytest.mark.parametrize(
    "plot",
    [
        eb.report.plot_arrows,
        eb.report.plot_calibration,
        eb.report.plot_caterpillar,
        eb.report.plot_marginal,
        eb.report.plot_population,
        eb.report.plot_shrinkage,
    ],
)
def test_plots_of_one_share(plot, parties):
    assert plot(parties, column=2) is not None


def test_answers_of_one_category_give_no_warning_of_numpy():
    rows = pd.DataFrame({"k": ["m"] * 30, "g": np.arange(30) % 6})
    with pytest.warns(eb.IdentificationWarning), np.errstate(all="raise"):
        fit = eb.from_formula("k | g", rows, family="categorical")
    with np.errstate(all="raise"):
        assert (fit.posterior().sd < 1e-9).all()
        assert fit.augment()[".fitted"].tolist() == ["m"] * 30
        assert "m" in str(fit.summary())


def test_nodes_that_lack_a_category_are_told_of_the_argument():
    """Without `categories`, each node has those of its own rows."""
    nodes = {"north": ["a", "b", "a"], "south": ["a", "c", "b"]}

    def facts(estimator):
        found = []
        for name, labels in nodes.items():
            protocol = clone(estimator).protocol()
            clients, memory = protocol.prepare(labels, groups=[name] * 3)
            found.append(protocol.describe(clients, memory))
        return join(found)

    protocol = eb.CategoricalEB().protocol()
    with pytest.raises(
        ValueError, match=r"clients have different columns: .*give all by categories="
    ):
        protocol.start(facts(eb.CategoricalEB()), make_key(0))
    told = eb.CategoricalEB(categories=["a", "b", "c"])
    assert told.protocol().start(facts(told), make_key(0))["n_features"] == 3
