"""A formula is the estimator with the columns that its terms come to: to the last digit."""

import copy
import pickle
import rlcompleter

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import ebfed as eb
from ebfed.channels import Exact, Gaussian, Laplace
from ebfed.report.view import view_of
from ebfed.testing.estimators import found_in

RNG = np.random.default_rng(0)
N, M = 120, 20
CODES = np.arange(N) // 6
LABELS = np.array([f"g{i:02d}" for i in range(M)])[CODES]
X, Z = RNG.normal(size=(2, N))
U = RNG.normal(size=M)
KIND = np.array(list("abc"))[RNG.integers(0, 3, N)]
Y = 1 + X + 0.5 * Z + U[CODES] + RNG.normal(size=M)[CODES] + RNG.normal(size=N)
WON = RNG.binomial(5, 1 / (1 + np.exp(-Y + 1)))
COLUMNS = {
    "y": Y.tolist(),
    "x": X.tolist(),
    "z": Z.tolist(),
    "kind": KIND.tolist(),
    "u": U[CODES].tolist(),
    "county": LABELS.tolist(),
    "hit": (Y > 1).astype(float).tolist(),
    "won": WON.tolist(),
    "games": [5] * N,
    "lost": (5 - WON).tolist(),
}
FRAMES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}
XZ = np.column_stack([X, Z])
ROWS = pd.DataFrame(COLUMNS)
HIDDEN = Gaussian(2.0, 1e-5, (-5.0, 5.0))


@pytest.fixture(params=FRAMES)
def library(request):
    return request.param


@pytest.fixture
def data(library):
    return FRAMES[library](COLUMNS)


def same(found, expected):
    np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))


# --- regressions ---------------------------------------------------------------------------------

LINEAR = {
    "y ~ x + z | county": eb.LinearEB(),
    "y ~ x + z || county": eb.LinearEB("diag"),
    "y ~ x + z + (1 + x + z || county)": eb.LinearEB("diag"),
    "y ~ x + z + (1 + x + z | county)": eb.LinearEB("full"),
    "y ~ x + z + (1 | county)": eb.LinearEB(varying=["intercept"]),
    "y ~ x + z + (x || county)": eb.LinearEB(varying=["intercept", "x"]),
    "y ~ x + z + (0 + z | county)": eb.LinearEB(varying=["z"]),
    "y ~ 0 + x + z + (0 + x + z | county)": eb.LinearEB("full", fit_intercept=False),
    "y ~ x + z + (1 + x | county)": eb.LinearEB("full", varying=["intercept", "x"]),
    "y ~ (1 + z + x | county) + x + z": eb.LinearEB("full"),
}


@pytest.mark.parametrize("formula", LINEAR)
def test_linear_regressions(data, formula):
    plain = pd.DataFrame(XZ, columns=["x", "z"])
    expected = LINEAR[formula].fit(plain, Y, groups=LABELS)
    fit = eb.from_formula(formula, data)
    assert isinstance(fit.estimator_, eb.LinearEB)
    same(fit.posterior().mean, expected.posterior().mean)
    same(fit.posterior().sd, expected.posterior().sd)
    same(fit.tidy()["estimate"], expected.tidy()["estimate"])
    assert fit.log_likelihood_ == expected.log_likelihood_
    same(fit.predict(), expected.predict(plain, groups=LABELS))
    same(fit.predict(data), fit.predict())
    assert fit.score(data) == expected.score(plain, Y, groups=LABELS)


@pytest.mark.parametrize("method", ["ml", "reml"])
def test_settings(data, method):
    plain = pd.DataFrame(XZ, columns=["x", "z"])
    expected = eb.LinearEB(method=method).fit(plain, Y, groups=LABELS).posterior().mean
    same(eb.from_formula("y ~ x + z | county", data, method=method).posterior().mean, expected)
    given = eb.LinearEB(method=method)
    fit = eb.from_formula("y ~ x + z + (1 + x + z || county)", data, given)
    same(fit.posterior().mean, expected)
    assert not hasattr(given, "mean_"), "the one that was given stays as it was"
    with pytest.raises(ValueError, match="has no argument 'nonsense'"):
        eb.from_formula("y ~ x | county", data, nonsense=1)


def test_bars_that_say_nothing_leave_settings_alone():
    given = eb.LinearEB("full", varying=["x"])
    expected = given.fit(ROWS[["x", "z"]], Y, groups=LABELS).coef()
    fit = eb.from_formula("y ~ x + z | county", ROWS, given)
    same(fit.coef().iloc[:, 1:], expected.iloc[:, 1:])


def test_terms_of_many_kinds(data):
    """Interactions, contrasts, polynomials, functions: as the columns they come to."""

    def double(values):
        return 2 * values

    formula = "y ~ x * z + C(kind, contr.sum) + np.exp(z / 9) + (1 | county)"
    is_kind = {name: (name == KIND) * 1.0 for name in "abc"}
    columns = {
        "x": X,
        "z": Z,
        "a": is_kind["a"] - is_kind["c"],
        "b": is_kind["b"] - is_kind["c"],
        "exp": np.exp(Z / 9),
        "xz": X * Z,
    }
    fit = eb.from_formula(formula, data)
    names = list(fit.design_.names)
    assert names == [
        "x", "z", "C(kind, contr.sum)[S.a]", "C(kind, contr.sum)[S.b]", "np.exp(z / 9)", "x:z",
    ]  # fmt: skip
    plain = pd.DataFrame(columns)
    expected = eb.LinearEB(varying=["intercept"]).fit(plain, Y, groups=LABELS)
    np.testing.assert_allclose(fit.mean_, expected.mean_, rtol=1e-9)
    again = eb.from_formula("y ~ double(x) + double(z) | county", data)
    assert again.terms_ == ["intercept", "double(x)", "double(z)"]
    same(
        again.predict(data),
        eb.LinearEB().fit(2 * XZ, Y, groups=LABELS).predict(2 * XZ, groups=LABELS),
    )
    with pytest.raises(ValueError, match="absent"):
        eb.from_formula("y ~ absent(x) | county", data)
    given = eb.from_formula("y ~ absent(x) | county", data, context={"absent": np.exp})
    assert given.terms_ == ["intercept", "absent(x)"]


@pytest.mark.parametrize(
    ("response", "values"), [("np.exp(y)", np.exp(Y)), ("y - 3", Y - 3), ("y / 2", Y / 2)]
)
def test_responses(data, response, values):
    fit = eb.from_formula(f"{response} ~ x + z | county", data)
    same(fit.predict(), eb.LinearEB().fit(XZ, values, groups=LABELS).predict(XZ, groups=LABELS))
    same(fit.augment(data)[".resid"], values - fit.predict())


def test_logistic_regressions(data):
    expected = eb.LogisticEB().fit(XZ, np.array(COLUMNS["hit"]), groups=LABELS)
    fit = eb.from_formula("hit ~ x + z | county", data, family="binomial")
    assert isinstance(fit.estimator_, eb.LogisticEB)
    same(fit.posterior().mean, expected.posterior().mean)
    same(fit.predict(), expected.predict_proba(XZ, groups=LABELS)[:, 1])
    same(fit.predict_proba(data), expected.predict_proba(XZ, groups=LABELS))
    shown = fit.augment()
    same(shown[".fitted"], fit.predict_proba()[:, 1])
    same(shown[".resid"], np.array(COLUMNS["hit"]) - fit.predict_proba()[:, 1])
    condition = eb.from_formula("y > 1 ~ x + z | county", data, family="binomial")
    same(condition.posterior().mean, expected.posterior().mean)


def test_some_coefficients_of_a_logistic_regression(data):
    fit = eb.from_formula("hit ~ x + z + (1 | county)", data, family="binomial")
    plain = pd.DataFrame(XZ, columns=["x", "z"])
    expected = eb.LogisticEB(varying=["intercept"])
    expected.fit(plain, np.array(COLUMNS["hit"]), groups=LABELS)
    same(fit.posterior().mean, expected.posterior().mean)
    assert fit.ranef().shape == (M, 2)


def test_counts_of_rows_with_covariates(data):
    """Each row has a number of trials."""
    fit = eb.from_formula("cbind(won, trials=games) ~ x + (1 + x || county)", data)
    expected = eb.GeneralizedEB("binomial", "diag")
    expected.fit(X[:, None], WON, groups=LABELS, trials=np.full(N, 5))
    assert fit.estimator_.log_likelihood_ == expected.log_likelihood_
    same(fit.posterior().mean, expected.posterior().mean)
    same(fit.predict_proba(data)[:, 1], expected.predict(X[:, None], groups=LABELS))
    same(fit.augment(data)[".resid"], WON / 5 - fit.predict_proba()[:, 1])
    other = eb.from_formula("cbind(won, lost) ~ x + (1 + x || county)", data)
    same(other.posterior().mean, expected.posterior().mean)


def test_components(data):
    given = eb.AdaMix(2, n_init=1, random_state=0)
    plain = pd.DataFrame(XZ, columns=["x", "z"])
    expected = eb.AdaMix(2, n_init=1, random_state=0).fit(plain, Y, groups=LABELS)
    fit = eb.from_formula("y ~ x + z | county", data, given)
    same(fit.posterior().mean, expected.posterior().mean)
    same(fit.tidy()["estimate"], expected.tidy()["estimate"])
    with pytest.raises(ValueError, match=r"all terms differ .* in AdaMix; write 'y ~ x \+ z \|"):
        eb.from_formula("y ~ x + z + (1 | county)", data, given)


def test_learners(data):
    given = eb.learning.FedAvg(n_rounds=3, random_state=0)
    expected = eb.learning.FedAvg(n_rounds=3, random_state=0)
    hit = np.array(COLUMNS["hit"])
    expected.fit(XZ, hit, groups=LABELS)
    fit = eb.from_formula("hit ~ x + z | county", data, given)
    same(fit.predict_proba(data), expected.predict_proba(XZ, groups=LABELS))
    same(fit.tidy()["estimate"], expected.tidy()["estimate"])
    with pytest.raises(ValueError, match="FedAvg has a constant; '0 \\+ x' takes it out"):
        eb.from_formula("hit ~ 0 + x | county", data, given)
    with pytest.raises(ValueError, match="has no term for FedAvg to learn from"):
        eb.from_formula("hit ~ 1 | county", data, given)


# --- means and rates -----------------------------------------------------------------------------


@pytest.mark.parametrize("formula", ["y | county", "y ~ 1 | county"])
def test_means(data, formula):
    fit = eb.from_formula(formula, data)
    expected = eb.GaussianEB().fit(pd.DataFrame({"y": Y}), groups=LABELS)
    assert type(fit.estimator_) is eb.GaussianEB
    same(fit.posterior().mean, expected.posterior().mean)
    same(fit.posterior().sd, expected.posterior().sd)
    same(fit.predict(data), expected.predict()[CODES])
    same(fit.tidy()["estimate"], expected.tidy()["estimate"])
    assert list(np.asarray(fit.tidy()["response"])) == ["y"] * 3
    atoms = eb.from_formula(formula, data, prior="npmle")
    again = eb.GaussianEB(prior="npmle").fit(Y, groups=LABELS)
    same(atoms.posterior().mean, again.posterior().mean)


@pytest.mark.parametrize("formula", ["hit | county", "hit ~ 1 | county", "y > 1 | county"])
def test_rates(data, formula):
    fit = eb.from_formula(formula, data, family="binomial")
    expected = eb.BernoulliEB().fit(np.array(COLUMNS["hit"]), groups=LABELS)
    assert isinstance(fit.estimator_, eb.BernoulliEB)
    same(fit.posterior().mean, expected.posterior().mean)
    assert fit.log_likelihood_ == expected.log_likelihood_


@pytest.mark.parametrize(
    "response",
    ["cbind(won, lost)", "cbind(won, trials=games)", "cbind(won, games - won)",
     "cbind(won, trials=won + lost)", "cbind(won, less(games, won))"],
)  # fmt: skip
@pytest.mark.parametrize("rest", ["| county", "~ 1 | county"])
def test_counts(data, response, rest):
    def less(a, b):
        return a - b

    fit = eb.from_formula(f"{response} {rest}", data)
    assert less(3, 2) == 1
    won = np.bincount(CODES, weights=WON)
    expected = eb.BernoulliEB().fit(eb.Summary.from_counts(won, np.full(M, 30), np.unique(LABELS)))
    same(fit.posterior().mean, expected.posterior().mean)
    assert fit.log_likelihood_ == expected.log_likelihood_
    same(fit.predict(data), expected.predict()[CODES])
    again = fit.posterior(data)
    same(again.mean, fit.posterior().mean)
    second = " of " if "trials=" in response else " and "
    assert f"Each row has won successes{second}" in str(fit.summary())


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("cbind(won, trials=lost) | county", r"exceeds its trials .* write cbind\(won, lost\)"),
        ("cbind(y, games) | county", "'y' must be counts: whole numbers, not negative"),
        ("cbind(won / 2, games) | county", "'won / 2' must be counts"),
        ("cbind(won - 5, games) | county", "'won - 5' must be counts"),
        ("cbind(kind, games) | county", "'kind' must be numbers"),
        ("cbind(absent, games) | county", "term 'absent'"),
    ],
)
def test_counts_that_are_none(data, formula, message):
    with pytest.raises(ValueError, match=message):
        eb.from_formula(formula, data)


@pytest.mark.parametrize("formula", ["y ~ u + (1 | county)", "y ~ u | county"])
def test_covariates_of_groups(data, formula):
    fit = eb.from_formula(formula, data, eb.GaussianEB())
    expected = eb.GaussianEB().fit(ROWS[["y", "county", "u"]], groups="county", covariates=["u"])
    same(fit.posterior().mean, expected.posterior().mean)
    same(fit.tidy()["estimate"], expected.tidy()["estimate"])
    new = pd.DataFrame({"u": [0.0, 2.0, 0.5], "county": ["new", "newer", "g00"]})
    a, b = expected.intercept_, expected.coef_[0]
    np.testing.assert_allclose(fit.predict(new)[:2], [a, a + 2 * b])
    np.testing.assert_allclose(fit.predict(new[["u"]]), a + b * new["u"])
    assert fit.predict(new)[2] != pytest.approx(a + b * 0.5), "g00 has rows of its own"
    np.testing.assert_allclose(fit.augment(data)[".fixed"], a + b * U[CODES])


def test_what_a_location_model_cannot_be(data):
    given = eb.GaussianEB()
    with pytest.raises(ValueError, match=r"in 'y ~ x \| county': .*'x' must be constant within"):
        eb.from_formula("y ~ x | county", data, given)
    with pytest.raises(
        ValueError, match=r"one number for a group, \(1 \| county\); got \(1 \+ u \|"
    ):
        eb.from_formula("y ~ u + (1 + u | county)", data, given)
    with pytest.raises(ValueError, match="covariates need a constant; '0 \\+ u'"):
        eb.from_formula("y ~ 0 + u | county", data, given)


def test_classes_of_consent(library):
    chosen = np.where(CODES < 10, "full", "private")
    data = FRAMES[library]({**COLUMNS, "consent": chosen.tolist()})
    channels = {"full": Exact(), "private": Laplace(1.0, (-4, 6))}
    given = eb.GaussianEB(channel=channels, random_state=0)
    fit = eb.from_formula("y | county", data, given, consent="consent")
    expected = eb.GaussianEB(channel=channels, random_state=0)
    expected.fit(Y, groups=LABELS, consent=chosen)
    same(fit.posterior().mean, expected.posterior().mean)
    same(fit.privacy_["epsilon"], expected.privacy_["epsilon"])
    with pytest.raises(ValueError, match="consent 'absent' is not a column of data"):
        eb.from_formula("y | county", data, given, consent="absent")
    with pytest.raises(ValueError, match="LinearEB has no classes of consent"):
        eb.from_formula("y ~ x | county", data, consent="consent")
    mixed = FRAMES[library]({**COLUMNS, "consent": ["full", "private"] * (N // 2)})
    with pytest.raises(ValueError, match="consent must be one class for each group; 'g00' has"):
        eb.from_formula("y | county", mixed, given, consent="consent")
    counts = eb.BernoulliEB(channel={"full": Exact(), "private": Exact()})
    rates = eb.from_formula("cbind(won, lost) | county", data, counts, consent="consent")
    same(
        rates.posterior().mean, eb.from_formula("cbind(won, lost) | county", data).posterior().mean
    )


# --- other rows ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted():
    return eb.from_formula("y ~ C(kind) + x + poly(z, 2) + (1 + x | county)", ROWS)


def test_later_rows(fitted, library):
    expected = fitted.predict()
    some = ROWS[ROWS["kind"] == "b"][::-1]
    kept = FRAMES[library](some[["z", "county", "kind", "x"]].to_dict("list"))
    np.testing.assert_allclose(fitted.predict(kept), expected[some.index], rtol=1e-12)
    lower, upper = fitted.predict_interval(kept)
    assert ((lower < upper) & (upper - lower > 1)).all()
    strangers = ROWS.assign(county="never seen")
    alone = ROWS.drop(columns="county")
    columns = pd.DataFrame(fitted.design_.of(alone), columns=fitted.design_.names)
    population = fitted.estimator_.predict(columns)
    np.testing.assert_allclose(fitted.predict(strangers), population, rtol=1e-12)
    same(fitted.predict(alone), population)
    assert not np.allclose(population, expected)
    assert set(fitted.augment(kept).columns if library != "pyarrow" else ()) <= {
        "z", "county", "kind", "x", ".fitted", ".fixed",
    }  # fmt: skip


def test_augment_keeps_the_frame(fitted):
    named = ROWS.set_index(np.arange(N)[::-1])
    shown = fitted.augment(named)
    assert shown.columns.tolist() == [*COLUMNS, ".fitted", ".fixed", ".resid"]
    pd.testing.assert_frame_equal(shown[[*COLUMNS]], named)
    same(shown[".resid"], Y - fitted.predict())
    same(shown[".fixed"], fitted.predict(ROWS.drop(columns="county")))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "q"}, r"term 'C\(kind\)'"),
        ({"x": np.nan}, "column 'x' has 3 missing values, the first in row 0; drop those"),
        ({"x": None}, "column 'x' has 3 missing values"),
        ({"x": np.inf}, "term 'x' is not finite"),
        ({"county": None}, "missing labels"),
    ],
)
def test_later_rows_that_cannot_be_read(fitted, change, message):
    with pytest.raises((ValueError, TypeError), match=message):
        fitted.predict(ROWS.head(3).assign(**change))


def test_later_rows_without_a_column(fitted):
    with pytest.raises(ValueError, match="term 'x'"):
        fitted.predict(ROWS.drop(columns="x"))


def test_a_posterior_of_rows_of_their_own(fitted):
    some = ROWS.head(12)
    same(fitted.posterior(ROWS).mean, fitted.posterior().mean)
    assert len(fitted.posterior(some)) == 2
    same(fitted.posterior(groups=["g03"]).mean[0], fitted.posterior().mean[3])


def test_names_in_backticks(library):
    odd = {"my y": "y", "the | x": "x", "a county": "county"}
    names = {new: COLUMNS[old] for new, old in odd.items()}
    data = FRAMES[library](names)
    fit = eb.from_formula("`my y` ~ `the | x` + (1 + `the | x` || `a county`)", data)
    same(fit.posterior().mean, eb.LinearEB().fit(X[:, None], Y, groups=LABELS).posterior().mean)
    assert fit.terms_ == ["intercept", "the | x"]
    same(fit.predict(data), fit.predict())


@pytest.mark.parametrize("kind", ["text", "integers", "dates"])
def test_labels_come_back_as_they_were(library, kind):
    labels = {
        "text": LABELS.tolist(),
        "integers": CODES.tolist(),
        "dates": (pd.Timestamp("2020-01-01") + pd.to_timedelta(CODES, "D"))
        .to_pydatetime()
        .tolist(),
    }[kind]
    data = FRAMES[library]({**COLUMNS, "county": labels})
    for formula in ("y ~ x | county", "y | county", "cbind(won, lost) | county"):
        fit = eb.from_formula(formula, data)
        shown = fit.coef()
        assert type(shown) is type(data)
        assert list(shown["county"]) == list(data["county"][::6]), formula
    fit = eb.from_formula("cbind(won, lost) ~ x | county", data)
    assert list(fit.coef()["county"]) == list(data["county"][::6])


# --- missing values ------------------------------------------------------------------------------


def gaps():
    rows = {name: list(values) for name, values in COLUMNS.items()}
    rows["x"][3] = rows["county"][5] = rows["kind"][7] = None
    rows["y"][4] = float("nan")
    return rows


def test_missing_values(library):
    data = FRAMES[library](gaps())
    formula = "y ~ poly(x, 2) + C(kind) + (1 | county)"
    with pytest.raises(ValueError, match=r"column '\w+' has 1 missing values, the first in row \d"):
        eb.from_formula(formula, data)
    fit = eb.from_formula(formula, data, na_action="drop")
    expected = eb.from_formula(formula, ROWS.drop(index=[3, 4, 5, 7]))
    same(fit.posterior().mean, expected.posterior().mean)
    assert "(4 rows with missing values left out)" in " ".join(str(fit.summary()).split())
    assert "left out" not in str(expected.summary())
    assert list(fit.estimator_._sizes()) == list(expected.estimator_._sizes())
    assert len(fit.predict()) == N - 4
    unused = eb.from_formula("y ~ z | county", FRAMES[library]({**COLUMNS, "x": gaps()["x"]}))
    same(unused.posterior().mean, eb.from_formula("y ~ z | county", ROWS).posterior().mean)


def test_nothing_but_missing_values():
    with pytest.raises(ValueError, match="there is no row without missing values"):
        eb.from_formula("y ~ x | county", ROWS.assign(x=np.nan), na_action="drop")


def test_a_category_that_only_dropped_rows_have():
    rows = ROWS.assign(kind=np.where(np.arange(N) == 3, "rare", KIND))
    rows.loc[3, "x"] = np.nan
    fit = eb.from_formula("y ~ x + C(kind) | county", rows, na_action="drop")
    assert fit.terms_ == ["intercept", "x", "C(kind)[T.b]", "C(kind)[T.c]"]


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("formula", "options", "message"),
    [
        ("y ~ x | absent", {}, "the group 'absent' is not a column of data, which has 'y', 'x'"),
        ("absent ~ x | county", {}, "term 'absent'"),
        ("y ~ absent | county", {}, "term 'absent'"),
        ("y ~ np.log(x) | county", {}, r"term 'np.log\(x\)'"),
        ("y ~ x + (1 + np.log(x) | county)", {}, r"term 'np.log\(x\)'"),
        (
            "y ~ 1 + (1 + z | county)",
            {"estimator": eb.MixtureLinearEB(2)},
            "term 'z' differs between groups",
        ),
        (
            "y ~ x | county",
            {"family": "beta"},
            "family must be 'gaussian', 'binomial', 'categorical'",
        ),
        ("cbind(won, lost) | county", {"family": "gaussian"}, "are of family='binomial'"),
        ("y ~ x | county", {"na_action": "ignore"}, "na_action must be 'raise', 'drop' or"),
        (
            "y ~ x | county",
            {"family": "gaussian", "estimator": eb.LinearEB()},
            "family chooses an estimator; give one of the two",
        ),
        ("y ~ 0 | county", {"estimator": eb.LinearEB()}, "no term for LinearEB to learn from"),
    ],
)
def test_refused(data, formula, options, message):
    with pytest.raises(ValueError, match=message):
        eb.from_formula(formula, data, **options)


@pytest.mark.parametrize("data", [ROWS.to_numpy(), COLUMNS, None], ids=lambda x: type(x).__name__)
def test_no_frame(data):
    with pytest.raises(TypeError, match="data must be a frame in memory"):
        eb.from_formula("y ~ x | county", data)


# --- the object ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "formula",
    [
        "y ~ np.exp(x) + poly(z, 2) + C(kind) + (1 | county)",
        "np.exp(y / 9) ~ x + (1 | county)",
        "np.exp(y / 9) | county",
        "cbind(won, trials=np.add(won, lost)) ~ x | county",
    ],
)
def test_it_survives_pickling(formula):
    fit = eb.from_formula(formula, ROWS)
    again = pickle.loads(pickle.dumps(fit))
    new = ROWS.tail(7)
    same(again.predict(new), fit.predict(new))
    assert again.score(new) == fit.score(new)
    assert repr(again) == repr(fit)
    assert str(again.summary()) == str(fit.summary())


@pytest.mark.filterwarnings("ignore::ebfed.priors.IdentificationWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("formula", "estimator"),
    [
        ("y ~ 1 + (1 | county)", eb.GaussianEB(channel=HIDDEN, variances=1.0)),
        ("y ~ x | county", eb.AdaMix(channel=HIDDEN, n_rounds=2, noise_variance=1.0)),
    ],
)
def test_a_pickle_of_a_private_fit_has_no_rows(formula, estimator):
    named = ROWS.assign(county=pd.Categorical(ROWS["county"]))
    fit = eb.from_formula(formula, named, estimator)
    content = pickle.dumps(fit)
    assert not found_in(content, ROWS[["x", "y"]].to_numpy())
    assert b"g07" not in content
    public = pickle.loads(content)
    assert "Formula:" in str(public.summary())
    assert len(public.posterior(named).mean) == named["county"].nunique()
    fit.keep_rows = True
    same(pickle.loads(pickle.dumps(fit)).predict(named), fit.predict(named))
    same(copy.deepcopy(fit).predict(), fit.predict())


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_figures_of_private_rows_are_not_published():
    estimator = eb.AdaMix(channel=HIDDEN, n_rounds=2, noise_variance=1.0)
    fit = eb.from_formula("y ~ center(x) | county", ROWS, estimator)
    with pytest.raises(ValueError, match=r"'center\(x\)' keeps figures of the rows"):
        pickle.dumps(fit)
    assert view_of(fit.estimator_.published()).is_server


def test_it_is_the_estimator_besides(fitted):
    offered = {"summary", "tidy", "ranef", "ranks", "mean_", "predict", "augment", "formula"}
    assert offered <= set(dir(fitted))
    assert rlcompleter.Completer({"fit": fitted}).complete("fit.summ", 0).startswith("fit.summary(")
    assert repr(fitted) == f"<LinearEB of {fitted.formula!r}>"
    assert fitted.notes_ is fitted.estimator_.notes_
    with pytest.raises(AttributeError, match="nonsense"):
        fitted.nonsense  # noqa: B018
    with pytest.raises(AttributeError, match="estimator_"):
        object.__new__(type(fitted)).estimator_  # noqa: B018


def test_linear_models_need_no_covariates():
    """The model of means, by its own estimator and by that of coefficients: REML of both."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"g": np.repeat(np.arange(20), 4)})
    rows["y"] = 3 + rng.normal(size=20)[rows["g"]] + rng.normal(size=80)
    means = eb.from_formula("y ~ 1 + (1 | g)", rows)
    fit = eb.from_formula("y ~ 1 + (1 | g)", rows, eb.LinearEB())
    assert isinstance(fit.estimator_, eb.LinearEB)
    np.testing.assert_allclose(fit.predict(rows.head(8)), means.predict(rows.head(8)), rtol=1e-5)
    assert fit.tests()["df"][0] == pytest.approx(19, rel=1e-4)


EMPTY = {
    "y ~ kind + (1 | g)": {},
    "y ~ x + (1 | g) + (1 | kind)": {},
    "won ~ x + (1 | g)": {"family": "binomial"},
    "grade ~ x + (1 | g)": {"family": "ordinal"},
}


@pytest.mark.parametrize("formula", EMPTY)
def test_frames_without_rows_have_no_predictions(formula):
    rng = np.random.default_rng(3)
    rows = pd.DataFrame(rng.normal(size=(90, 2)), columns=["y", "x"])
    rows = rows.assign(g=np.arange(90) % 9, kind=rng.choice(list("abc"), 90))
    grades = pd.cut(rows["y"] + rows["x"], [-9, -0.5, 0.5, 9], labels=["low", "fair", "high"])
    rows = rows.assign(won=rng.random(90) < 0.5, grade=grades)
    fit = eb.from_formula(formula, rows, **EMPTY[formula])
    none = rows[:0]
    assert fit.predict(none).shape == (0,)
    assert [each.shape for each in fit.predict_interval(none)] == [(0,), (0,)]
    assert len(fit.augment(none)) == 0
    if EMPTY[formula]:
        assert fit.predict_proba(none).shape == (0, len(fit.classes_))
        assert fit.predict_proba(rows).shape == (90, len(fit.classes_))
    with pytest.raises(ValueError, match="data has no rows"):
        eb.from_formula(formula, none, **EMPTY[formula])


def test_a_query_does_not_leave_out_an_offset():
    data = pd.DataFrame(COLUMNS)
    with pytest.raises(ValueError, match="LinearEB has no SQL where rows have an offset"):
        eb.from_formula("y ~ x + offset(z) + (1 | county)", data).to_sql()
    counted = eb.from_formula("won ~ 1 + offset(log(games)) | county", data, family="poisson")
    assert '"games"' in counted.to_sql(size="games")
