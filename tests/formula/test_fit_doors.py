"""A formula and arrays of the same rows are one model: the estimator and every number are equal."""

import numpy as np
import pandas as pd
import pytest

import ebfed as eb

RNG = np.random.default_rng(1)
G = np.repeat(np.arange(30), 8)
N = len(G)
X, Z, U = RNG.normal(size=N), RNG.normal(size=N), RNG.normal(size=30)
LEVEL, SLOPE = RNG.normal(0, 0.7, 30)[G], RNG.normal(0, 0.3, 30)[G]
Y = 1 + LEVEL + (0.5 + SLOPE) * X + RNG.normal(size=N)
WON = RNG.binomial(1, 1 / (1 + np.exp(-LEVEL - 0.5 * X)))
N_EVENTS = RNG.poisson(np.exp(0.3 + LEVEL + 0.3 * X))
TIME, TRIALS, WEIGHT = RNG.uniform(0.5, 2, N), RNG.integers(1, 9, N), RNG.uniform(0.5, 2, N)
HITS = RNG.binomial(TRIALS, 1 / (1 + np.exp(-LEVEL)))
KIND, SEX = RNG.choice(list("abc"), N), RNG.choice(["m", "f"], N)
ABOVE, OTHER = G // 6, RNG.integers(0, 6, N)
ROWS = pd.DataFrame({"g": G, "x": X, "z": Z, "u": U[G], "y": Y, "won": WON, "n": N_EVENTS})
ROWS = ROWS.assign(t=TIME, trials=TRIALS, w=WEIGHT, hits=HITS, kind=KIND, sex=SEX, s=ABOVE, h=OTHER)
NONE, ONE, BOTH = ROWS[[]], X[:, None], pd.DataFrame({"x": X, "z": Z})
DUMMIES = np.column_stack([X, KIND == "b", KIND == "c"]).astype(float)
TOTALS = eb.Summary.from_counts(*(np.bincount(G, x).astype(int) for x in (HITS, TRIALS)))
COUNT = {"family": "poisson"}
SAME = ["intercept"]

CASES = {
    "y ~ x + z + (1 | g)": ({}, eb.LinearEB(varying=SAME), BOTH, Y, {}),
    "y ~ x + z + (1 + x | g)": (
        {},
        eb.LinearEB(varying=["intercept", "x"], covariance="full"),
        BOTH,
        Y,
        {},
    ),
    "y ~ x + (1 + x || g)": ({}, eb.LinearEB(), ONE, Y, {}),
    "y ~ 0 + x + (0 + x | g)": ({}, eb.LinearEB(fit_intercept=False), ONE, Y, {}),
    "y ~ x + kind + (1 | g)": (
        {"weights": "w"},
        eb.LinearEB(varying=SAME),
        DUMMIES,
        Y,
        {"sample_weight": WEIGHT},
    ),
    "y ~ x + z + (1 | g) ": (
        {"dispersion": "~ sex"},
        eb.LinearEB(varying=SAME),
        BOTH,
        Y,
        {"dispersion": SEX},
    ),
    "y ~ x + (1 | s/g)": (
        {},
        eb.LinearEB(varying={"s": SAME, "g": SAME}),
        BOTH[["x"]],
        Y,
        {"groups": ROWS[["s", "g"]]},
    ),
    "y ~ x + (1 | g) + (1 | h)": ({}, eb.CrossedEB(), ONE, Y, {"groups": ROWS[["g", "h"]]}),
    "y ~ 1 + (1 | g)": ({}, eb.LinearEB(), NONE, Y, {}),
    "y | g": ({"weights": "w"}, eb.GaussianEB(), Y, None, {"sample_weight": WEIGHT}),
    "y ~ 1 + (1 | s/g)": ({}, eb.LinearEB(), NONE, Y, {"groups": ROWS[["s", "g"]]}),
    "won ~ 1 + (1 | g)": ({"family": "binomial"}, eb.LogisticEB(), NONE, WON, {}),
    "n ~ 1 + (1 | g)": (COUNT, eb.GeneralizedEB("poisson"), NONE, N_EVENTS, {}),
    "y  ~ 1 + (1 | g)": ({"prior": "npmle"}, eb.GaussianEB(prior="npmle"), Y, None, {}),
    "y ~ u + (1 | g)": (
        {"estimator": eb.GaussianEB()},
        eb.GaussianEB(),
        Y,
        None,
        {"covariates": U[:, None]},
    ),
    " y | g": ({"family": "variance"}, eb.VarianceEB(), Y, None, {}),
    "kind | g": ({"family": "categorical"}, eb.CategoricalEB(), KIND, None, {}),
    "won | g": ({"family": "binomial"}, eb.BernoulliEB(), WON, None, {}),
    "cbind(hits, trials=trials) | g": ({}, eb.BernoulliEB(), TOTALS, None, {"groups": None}),
    "won ~ x + (1 | g)": ({"family": "binomial"}, eb.LogisticEB(varying=SAME), ONE, WON, {}),
    "cbind(hits, trials=trials) ~ x + (1 | g)": (
        {"estimator": eb.GeneralizedEB("binomial")},
        eb.GeneralizedEB("binomial", varying=SAME),
        ONE,
        HITS,
        {"trials": TRIALS},
    ),
    "n ~ x + offset(np.log(t)) + (1 | g)": (
        COUNT,
        eb.GeneralizedEB("poisson", varying=SAME),
        ONE,
        N_EVENTS,
        {"offset": np.log(TIME)},
    ),
    "n ~ 1 + offset(np.log(t)) + (1 | g)": (
        COUNT | {"prior": "gamma"},
        eb.PoissonEB(),
        N_EVENTS,
        None,
        {"exposure": TIME},
    ),
    "n | g": (
        COUNT | {"weights": "trials"},
        eb.PoissonEB(),
        N_EVENTS,
        None,
        {"sample_weight": TRIALS},
    ),
    "n ~ x + (1 | g)": (
        {"family": "negative_binomial"},
        eb.GeneralizedEB("negative_binomial", varying=SAME),
        ONE,
        N_EVENTS,
        {},
    ),
}


@pytest.mark.parametrize("formula", CASES)
def test_a_formula_is_the_model_of_its_columns(formula):
    settings, estimator, X, y, options = CASES[formula]
    fit = eb.from_formula(formula, ROWS, **settings)
    options = {"groups": G} | options
    given = [] if y is None else [y]
    direct = estimator.fit(X, *given, **{k: v for k, v in options.items() if v is not None})
    assert type(fit.estimator_) is type(direct)
    for table in ("tidy", "glance"):
        one, other = (
            getattr(each, table)().select_dtypes(float).to_numpy() for each in (fit, direct)
        )
        # the same sums; exposures are exponentials of logarithms
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12, err_msg=table)


def told(fit, rows):
    """What a fit says that does not depend on where x is zero, by name."""
    kept = ~fit.tidy()["term"].str.contains("intercept|[|]")
    influence, numbers = fit.influence(), {"log-likelihood": [fit.glance()["logLik"].iloc[0]]}
    numbers["tests"] = fit.tests().set_index("term").loc[["x", "z"]].drop(columns="p.value")
    numbers["intervals"] = fit.tidy(conf_int=True)[kept][["estimate", "conf.low", "conf.high"]]
    numbers["predictions"], numbers["residuals"] = fit.predict(rows), fit.residuals()
    for name in ("cooksd", "dfbeta.x", "dfbeta.z"):
        numbers[name] = influence[name]
    numbers["slopes"] = fit.margins(slope="x").frame().select_dtypes("number")
    numbers["intervals of means"] = np.array(fit.predict_interval(rows, kind="mean"))
    return {name: np.asarray(each, float) for name, each in numbers.items()}


@pytest.mark.parametrize("family", ["gaussian", "poisson"])
@pytest.mark.parametrize(
    "form",
    [
        "x + z + (1 | g)",
        "x + z + (1 + x | g)",
        "x + z + (1 + x | s/g)",
        "x + z + (1 + x | g) + (1 | h)",
    ],
)
def test_nothing_depends_on_where_a_covariate_is_zero(form, family):
    """Years are 300 of their standard deviations from zero: 1e-4 is what rounding leaves."""
    y = "y" if family == "gaussian" else "n"
    shown = ROWS.assign(x=X - X.mean())
    near = told(eb.from_formula(f"{y} ~ {form}", shown, family=family), shown)
    years = shown.assign(x=shown["x"] + 300)
    far = told(eb.from_formula(f"{y} ~ {form}", years, family=family), years)
    for name, expected in near.items():
        scale = np.nanmax(np.abs(expected))
        np.testing.assert_allclose(far[name], expected, rtol=1e-3, atol=1e-4 * scale, err_msg=name)


@pytest.mark.parametrize("form", ["(1 + x | g)", "(1 + x | s/g)", "(1 + x | g) + (1 | h)"])
@pytest.mark.parametrize("family", ["gaussian", "poisson"])
def test_notes_do_not_depend_on_where_a_covariate_is_zero(form, family):
    """At 10,000 of its standard deviations, the covariance with slopes was called singular."""
    rng = np.random.default_rng(4)
    slope = (rng.normal(size=30) * 0.8)[G]
    mean = 1 + LEVEL + (0.3 + slope) * X
    noisy = mean + 0.3 * rng.normal(size=N)
    shown = ROWS.assign(y=noisy if family == "gaussian" else rng.poisson(np.exp(mean)))
    near, far = (
        eb.from_formula(f"y ~ x + {form}", shown.assign(x=X - X.mean() + at), family=family)
        for at in (0.0, 1e4)
    )
    assert far.estimator_.notes_ == near.estimator_.notes_
