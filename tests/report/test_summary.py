"""Summaries, in a terminal and in a notebook, and the columns of tables."""

import inspect
import re
import warnings
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import ebfed as eb
from ebfed.channels import Exact, Gaussian, Laplace
from ebfed.location.base import LocationEstimator
from ebfed.models import Linear
from ebfed.priors import Normal
from ebfed.privacy.ledger import NO_PROMISE
from ebfed.report.effects import GroupEffects
from ebfed.report.summary import Text
from ebfed.report.tidying import p_values

RNG = np.random.default_rng(0)
GROUPS = np.repeat(np.arange(60), 5)
TRUTH = np.where(np.arange(60) % 3, 0, RNG.normal(0, 3, 60))
X = TRUTH[GROUPS] + RNG.normal(size=300)


@pytest.mark.parametrize(
    ("prior", "terms"),
    [
        ("point_normal", ["pi0", "scale"]),
        ("point_laplace", ["pi0", "scale"]),
        ("laplace", ["scale"]),
        ("scale_mixture", ["pi0"]),
        ("log_spline", ["df"]),
        ("npmle", []),
    ],
)
def test_shapes_of_populations(prior, terms):
    est = eb.GaussianEB(prior=prior).fit(X, groups=GROUPS)
    tidy = est.tidy().set_index("term")["estimate"]
    assert tidy.index.tolist() == ["mean", "sd__mean", "sd__Observation", *terms]
    if "scale" in terms:
        assert tidy["scale"] == est.prior_.scale_
    if "pi0" in terms:
        assert 0.4 < tidy["pi0"] < 0.8
    lines = str(est.summary()).splitlines()
    assert all(any(line.startswith(term) for line in lines) for term in terms)
    counted = {"scale_mixture": "Components: ", "npmle": "Atoms: "}
    if prior in counted:
        number = f"{counted[prior]}{len(est.prior_.weights_)};"
        assert any(line.startswith(number) for line in lines)


def test_numbers_of_parameters():
    """Equal columns have noise variances of their own, though these are equal."""
    for columns, prior, expected in [
        (X[:, None], Normal(), 3),
        (np.column_stack([X, X]), Normal(), 6),
        (np.column_stack([X, X]), Normal(covariance="spherical"), 4),
        (np.column_stack([X, 2 * X]), Normal(covariance="spherical"), 4),
        (np.column_stack([X, X]), Normal(variance=1.0), 4),
    ]:
        assert eb.GaussianEB(prior=prior).fit(columns, groups=GROUPS).n_parameters_ == expected
    known = eb.GaussianEB(1.0, prior=Normal()).fit(np.column_stack([X, X]), groups=GROUPS)
    assert known.n_parameters_ == 4


# --- every estimator -----------------------------------------------------------------------------

SOME = {"n_rounds": 2, "learning_rate": 0.2, "random_state": 0}
LOUD = {"privacy": eb.ClientPrivacy(noise_multiplier=4.0)}
STEP = SOME | {"sample_rate": 0.5}
ESTIMATORS = {
    "GaussianEB": eb.GaussianEB(),
    "BernoulliEB": eb.BernoulliEB(),
    "PoissonEB": eb.PoissonEB(),
    "MixtureEB": eb.MixtureEB(2, random_state=0),
    "OptOutMean": eb.OptOutMean(1.0, 4.0, 0.1, random_state=0),
    "LinearEB": eb.LinearEB("full"),
    "LogisticEB": eb.LogisticEB(),
    "GeneralizedEB": eb.GeneralizedEB("binomial"),
    "AdaMix": eb.AdaMix(2, n_init=1, random_state=0),
    "AdaMixClassifier": eb.AdaMixClassifier(2, n_init=1, random_state=0),
    "MixtureLinearEB": eb.MixtureLinearEB(2, n_init=1, random_state=0),
    "VarianceEB": eb.VarianceEB(),
    "CategoricalEB": eb.CategoricalEB(),
    "DurationEB": eb.DurationEB(),
    "NegativeBinomialEB": eb.NegativeBinomialEB(dispersion=0.5),
    "AdaPeD": eb.learning.AdaPeD(**SOME),
    "DPAdaPeD": eb.learning.DPAdaPeD(**STEP, **LOUD),
    "DPFedAvg": eb.learning.DPFedAvg(**STEP, **LOUD),
    "Ditto": eb.learning.Ditto(**SOME),
    "FeO2": eb.learning.FeO2(**STEP, **LOUD, ratio=0.5),
    "FedAvg": eb.learning.FedAvg(**SOME),
    "FedBN": eb.learning.FedBN(**SOME, personal=["intercept"]),
    "FedMutual": eb.learning.FedMutual(**SOME),
    "FedProx": eb.learning.FedProx(**SOME),
    "FedRep": eb.learning.FedRep(**SOME),
    "Scaffold": eb.learning.Scaffold(**SOME),
    "HierarchicalEB": eb.learning.HierarchicalEB(**SOME),
    "JointDPSGD": eb.learning.JointDPSGD(**STEP, **LOUD),
    "LocalOnly": eb.learning.LocalOnly(**SOME),
    "PFedMe": eb.learning.PFedMe(**SOME),
    "PPSGD": eb.learning.PPSGD(Linear(), **STEP, **LOUD),
    "PerFedAvg": eb.learning.PerFedAvg(**SOME),
    "QuPeD": eb.learning.QuPeD(**SOME),
}
ROWS = pd.DataFrame({"g": GROUPS, "x": RNG.normal(size=300), "y": X})
ROWS["hit"] = (ROWS["x"] + X > 0) * 1
ROWS["time"] = np.exp(ROWS["x"])
COLUMNS = dict.fromkeys(("BernoulliEB", "PoissonEB", "CategoricalEB", "NegativeBinomialEB"), "hit")
COLUMNS["DurationEB"] = "time"
CONSENT = np.where(GROUPS % 2, "private", "open")


def fit(name):
    estimator = clone(ESTIMATORS[name])
    numbers = name in ("LinearEB", "AdaMix", "MixtureLinearEB") or getattr(
        estimator, "_numeric", False
    )
    consent = {"consent": CONSENT} if name in ("FeO2", "OptOutMean") else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if isinstance(estimator, LocationEstimator):
            column = COLUMNS.get(name, "y")
            table = ROWS[["g", column]]
            return estimator.fit(table, groups="g", **consent), (table,)
        counted = name == "GeneralizedEB"
        table, y = ROWS[["g", "x"]], ROWS["hit"] if counted or not numbers else ROWS["y"]
        return estimator.fit(table, y, groups="g", **consent), (table, y)


@pytest.fixture(scope="module", params=ESTIMATORS)
def fitted(request):
    return fit(request.param)


def test_every_estimator_is_tried():
    wings = (eb.location, eb.regression, eb.learning)
    names = [(wing, name) for wing in wings for name in wing.__all__]
    found = {name for wing, name in names if inspect.isclass(getattr(wing, name))}
    found -= {"ClientPrivacy", "Learner", "GroupEncoder", "RateSchedule"}
    found -= {"LearnerRounds", "LocationRounds"}  # protocols
    found -= {"FayHerriot", "MetaAnalysis", "ModeratedT", "TwoGroups"}  # results
    found -= {"CrossedEB"}  # of several factors: tests/regression/test_crossed.py
    assert found == set(ESTIMATORS)


def test_the_text_fits_a_terminal(fitted):
    estimator, _ = fitted
    lines = str(estimator.summary()).splitlines()
    assert lines[0].strip() == type(estimator).__name__
    assert max(map(len, lines)) <= 78
    assert lines[1] == lines[-1] == "=" * 78
    assert any(line.startswith("Privacy:") for line in lines)
    assert not any("nan" in line.split() for line in lines)


class Reader(HTMLParser):
    """Checks that tags are closed in order, and keeps what they hold."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.words = [], [], []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words += data.split()


def read(markup):
    reader = Reader()
    reader.feed(markup)
    reader.close()
    assert not reader.open, "every tag is closed"
    ElementTree.fromstring(markup)
    return reader


def figures(words):
    """Numbers among words, commas of thousands and signs around them left out."""
    found = re.findall(r"(?<![\w.])-?\d[\d,]*\.?\d*(?:e[-+]?\d+)?(?![\w.])", " ".join(words))
    return sorted(found)


def test_the_markup_says_the_same(fitted):
    estimator, _ = fitted
    summary = estimator.summary()
    reader = read(summary._repr_html_())
    assert repr(summary) == str(summary)
    assert figures(reader.words) == figures(str(summary).split())
    assert type(estimator).__name__ in reader.words


def test_summaries_show_what_tidy_and_glance_hold(fitted):
    estimator, _ = fitted
    text = str(estimator.summary())
    glance = estimator.glance().iloc[0]
    assert f"{glance['nobs']:,.0f}" in text.split()
    assert f"{glance['n_groups']:,.0f}" in text.split()
    if "effect" in estimator.tidy():
        shown, tidy = text.split(), estimator.tidy()
        for term, estimate in zip(tidy["term"], tidy["estimate"], strict=True):
            digits = ".2f" if term.startswith("cor__") and "spread" in shown else ".6g"
            assert f"{estimate:{digits}}" in shown
        for name in ("logLik", "AIC", "BIC"):
            if np.isfinite(glance[name]):
                assert f"{glance[name]:.2f}" in shown


# Ours: what broom.mixed has no word for.
OWN = {
    "tidy": {"response", "parameter"} | {"df", "p.value"},  # these are of fits of lmerTest there
    "glance": {"n_groups", "npar", "icc", "likelihood", "rounds", "loss", "accuracy", "epsilon"}
    | {"simulated"},
    "augment": set(),
}
BROOM = pd.read_csv(Path(__file__).parents[1] / "reference" / "broom_mixed_columns.csv")


def known(function):
    return set(BROOM.loc[BROOM["function"] == function, "column"]) | OWN[function]


def test_columns_are_called_as_in_broom_mixed(fitted):
    estimator, arguments = fitted
    assert set(estimator.tidy().columns) <= known("tidy")
    assert set(estimator.glance().columns) <= known("glance")
    labels = {} if "g" in arguments[0] else {"groups": GROUPS}
    added = set(estimator.augment(*arguments, **labels).columns) - {
        "g",
        "x",
        "y",
        "hit",
        "time",
        "0",
        "1",
    }
    added = {name.partition("_")[0] for name in added}  # of a category: `.fitted_a`
    assert ".fitted" in added
    assert added <= known("augment")
    if isinstance(estimator, GroupEffects):
        everything = estimator.tidy(conf_int=True)
        assert set(everything.columns) <= known("tidy")
        assert set(estimator.tidy("ran_vals", conf_int=True).columns) <= known("tidy")
        assert set(estimator.confint().columns) <= known("tidy")


def test_terms_are_called_as_in_broom_mixed():
    """The intercept aside, which here has no brackets."""
    found = fit("LinearEB")[0].tidy()
    assert found["effect"].tolist() == ["fixed"] * 2 + ["ran_pars"] * 4
    assert found["group"].tolist() == ["", "", "g", "g", "g", "Residual"]
    assert found["term"].tolist() == [
        "intercept", "x", "sd__intercept", "sd__x", "cor__intercept.x", "sd__Observation",
    ]  # fmt: skip
    glance = fit("LinearEB")[0].glance().columns.tolist()
    assert set(BROOM.query("model == 'REML' and function == 'glance'")["column"]) <= set(glance)


# --- regressions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("family", [None, "binomial"])
def test_tables_of_a_regression_are_its_tests_and_intervals(family):
    """Tables of tests, intervals and parameters are one, and the page shows it."""
    rows = ROWS.assign(y=ROWS["hit"]) if family else ROWS
    fitted = eb.from_formula("y ~ x + (1 + x | g)", rows, family=family)
    tests, ends = fitted.tests(), fitted.confint()
    tidy = fitted.tidy("fixed", conf_int=True)
    for name in ("estimate", "std.error", "df", "statistic", "p.value"):
        np.testing.assert_allclose(tidy[name], tests[name], rtol=1e-12)
    for name in ("conf.low", "conf.high"):
        np.testing.assert_allclose(tidy[name], ends[name], rtol=1e-12)
    lines = str(fitted.summary()).splitlines()
    place = next(k for k, line in enumerate(lines) if line.startswith("mean  "))
    assert lines[place].split()[-5:] == ["p", "2.5", "%", "97.5", "%"]
    for line, row, low in zip(
        lines[place + 2 :], tests.itertuples(), ends["conf.low"], strict=False
    ):
        term, estimate, error, df, t, *_ = line.split()
        assert (term, estimate, error) == (row.term, f"{row.estimate:.6g}", f"{row[3]:.4g}")
        assert df == (f"{row.df:.1f}" if row.df < 1000 else f"{row.df:.0f}")
        assert t == f"{row.statistic:.2f}"
        assert abs(float(line.split()[-2]) - low) <= 0.01 * abs(low)


def test_spreads_are_shown_with_variances_and_correlations():
    fitted = eb.from_formula("y ~ x + (1 + x | g)", ROWS)
    found = fitted.VarCorr()
    lines = [line.split() for line in str(fitted.summary()).splitlines()]
    place = next(k for k, line in enumerate(lines) if line[:1] == ["spread"])
    shown = lines[place + 2 : place + 5]
    variances, sds = found["vcov"].tolist(), found["sdcor"].tolist()
    assert [row[0] for row in shown] == ["g", "x", "Residual"]
    assert shown[0][2:] == [f"{variances[0]:.6g}", f"{sds[0]:.6g}"]
    assert shown[1][1:] == [f"{variances[1]:.6g}", f"{sds[1]:.6g}", f"{sds[2]:.2f}"]
    assert shown[2][1:] == [f"{variances[3]:.6g}", f"{sds[3]:.6g}"]


def test_correlations_stand_below_the_coefficients_they_are_with():
    """Terms apart are not correlated: their cells are empty, not those of others."""
    rng = np.random.default_rng(3)
    rows = ROWS.assign(z=rng.normal(size=len(ROWS)))
    both = rng.normal(size=(60, 2))[rows["g"]]
    rows["y"] = both[:, 0] * rows["x"] + (both[:, 0] + both[:, 1]) * rows["z"] + rows["y"]
    fitted = eb.from_formula("y ~ x + z + (1 | g) + (0 + x + z | g)", rows)
    parts = fitted.VarCorr()
    value = parts.loc[parts["var2"] != "", "sdcor"].item()
    lines = str(fitted.summary()).splitlines()
    place = next(k for k, line in enumerate(lines) if line.startswith("spread"))
    cells = [line[66:] for line in lines[place + 2 : place + 5]]
    assert cells == ["", "", f"{'':6}{value:6.2f}"]
    nothing = eb.from_formula("y ~ x + (1 + x | g)", rows.assign(y=rng.normal(size=len(rows))))
    assert "nan" not in str(nothing.summary())


@pytest.mark.filterwarnings("ignore:Gradient descent:sklearn.exceptions.ConvergenceWarning")
def test_gradient_descent_claims_no_errors_of_the_mean():
    fitted = eb.LinearEB("spherical", solver="gradient").fit(ROWS[["x"]], ROWS["y"], groups=GROUPS)
    found = fitted.confint()
    assert found["estimate"].notna().all()
    assert found[["conf.low", "conf.high"]].isna().all(axis=None)
    assert fitted.tidy("fixed")["std.error"].isna().all()
    assert "97.5 %" not in str(fitted.summary())


def test_coefficients_that_explain_all_rows_have_no_tests():
    exact = ROWS.assign(y=1 + 2 * ROWS["x"])
    found = eb.LinearEB(varying=["intercept"]).fit(exact[["x"]], exact["y"], groups=GROUPS)
    assert found.tidy("fixed")["statistic"].isna().all()
    assert found.tidy("fixed", conf_int=True)["p.value"].isna().all()
    assert "inf" not in str(found.summary()).split()


def test_p_values_are_those_of_student():
    from scipy import stats

    t, df = np.array([0.0, 1.0, -2.5, 40.0]), np.array([3.0, 1.5, 200.0, 17.0])
    np.testing.assert_allclose(p_values(t, df), 2 * stats.t.sf(np.abs(t), df), rtol=1e-10)
    assert p_values(1.96, np.inf) == 2 * stats.norm.sf(1.96)


def test_the_page_of_ordered_classes_names_no_population_that_they_cannot_have():
    rows = ROWS.assign(y=np.digitize(ROWS["y"], np.quantile(ROWS["y"], [0.3, 0.7])) + 1)
    text = str(eb.from_formula("y ~ x + (1 | g)", rows, family="ordinal").summary())
    assert "1|2" in text
    assert "beta" not in text


# --- lines ---------------------------------------------------------------------------------------


def line_of(summary, name):
    return next(line for line in str(summary).splitlines() if line.startswith(name))


def test_a_formula_is_shown():
    assert "Formula" not in str(fit("LinearEB")[0].summary())
    shown = eb.from_formula("y ~ x + (1 | g)", ROWS).summary()
    assert line_of(shown, "Formula:").split(maxsplit=1)[1] == "y ~ x + (1 | g)"
    assert "y ~ x + (1 | g)" in " ".join(read(shown._repr_html_()).words)
    long = "y ~ x + " + " + ".join(f"I(x ** {k})" for k in range(2, 8)) + " + (1 | g)"
    lines = str(eb.from_formula(long, ROWS).summary()).splitlines()
    assert max(map(len, lines)) <= 78
    assert long in " ".join(" ".join(lines).split())


def test_privacy_is_shown():
    plain = eb.GaussianEB().fit(X, groups=GROUPS).summary()
    assert "none (raw summaries are sent)" in line_of(plain, "Privacy:")
    private = eb.GaussianEB(1.0, channel=Laplace(0.5, (-9, 9))).fit(X, groups=GROUPS)
    line = line_of(private.summary(), "Privacy:")
    assert "epsilon = 0.5 for each client (local differential privacy)" in line
    assert "simulated" not in str(private.summary())


def private_fit(kind):
    """A fit whose noise follows from a fixed seed."""
    if kind == "means":
        est = eb.GaussianEB(1.0, channel=Laplace(0.5, (-9, 9)), random_state=0)
        return est.fit(X, groups=GROUPS)
    if kind == "opting out":
        channel = {"private": Laplace(0.5, (-9, 9)), "open": Exact()}
        est = eb.GaussianEB(1.0, channel=channel, random_state=0)
        return est.fit(X, groups=GROUPS, consent=np.where(GROUPS % 2, "private", "open"))
    if kind == "formula":
        est = eb.GaussianEB(1.0, channel=Laplace(0.5, (-9, 9)), random_state=0)
        return eb.from_formula("y | g", ROWS, est)
    if kind == "coefficients":
        channel = Gaussian(0.5, 1e-5, range=(-9, 9))
        est = eb.AdaMix(2, noise_variance=1.0, channel=channel, n_rounds=1, random_state=0)
        return est.fit(ROWS[["x"]], X, groups=GROUPS)
    privacy = eb.ClientPrivacy(epsilon=0.5)
    est = eb.learning.FedAvg(Linear(), n_rounds=2, privacy=privacy, random_state=0)
    return est.fit(ROWS[["x"]], X, groups=GROUPS)


@pytest.mark.parametrize("kind", ["means", "opting out", "formula", "coefficients", "learner"])
def test_simulated_noise_is_no_guarantee(kind):
    summary = private_fit(kind).summary()
    lines = [line for line in str(summary).splitlines() if line.startswith("Privacy:")]
    promises = [line for line in lines if "none (raw" not in line]
    assert promises
    assert all(line.split(maxsplit=1)[1].startswith(NO_PROMISE) for line in promises)
    for text in (" ".join(str(summary).split()), " ".join(read(summary._repr_html_()).words)):
        assert f"{NO_PROMISE}. Real noise would give epsilon = 0.5" in text
        assert "whoever knows the seed can subtract it" in text
    assert max(map(len, str(summary).splitlines())) <= 78


def test_a_glance_at_a_learner_says_that_noise_is_simulated():
    for seed in (0, None):
        est = eb.learning.FedAvg(
            Linear(), n_rounds=2, privacy=eb.ClientPrivacy(epsilon=0.5), random_state=seed
        )
        glance = est.fit(ROWS[["x"]], X, groups=GROUPS).glance()
        assert glance["simulated"].tolist() == [seed == 0]


def test_the_intraclass_correlation_is_shown():
    for est in (
        eb.GaussianEB().fit(X, groups=GROUPS),
        eb.LinearEB(varying=["intercept"]).fit(ROWS[["x"]], X, groups=GROUPS),
    ):
        icc = est.glance()["icc"].item()
        assert 0 < icc < 1
        line = line_of(est.summary(), "Intraclass correlation")
        assert line.endswith(f"(share of variance between groups): {icc:.3f}")
    assert "Intraclass correlation" not in str(fit("LinearEB")[0].summary())


def test_facts_are_kept_apart():
    text = str(eb.GeneralizedEB("poisson").fit(ROWS[["x"]], ROWS["hit"], groups=GROUPS).summary())
    assert "Gauss-Hermite quadrature Groups: " in text


def test_names_are_escaped():
    odd = ROWS.rename(columns={"x": "<b>x</b>&", "g": "<i>g</i>"})
    summary = (
        eb.LinearEB().fit(odd[["<b>x</b>&", "y", "<i>g</i>"]], "y", groups="<i>g</i>").summary()
    )
    assert "<b>x</b>&" in str(summary)
    reader = read(summary._repr_html_())
    assert not {"b", "i"} & set(reader.tags)
    assert "<b>x</b>&" in reader.words
    assert "<i>g</i>" in reader.words
    plain = Text("1 < 2 & 3")
    assert plain._repr_html_() == "<pre>1 &lt; 2 &amp; 3</pre>"


def test_long_names_are_cut_in_the_middle():
    name = "a_column_whose_name_goes_on_and_on_until_it_ends"
    table = ROWS.rename(columns={"x": name})[["g", name, "y"]]
    lines = str(eb.LinearEB().fit(table, "y", groups="g").summary()).splitlines()
    assert max(map(len, lines)) <= 78
    assert any("a_column" in line and "it_ends" in line and "…" in line for line in lines)
