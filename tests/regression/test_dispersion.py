"""Noise by the level of a factor: against nlme and glmmTMB, and wherever a fit is used.

Figures of nlme and glmmTMB are in ``tests/reference/dispersion.csv``. Measured: the log-likelihood
agrees to 1e-11, standard deviations to 1e-5, coefficients to 1e-6 of a standard error (of glmmTMB
1e-5). Standard errors are nlme's; those of glmmTMB also have the error of the variances.
"""

import pickle
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import ebfed as eb
from ebfed.report.view import view_of
from ebfed.testing.nodes import fit_on_nodes

REFERENCE = Path(__file__).parents[1] / "reference"
FIGURES = pd.read_csv(REFERENCE / "dispersion.csv")
CHILDREN = pd.read_csv(REFERENCE / "orthodont.csv").assign(
    male=lambda rows: (rows["sex"] == "Male") * 1.0
)
FORMULAS = {
    "orthodont": ("distance ~ age * male + (1 | subject)", "~ sex", None),
    "orthodont_slopes": ("distance ~ age + (1 + age | subject)", "~ sex", None),
    "orthodont_weights": ("distance ~ age * male + (1 | subject)", "sex", "w"),
    "oxide": ("thickness ~ 1 + (1 | lot / wafer)", "~ source", None),
    "chem97": ("score ~ gcsecnt + female + (1 | school)", "~ gender", None),
}


def frame_of(name):
    if name == "oxide":
        return pd.read_csv(REFERENCE / "oxide.csv")
    if name == "chem97":
        rows = pd.read_csv(REFERENCE / "chem97.csv.gz")
        return rows.assign(female=(rows["gender"] == "F") * 1.0)
    return CHILDREN


@pytest.mark.parametrize("method", ["reml", "ml"])
@pytest.mark.parametrize("name", FORMULAS)
def test_reference(name, method):
    formula, by, weights = FORMULAS[name]
    settings = {"method": method, "dispersion": by, "weights": weights}
    fit = eb.from_formula(formula, frame_of(name), eb.LinearEB(), **settings)
    errors = np.sqrt(np.diag(fit.mean_covariance_))
    covariances = [*fit.covariance_above_.values(), fit.covariance_]
    spreads = np.concatenate([np.sqrt(np.diag(each)) for each in covariances])
    own = FIGURES[(FIGURES["model"] == name) & (FIGURES["method"] == method.upper())]
    assert len(own) > 0
    for package, table in own.groupby("package"):
        figures = dict(zip(table["figure"], table["value"], strict=True))
        of = {kind: [x for key, x in figures.items() if key.startswith(kind)] for kind in KINDS}
        assert_allclose((fit.mean_ - of["beta"]) / errors, 0, atol=1e-4)
        assert_allclose(spreads[spreads > 0], of["spread"], rtol=1e-3)
        noise = {level: figures[f"noise.{level}"] for level in fit.noise_variances_}
        assert_allclose(np.sqrt(list(fit.noise_variances_.values())), [*noise.values()], rtol=1e-3)
        assert fit.log_likelihood_ == pytest.approx(figures["loglik"], rel=1e-6)
        if package == "nlme":
            assert_allclose(errors, of["se"], rtol=1e-3)


KINDS = ("beta", "se", "spread")


@pytest.fixture(scope="module")
def by_sex():
    """Return a fit whose rows have a variance for each sex."""
    return eb.from_formula("distance ~ age + male + (1 | subject)", CHILDREN, dispersion="~ sex")


@pytest.fixture(scope="module")
def of_one_noise():
    """Return that with one variance for all rows."""
    return eb.from_formula("distance ~ age + male + (1 | subject)", CHILDREN)


def test_rows_have_the_noise_of_their_level(by_sex):
    low, high = by_sex.predict_interval(CHILDREN)
    inner = by_sex.predict_interval(CHILDREN, kind="mean")
    z = 1.959963984540054
    noise = (((high - low) / 2 / z) ** 2) - ((inner[1] - inner[0]) / 2 / z) ** 2
    left = len(CHILDREN) - 3  # degrees of freedom by which the noise is known
    expected = left / (left - 2) * CHILDREN["sex"].map(by_sex.noise_variances_)
    assert_allclose(noise, expected, rtol=1e-9)
    unknown = CHILDREN.head(2).assign(sex="none")
    with pytest.raises(ValueError, match="level 'none', of whose noise the fit knows nothing"):
        by_sex.predict_interval(unknown)
    assert_array_equal(by_sex.predict(unknown), by_sex.predict(CHILDREN.head(2)))  # no noise in it
    with pytest.raises(ValueError, match="must give the level of each row"):
        by_sex.predict_interval(unknown.drop(columns="sex"))


def test_posteriors_use_the_noise_of_rows(by_sex):
    own = by_sex.posterior(CHILDREN)
    assert_allclose(own.mean, by_sex.posterior().mean, rtol=1e-9)
    girl = np.char.startswith(by_sex.groups_.astype(str), "F")
    places = np.flatnonzero(girl)[0], np.flatnonzero(~girl)[0]
    spread = by_sex.covariance_[0, 0]
    # balanced groups, if the population were known
    known = view_of(by_sex).posterior_given_population().sd[:, 0] ** 2
    for place, level in zip(places, ("Female", "Male"), strict=True):
        noise = by_sex.noise_variances_[level] / 4
        assert known[place] == pytest.approx(spread * noise / (spread + noise), rel=1e-9)


def test_reports(by_sex, of_one_noise):
    terms = by_sex.tidy()["term"].tolist()
    assert terms[-2:] == ["sd__Observation.Female", "sd__Observation.Male"]
    assert not {"sigma", "icc"} & set(by_sex.glance())
    text = str(by_sex.summary())
    assert re.search(r"Residual +Female +[\d.]+ +[\d.]+\n +Male +[\d.]+ +[\d.]+", text)
    table = eb.anova(of_one_noise, by_sex)
    assert table["npar"].tolist() == [5, 6]
    assert table["reference"].tolist() == ["", "chi2"]  # a ratio of variances may be any
    ml = [
        eb.from_formula(
            "distance ~ age + male + (1 | subject)", CHILDREN, dispersion=by, method="ml"
        ).log_likelihood_
        for by in ("sex", None)
    ]
    assert table["statistic"].iloc[1] == pytest.approx(2 * (ml[0] - ml[1]), rel=1e-6)
    assert np.isinf(by_sex.tests()["df"]).all()
    for ddf in ("satterthwaite", "kenward-roger"):
        with pytest.raises(ValueError, match="takes no dispersion"):
            by_sex.tests(ddf=ddf)
    for method in ("profile", "bootstrap"):
        with pytest.raises(ValueError, match="takes no dispersion"):
            by_sex.confint(method=method)
    assert len(by_sex.confint()) == 3


@pytest.mark.parametrize("groups", [True, False])
def test_files(tmp_path, groups, by_sex):
    by_sex.save(tmp_path / "fit.json", groups=groups)
    loaded = eb.load_fit(tmp_path / "fit.json")
    assert loaded.noise_variances_ == by_sex.noise_variances_
    at = loaded.posterior(CHILDREN)
    assert_allclose(at.mean, by_sex.posterior(CHILDREN).mean, rtol=1e-12)
    low, _ = loaded.predict_interval(CHILDREN)
    assert np.isfinite(low).all()
    if groups:
        assert_array_equal(low, by_sex.predict_interval(CHILDREN)[0])
        assert_array_equal(loaded.posterior().mean, by_sex.posterior().mean)
    again = pickle.loads(pickle.dumps(by_sex))
    assert_array_equal(again.posterior().sd, by_sex.posterior().sd)


X = CHILDREN[["age", "male"]].to_numpy(float)
Y, GROUPS, SEX = (CHILDREN[name].to_numpy() for name in ("distance", "subject", "sex"))
ROWS = {"X": X, "y": Y, "groups": GROUPS, "dispersion": SEX}


def test_nodes_that_have_some_of_the_levels(by_sex):
    first = SEX == "Male"
    nodes = [{name: x[some] for name, x in ROWS.items()} for some in (first, ~first)]
    fitted, *_ = fit_on_nodes(eb.LinearEB(varying=["intercept"]), nodes)
    server = by_sex.estimator_.published()
    for node in (*fitted, server):
        assert node.log_likelihood_ == pytest.approx(by_sex.log_likelihood_, rel=1e-10)
        assert list(node.noise_variances_) == ["Female", "Male"]
    whole = eb.LinearEB(varying=["intercept"]).fit(**ROWS)
    assert_allclose(fitted[0].posterior().mean, whole.posterior().mean[11:], rtol=1e-8)
    assert "of each level of noise" in fitted[0].privacy_["what"].iloc[0]
    assert "of each level of noise" in server.privacy_["what"].iloc[0]
    nodes[1].pop("dispersion")
    with pytest.raises(ValueError, match="all nodes must state the same"):
        fit_on_nodes(eb.LinearEB(), nodes)


def test_columns_far_from_zero_are_taken_from_nodes():
    """Two rows of a level and group have a factor of two rows, not of three."""
    rng = np.random.default_rng(1)
    g, kind = np.repeat(np.arange(24), 8), np.array(list("abc"))[rng.integers(0, 3, 192)]
    x = rng.normal(size=(192, 1))
    y = x[:, 0] / 2 + rng.normal(0, 0.6, 24)[g] + rng.normal(size=192)
    rows = {"X": x + 1e8, "y": y, "groups": g, "dispersion": kind}
    halves = [{name: each[some] for name, each in rows.items()} for some in (g < 12, g >= 12)]
    fitted, *_ = fit_on_nodes(eb.LinearEB(varying=["intercept"]), halves)
    whole = eb.LinearEB(varying=["intercept"]).fit(**rows)
    assert fitted[0].log_likelihood_ == pytest.approx(whole.log_likelihood_, rel=1e-9)
    assert fitted[0].mean_[1] == pytest.approx(whole.mean_[1], rel=1e-6)


def test_groups_at_several_nodes_are_refused():
    first = np.arange(len(Y)) % 2 == 0
    nodes = [{name: x[some] for name, x in ROWS.items()} for some in (first, ~first)]
    with pytest.raises(ValueError, match="all rows of a group at one node"):
        fit_on_nodes(eb.LinearEB(), nodes, b"k" * 32)


def test_frames_and_blocks(by_sex):
    frame = CHILDREN[["distance", "age", "male", "subject", "sex"]]
    settings = {"groups": "subject", "dispersion": "sex"}
    named = eb.LinearEB(varying=["intercept"]).fit(frame, "distance", **settings)
    assert named.log_likelihood_ == pytest.approx(by_sex.log_likelihood_, rel=1e-12)
    assert named.terms_ == ["intercept", "age", "male"]
    # later frames need not name the column
    both = named.predict_interval(frame), by_sex.predict_interval(CHILDREN)
    assert_allclose(*both, rtol=1e-9)
    assert_allclose(named.posterior(frame).mean, by_sex.posterior().mean, rtol=1e-9)
    assert named.score(frame) == pytest.approx(by_sex.score(CHILDREN), rel=1e-9)
    half = np.arange(len(frame)) % 2 == 0
    blocks = eb.LinearEB(varying=["intercept"]).partial_fit(frame[half], "distance", **settings)
    blocks.partial_fit(frame[~half])
    assert blocks.log_likelihood_ == pytest.approx(by_sex.log_likelihood_, rel=1e-10)


def test_a_second_fit_may_have_other_levels():
    rng = np.random.default_rng(0)
    groups, X, levels = np.repeat(np.arange(10), 6), rng.normal(size=(60, 1)), np.tile([0, 1], 30)
    y = rng.normal(size=10)[groups] + rng.normal(size=60)
    est = eb.LinearEB(varying=["intercept"]).fit(X, y, groups=groups, dispersion=levels)
    noise = list(est.noise_variances_.values())
    est.fit(X, y, groups=groups, dispersion=levels + 5)
    assert list(est.noise_variances_) == ["5", "6"]
    assert_allclose(list(est.noise_variances_.values()), noise)
    assert est.fit(X, y, groups=groups).noise_variances_ == {}


def test_refused(of_one_noise):
    with pytest.raises(ValueError, match="dispersion needs share='groups'"):
        eb.LinearEB(share="sums").fit(**ROWS)
    with pytest.raises(ValueError, match="dispersion needs share='groups'"):
        eb.LinearEB("spherical", solver="gradient").fit(**ROWS)
    with pytest.raises(ValueError, match="dispersion"):
        eb.LinearEB().fit(**ROWS | {"dispersion": SEX[:3]})
    with pytest.raises(ValueError, match="must be None: the fit had one noise"):
        of_one_noise.predict_interval(CHILDREN, dispersion=SEX)
    weights = (SEX == "Male").astype(float)
    with pytest.raises(ValueError, match="which has no rows with a weight"):
        eb.LinearEB().fit(**ROWS, sample_weight=weights)
    for wrong in ("~ sex + age", "~ 1", ""):
        with pytest.raises(ValueError, match="dispersion must be '~ column'"):
            eb.from_formula("distance ~ age | subject", CHILDREN, dispersion=wrong)
    with pytest.raises(ValueError, match="'height' is not a column of data"):
        eb.from_formula("distance ~ age | subject", CHILDREN, dispersion="~ height")
    with pytest.raises(ValueError, match="takes no dispersion; LinearEB does"):
        eb.from_formula("distance | subject", CHILDREN, dispersion="~ sex")


@pytest.mark.filterwarnings("ignore:Columns of X are collinear")
def test_rows_without_groups_have_the_noise_of_their_level():
    """Without groups it is generalised least squares: the noise is that of the residuals, by ML."""
    fit = eb.LinearEB(method="ml", varying=[]).fit(np.zeros((108, 1)), Y, dispersion=SEX)
    found = [fit.noise_variances_[level] for level in ("Female", "Male")]
    left = [np.mean((Y[level == SEX] - fit.mean_[0]) ** 2) for level in ("Female", "Male")]
    assert_allclose(found, left, rtol=1e-4)


def test_one_level_is_one_noise(of_one_noise):
    fit = eb.LinearEB(varying=["intercept"]).fit(**ROWS | {"dispersion": np.full(108, "all")})
    assert fit.criterion_ == pytest.approx(of_one_noise.criterion_, rel=1e-12)
    assert fit.noise_variances_["all"] == pytest.approx(of_one_noise.noise_variance_, rel=1e-9)


def test_rows_without_noise():
    perfect = X @ [0.5, 1.0]
    fit = eb.LinearEB(varying=["intercept"]).fit(X, perfect, groups=GROUPS, dispersion=SEX)
    assert set(fit.noise_variances_.values()) == {0.0}
    assert_allclose(fit.predict(X, groups=GROUPS), perfect, atol=1e-9)


def test_one_level_without_noise_is_refused():
    y = np.where(SEX == "Male", Y, X @ [0.5, 1.0])
    with pytest.raises(ValueError, match="explain all rows of level 'Female' of the dispersion"):
        eb.LinearEB(varying=[]).fit(X, y, groups=GROUPS, dispersion=SEX)
