"""Coefficients of fitted regressions, on the firms of Grunfeld and on simulated ones."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from sklearn.linear_model import LinearRegression

import ebfed as eb
from ebfed.location.shrinkage import _Coefficient
from ebfed.priors import Normal

# of the pandas of today, in pyfixest's own code
PYFIXEST = pytest.mark.filterwarnings("ignore:The inplace keyword")

# what solving one regression in two ways leaves of 16 digits
SOLVED = 1e-7

ROWS = sm.datasets.grunfeld.load_pandas().data
FIRMS = sorted(ROWS["firm"].unique())
TREATMENT = "invest ~ C(firm) + value + capital"
FULL = "invest ~ 0 + C(firm) + value + capital"


def ols(formula, rows=ROWS, **options):
    return sm.OLS.from_formula(formula, rows).fit(**options)


def columns_equal(ours, theirs, rtol=SOLVED):
    pd.testing.assert_frame_equal(ours, theirs, rtol=rtol, check_names=False)


# --- statsmodels ---------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"cov_type": "HC3"}], ids=["plain", "robust"])
def test_a_regression_is_its_coefficients_and_their_covariance(options):
    fit = ols(FULL, **options)
    names = [f"C(firm)[{firm}]" for firm in FIRMS]
    posterior = eb.posterior_from(fit, terms="C(firm)")
    expected = eb.posterior_from(
        fit.params[names].to_numpy(), fit.cov_params().loc[names, names].to_numpy(), labels=FIRMS
    )
    out = posterior.to_frame()
    assert out["firm"].tolist() == FIRMS
    columns_equal(out.drop(columns="firm"), expected.to_frame().drop(columns="group"))
    np.testing.assert_allclose(out["std_error"], fit.bse[names])
    for terms in ("firm", names, r"C\(firm\).*"):
        np.testing.assert_array_equal(eb.posterior_from(fit, terms=terms).mean, posterior.mean)


def test_clustered_errors_are_taken_as_they_are():
    fit = ols(FULL, cov_type="cluster", cov_kwds={"groups": ROWS["year"].astype(int)})
    posterior = eb.posterior_from(fit, terms="firm")
    np.testing.assert_allclose(posterior.to_frame()["std_error"], fit.bse[: len(FIRMS)])
    assert not np.allclose(posterior.sd, eb.posterior_from(ols(FULL), terms="firm").sd)


def test_models_without_formulas_have_names_too():
    exog = np.column_stack([np.eye(11)[pd.factorize(ROWS["firm"])[0]], ROWS["value"]])
    fit = sm.OLS(ROWS["invest"].to_numpy(), exog).fit()
    out = eb.posterior_from(fit, terms=[f"x{j}" for j in range(1, 12)]).to_frame()
    assert out["term"].tolist() == [f"x{j}" for j in range(1, 12)]
    expected = eb.posterior_from(ols("invest ~ 0 + C(firm) + value"), terms="firm").to_frame()
    ours = out.set_index(pd.Index(pd.unique(ROWS["firm"])))["estimate"]
    np.testing.assert_allclose(ours[expected["firm"]], expected["estimate"], rtol=SOLVED)


def test_generalised_models_are_regressions():
    rows = ROWS.assign(high=(ROWS["invest"] > ROWS["invest"].median()).astype(float))
    fit = sm.GLM.from_formula("high ~ 0 + C(year)", rows, family=sm.families.Binomial()).fit()
    out = eb.posterior_from(fit).to_frame()
    assert out["year"].tolist()[:2] == ["1935.0", "1936.0"]
    spread = out["local"].std()
    assert out["estimate"].std() < spread


def test_slopes_of_a_factor_are_a_term():
    fit = ols("invest ~ C(firm) + value:C(firm)")
    out = eb.posterior_from(fit, terms="value:C(firm)").to_frame()
    assert out["firm"].tolist() == FIRMS
    np.testing.assert_array_equal(out["local"], fit.params.filter(like="value:"))
    effects = eb.posterior_from(fit, terms="C(firm)").to_frame()
    assert effects["firm"].tolist() == FIRMS[1:]


def test_without_terms_all_are_of_one_factor():
    fit = ols("invest ~ C(firm)")
    columns_equal(
        eb.posterior_from(fit).to_frame(), eb.posterior_from(fit, terms="firm").to_frame()
    )
    with pytest.raises(ValueError, match=r"terms must say .* 'C\(firm\)\[T.Atlantic Refining\]'"):
        eb.posterior_from(ols(TREATMENT))
    with pytest.raises(ValueError, match=r"terms must say .* one factor: 'value', 'capital'"):
        eb.posterior_from(ols("invest ~ value + capital"))


def test_populations_and_priors_serve_coefficients():
    fit = ols(FULL)
    capital = ROWS.groupby("firm")["capital"].mean()
    posterior = eb.posterior_from(fit, terms="firm", mean=capital)
    assert posterior.prior.coefficients_.shape == (2, 1)
    other = eb.posterior_from(fit, prior="npmle", terms="firm")
    assert "Of the covariance, only the diagonal was used." in other.prior.notes_
    assert eb.posterior_from(fit, terms="firm", labels=range(11)).to_frame()["group"].tolist() == [
        *range(11)
    ]


# --- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("C(school)[T.a]", ("C(school)", "school", "T.a")),
        ("C(school)[a b]", ("C(school)", "school", "a b")),
        ("school[T.a]", ("school", "school", "T.a")),
        ("C(school, Sum)[S.a]", ("C(school, Sum)", "school", "S.a")),
        (
            "C(school, Treatment(reference='b'))[T.a]",
            ("C(school, Treatment(reference='b'))", "school", "T.a"),
        ),
        ("C(Q('my school'))[T.a]", ("C(Q('my school'))", "my school", "T.a")),
        ("x:C(school)[a]", ("x:C(school)", "school", "a")),
        ("C(school)[T.a]:x", ("C(school):x", "school", "T.a")),
        ("C(day)[T.2020-01-01 00:00:00]", ("C(day)", "day", "T.2020-01-01 00:00:00")),
        ("C(school)[[1, 2]]", ("C(school)", "school", "[1, 2]")),
        ("school::a", ("school", "school", "a")),
        ("school::a:x", ("school:x", "school", "a")),
        ("year::1936.0", ("year", "year", "1936.0")),
        ("x", None),
        ("x:z", None),
        ("Intercept", None),
        ("C(a)[T.x]:C(b)[T.y]", None),
    ],
)
def test_names_of_coefficients(name, expected):
    assert _Coefficient.read(name) == expected


@pytest.mark.parametrize(
    ("code", "firms"),
    [
        ("C(firm, Treatment(reference='IBM'))", [firm for firm in FIRMS if firm != "IBM"]),
        ("firm", FIRMS[1:]),
        ("C(Q('firm'))", FIRMS[1:]),
    ],
)
def test_levels_label_however_they_are_coded(code, firms):
    fit = ols(f"invest ~ value + {code}")
    for terms in (code, "firm", "C(firm)"):
        assert eb.posterior_from(fit, terms=terms).to_frame()["firm"].tolist() == firms


@pytest.mark.parametrize("code", ["Sum", "Diff", "Helmert", "Poly", "contrast=Sum"])
@pytest.mark.parametrize("constant", ["", "0 + "])
def test_contrasts_that_are_no_draws_are_refused(code, constant):
    fit = ols(f"invest ~ {constant}C(firm, {code}) + value")
    names = [name for name in fit.params.index if "firm" in name]
    for terms in (names, r"C\(firm.*") if code == "Poly" else (names, "firm"):
        with pytest.raises(ValueError, match=r"a contrast .* Code every level, as in '0 \+ C\("):
            eb.posterior_from(fit, terms=terms)


@pytest.mark.parametrize("code", ["sum", "diff", "helmert", "poly"])
def test_contrasts_of_formulaic_are_refused(code):
    formulaic = pytest.importorskip("formulaic")
    columns = formulaic.model_matrix(f"C(firm, contr.{code})", ROWS).columns
    n = len(columns)
    results = Results(pd.Series(np.arange(n, dtype=float), columns), np.eye(n))
    with pytest.raises(ValueError, match="a contrast whose coefficients are no draws"):
        eb.posterior_from(results, terms=list(columns[1:]))
    full = formulaic.model_matrix(f"0 + C(firm, contr.{code})", ROWS).columns
    results = Results(pd.Series(np.arange(n, dtype=float), full), np.eye(n))
    assert eb.posterior_from(results, terms="firm").to_frame()["firm"].tolist() == FIRMS


def test_contrasts_of_the_column_itself_are_refused():
    for prefix in "SDH":
        names = [f"firm[{prefix}.{firm}]" for firm in FIRMS]
        results = Results(pd.Series(np.arange(len(names)) + 0.0, names), np.eye(len(names)))
        with pytest.raises(ValueError, match="a contrast whose coefficients are no draws"):
            eb.posterior_from(results, terms="firm")


def test_levels_named_like_contrasts_are_levels():
    rows = ROWS.assign(firm=ROWS["firm"].replace({FIRMS[0]: "S. Steel", FIRMS[1]: "Sum"}))
    for code in ("C(firm)", "C(firm, Treatment('Sum'))"):
        fit = ols(f"invest ~ 0 + value + {code}", rows)
        assert "S. Steel" in eb.posterior_from(fit, terms="firm").to_frame()["firm"].tolist()


# --- reference levels ----------------------------------------------------------------------------


def contrasts(posterior, level):
    """Differences to one level of all others: their means and covariance."""
    others = np.delete(np.arange(len(posterior)), level)
    C = np.eye(len(posterior))[others]
    C[:, level] -= 1
    return C @ posterior.mean[:, 0], C @ posterior.covariance @ C.T


@pytest.mark.parametrize("reference", ["IBM", "US Steel"])
def test_a_reference_level_has_a_mean_of_its_own(reference):
    """Treatment coding is full coding whose reference level is not of the population.

    Differences to it are the same, though not where it is itself: of that only full coding knows.
    """
    code = f"C(firm, Treatment(reference={reference!r}))"
    coded = ols(f"invest ~ {code} + value + capital")
    own = np.array([firm == reference for firm in FIRMS], float)
    ours = eb.posterior_from(coded, terms="firm")
    full = eb.posterior_from(ols(FULL), terms="firm", mean=own)
    np.testing.assert_allclose(ours.prior.variance_, full.prior.variance_, rtol=SOLVED)
    mean, _ = contrasts(full, FIRMS.index(reference))
    np.testing.assert_allclose(ours.mean[:, 0], mean, rtol=1e-6)
    # and intervals, but for what not knowing the variance adds: its error counts one level more
    known = Normal(variance=full.prior.variance_)
    ours = eb.posterior_from(coded, prior=known, terms="firm")
    full = eb.posterior_from(ols(FULL), prior=known, terms="firm", mean=own)
    mean, covariance = contrasts(full, FIRMS.index(reference))
    np.testing.assert_allclose(ours.mean[:, 0], mean, rtol=1e-6)
    np.testing.assert_allclose(ours.covariance, covariance, rtol=1e-6)


def test_the_reference_level_alone_tells_codings_apart():
    """Balanced, no regressors: levels shrink to their mean, with or without the reference in it."""
    full, coded = ols("invest ~ 0 + C(firm)"), ols("invest ~ C(firm)")
    noise = full.scale / 20
    raw = full.params.to_numpy()
    known = Normal(variance=2 * noise)
    ours = eb.posterior_from(coded, prior=known).mean[:, 0]
    theirs = eb.posterior_from(full, prior=known).mean[:, 0]
    np.testing.assert_allclose(ours[1:] - ours[0], theirs[2:] - theirs[1], rtol=SOLVED)
    np.testing.assert_allclose(ours.mean(), (raw[1:] - raw[0]).mean(), rtol=SOLVED)
    a = 2 / 3
    np.testing.assert_allclose(theirs[1:] - theirs[0], a * (raw[1:] - raw[0]), rtol=SOLVED)
    # and the variances are those of eleven and of ten means, less the noise
    for fit, means in ((full, raw), (coded, raw[1:])):
        fitted = eb.posterior_from(fit).prior.variance_[0]
        assert fitted == pytest.approx(np.var(means, ddof=1) - noise, rel=SOLVED)


def test_full_coding_does_not_depend_on_the_intercept_s_place():
    """Shifts that all effects share leave their differences: x measured from elsewhere."""
    moved = ROWS.assign(value=ROWS["value"] + 500)
    first = eb.posterior_from(ols(FULL), terms="firm")
    second = eb.posterior_from(ols(FULL, moved), terms="firm")
    np.testing.assert_allclose(second.prior.variance_, first.prior.variance_, rtol=1e-6)
    np.testing.assert_allclose(np.diff(second.mean[:, 0]), np.diff(first.mean[:, 0]), rtol=1e-5)


# --- beside the estimators -----------------------------------------------------------------------


def test_dummies_of_a_one_way_layout_are_the_groups_of_gaussian_eb():
    """With the same noise: means, errors and population are equal, whatever the sizes of groups."""
    rows = ROWS.sample(150, random_state=0)
    fit = ols("invest ~ 0 + C(firm)", rows)
    groups = eb.GaussianEB(variances=fit.scale).fit(rows["invest"], groups=rows["firm"])
    posterior = eb.posterior_from(fit)
    np.testing.assert_allclose(posterior.prior.variance_, groups.prior_.variance_, rtol=SOLVED)
    expected = groups.posterior().to_frame()
    ours = posterior.to_frame()
    assert ours["firm"].tolist() == expected["firm"].tolist()
    columns = ["local", "estimate", "sd", "lower", "upper", "weight"]
    columns_equal(ours[columns], expected[columns])
    # the pooled variance within groups is what OLS takes for the noise
    within = rows["invest"] - rows.groupby("firm")["invest"].transform("mean")
    assert fit.scale == pytest.approx((within**2).sum() / (150 - 11))


def test_random_intercepts_of_a_mixed_model_are_near():
    """LinearEB fits noise, slopes and spread together; here noise and slopes are those of OLS.

    With twenty rows for each firm, that moves no effect by a thousandth of its error.
    """
    mixed = eb.LinearEB(varying=["intercept"]).fit(
        ROWS[["firm", "value", "capital", "invest"]], "invest", groups="firm"
    )
    fit = ols(FULL)
    ours = eb.posterior_from(fit, terms="firm").mean[:, 0]
    theirs = mixed.posterior().mean[:, 0]
    gap = np.abs((ours - ours.mean()) - (theirs - theirs.mean()))
    assert (gap < 1e-3 * fit.bse.to_numpy()[:11]).all()


# --- other libraries -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("formula", "terms", "same"),
    [
        (TREATMENT, "C(firm)", TREATMENT),
        (FULL, "firm", FULL),
        ("invest ~ i(firm) + value + capital", "firm", TREATMENT),
        ("invest ~ i(firm, ref='General Motors') + value + capital", "firm", None),
    ],
)
@PYFIXEST
def test_pyfixest(formula, terms, same):
    pyfixest = pytest.importorskip("pyfixest")
    fit = pyfixest.feols(formula, ROWS)
    posterior = eb.posterior_from(fit, terms=terms)
    code = "C(firm, Treatment(reference='General Motors'))"
    expected = ols(same or f"invest ~ {code} + value + capital")
    columns_equal(
        posterior.to_frame(), eb.posterior_from(expected, terms="firm").to_frame(), rtol=1e-5
    )
    robust = pyfixest.feols(formula, ROWS, vcov="hetero")
    out = eb.posterior_from(robust, terms=terms).to_frame()
    picked = robust.coef().index.str.contains("firm")
    np.testing.assert_allclose(out["std_error"], robust.se()[picked])


@PYFIXEST
def test_pyfixest_slopes_and_absorbed_factors():
    pyfixest = pytest.importorskip("pyfixest")
    fit = pyfixest.feols("invest ~ i(firm, value) + capital", ROWS)
    out = eb.posterior_from(fit, terms="firm:value").to_frame()
    assert out["firm"].tolist() == FIRMS
    fit = pyfixest.feols("invest ~ value + capital | firm + year", ROWS)
    for terms in ("firm", "C(year)"):
        with pytest.raises(ValueError, match=r"was absorbed, .* fit it as 'y ~ x \+ C\("):
            eb.posterior_from(fit, terms=terms)
    with pytest.raises(TypeError, match="estimates must be numbers, or a fitted regression"):
        eb.posterior_from(pyfixest.feols("invest + value ~ sw(capital, firm)", ROWS))


def test_linearmodels():
    linearmodels = pytest.importorskip("linearmodels.iv")
    fit = linearmodels.IV2SLS.from_formula(FULL, ROWS).fit(cov_type="unadjusted", debiased=True)
    expected = eb.posterior_from(ols(FULL), terms="firm").to_frame()
    columns_equal(eb.posterior_from(fit, terms="firm").to_frame(), expected)
    robust = linearmodels.IV2SLS.from_formula(TREATMENT, ROWS).fit(cov_type="robust")
    out = eb.posterior_from(robust, terms="C(firm)").to_frame()
    np.testing.assert_allclose(out["std_error"], robust.std_errors.filter(like="firm"))


# --- errors --------------------------------------------------------------------------------------


class Results:
    """What a regression has to have."""

    def __init__(self, params, cov):
        self.params, self.cov = params, cov


NAMES = ["const", "a", "b"]


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ("county", r"terms='county' matches no coefficient; the regression has 'Intercept', .* …"),
        ("C(fir", r"terms='C\(fir' matches no coefficient"),
        (["value", "wealth"], "terms='wealth' matches no coefficient"),
        ([], r"terms=\[\] matches no coefficient"),
        (["value"], "terms picks one coefficient, 'value'"),
        ("value", "terms picks one coefficient, 'value'"),
        (["value", "capital", "value"], "terms must all be different; 'value' is there twice"),
    ],
)
def test_terms_that_are_refused(terms, message):
    with pytest.raises(ValueError, match=message):
        eb.posterior_from(ols(TREATMENT), terms=terms)


@pytest.mark.parametrize(
    ("params", "covariance", "message"),
    [
        ([0.0, 1.0, np.nan], np.eye(3), "no estimate of 'b'"),
        ([0.0, 1.0, 2.0], np.diag([1.0, np.nan, np.nan]), "no estimate of 'a', 'b'"),
        ([0.0, 1.0, 2.0], np.diag([1.0, 1.0, 1e308]), "diagonal must lie between"),
        ([0.0, 1.0, 1e308], np.eye(3), "must stay below"),
        ([0.0, 1.0, 2.0], np.ones((3, 3)), "not positive definite"),
        ([0.0, 1.0, 2.0], np.diag([1.0, 1e-30, 1e-30]), "zero up to rounding"),
        ([0.0, 1.0, 2.0], np.eye(3) + np.triu(np.ones((3, 3)), 1) / 9, "not symmetric"),
    ],
)
def test_coefficients_that_are_refused(params, covariance, message):
    results = Results(pd.Series(params, NAMES), covariance)
    with pytest.raises(ValueError, match=message):
        eb.posterior_from(results, terms=["a", "b"])


@pytest.mark.filterwarnings("ignore:The design matrix is rank-deficient")
def test_collinear_columns_are_no_population():
    rows = ROWS.assign(twice=2 * ROWS["value"])
    with pytest.raises(ValueError, match="not positive definite"):
        eb.posterior_from(ols("invest ~ value + twice", rows), terms=["value", "twice"])


def test_results_that_are_none():
    fit = LinearRegression().fit(ROWS[["value"]], ROWS["invest"])
    for results in (fit, sm.OLS(ROWS["invest"], ROWS[["value"]]), object()):
        with pytest.raises(TypeError, match="or a fitted regression with a covariance"):
            eb.posterior_from(results, terms="value")
    with pytest.raises(TypeError, match="must be one-dimensional and have names"):
        eb.posterior_from(Results(np.zeros(3), np.eye(3)), terms=["a", "b"])
    with pytest.raises(TypeError, match=r"has shape \(2, 2\) for 3 coefficients"):
        eb.posterior_from(Results(pd.Series(0.0, NAMES), np.eye(2)), terms=["a", "b"])
    twins = Results(pd.Series([1.0, 2.0, 3.0], ["a", "a", "b"]), np.eye(3))
    with pytest.raises(ValueError, match="the regression has 2 coefficients 'a'"):
        eb.posterior_from(twins, terms=["a", "b"])
    with pytest.raises(ValueError, match="std_errors must be left out"):
        eb.posterior_from(ols(TREATMENT), [1.0], terms="firm")
    series = pd.Series([1.0, 2.0], ["params", "cov"])  # attributes are no results
    assert eb.posterior_from(series, [1.0, 1.0]).to_frame()["term"].tolist() == ["params", "cov"]


# --- simulation ----------------------------------------------------------------------------------


@pytest.mark.parametrize("coding", ["full", "reference"])
def test_shrunken_effects_have_less_risk_and_intervals_hold(coding):
    """200 regressions with 20 unequal groups and a regressor that differs between these.

    The gain in risk, and the share covered, are averages over independent regressions; a true value
    is 5 of their standard errors away once in 10**6 runs. Intervals are right to second order; of
    20 groups the variance is estimated as zero now and then, for which 2.5 points are granted.
    """
    rng = np.random.default_rng(5)
    n = rng.integers(3, 12, 20)
    codes = np.repeat(np.arange(20), n)
    place = rng.normal(0, 1, 20)
    x = place[codes] + rng.standard_normal(len(codes))
    A = np.column_stack([np.eye(20)[codes], x])
    if coding == "reference":
        A[:, 0] = 1
    inverse = np.linalg.inv(A.T @ A)
    gains, covered = [], []
    for _ in range(200):
        alpha = rng.normal(2, 0.7, 20)
        y = alpha[codes] + 0.5 * x + rng.normal(0, 1.5, len(codes))
        raw = inverse @ A.T @ y
        noise = np.sum((y - A @ raw) ** 2) / (len(y) - 21)
        theta, first = (alpha, 0) if coding == "full" else (alpha[1:] - alpha[0], 1)
        posterior = eb.posterior_from(raw[first:20], noise * inverse[first:20, first:20])
        gains.append(np.mean((raw[first:20] - theta) ** 2 - (posterior.mean[:, 0] - theta) ** 2))
        lower, upper = (bound[:, 0] for bound in posterior.interval(0.95))
        covered.append(np.mean((lower <= theta) & (theta <= upper)))
    error = np.std(gains) / np.sqrt(200)
    assert np.mean(gains) > 5 * error
    assert abs(np.mean(covered) - 0.95) < 5 * np.std(covered) / np.sqrt(200) + 0.025
