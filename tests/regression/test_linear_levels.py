"""Linear models of groups within groups."""

import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import ebfed as eb
from ebfed.priors import IdentificationWarning
from ebfed.regression.numerics.nested_model import NestedProblem
from ebfed.tables.clients import Clients
from ebfed.tables.factors import Factors
from ebfed.testing.nodes import fit_on_nodes

REFERENCE = Path(__file__).parents[1] / "reference"
COVARIANCES = ["diag", "full", "spherical"]


def draw(m=12, seed=0):
    """Rows of schools of m leas, some with one row or one school."""
    rng = np.random.default_rng(seed)
    lea = np.repeat(np.arange(m), rng.integers(1, 6, m))
    school = np.repeat(np.arange(len(lea)), rng.integers(1, 9, len(lea)))
    x, z = rng.normal(2, 1, len(school)), rng.normal(0, 3, len(school))
    theta = (rng.normal(size=(m, 3)) * [0.9, 0.5, 0.3])[lea]
    theta = theta + rng.normal(size=(len(lea), 3)) * [0.6, 0.4, 0.3]
    X = np.column_stack([np.ones(len(x)), x, z])
    y = (X * (theta[school] + [1.0, 0.5, 0.2])).sum(axis=1) + rng.normal(size=len(x))
    return pd.DataFrame({"lea": lea[school], "school": school, "x": x, "z": z, "y": y})


def covariance_of_rows(rows, above, own, noise):
    X = np.column_stack([np.ones(len(rows)), rows[["x", "z"]]])
    same = [np.equal.outer(rows[name].to_numpy(), rows[name].to_numpy()) for name in GROUPS]
    return X, same[0] * (X @ above @ X.T) + same[1] * (X @ own @ X.T) + noise * np.eye(len(rows))


GROUPS = ["lea", "school"]


def dense(rows, fit):
    """Criterion, mean and its covariance, and the posterior of leas and schools, by one matrix."""
    above, own = fit.covariance_above_["lea"], fit.covariance_
    X, V = covariance_of_rows(rows, above, own, fit.noise_variance_)
    y, solved = rows["y"].to_numpy(), np.linalg.solve(V, X)
    H = X.T @ solved
    mean = np.linalg.solve(H, solved.T @ y)
    residual = y - X @ mean
    dof = len(y) - 3 * (fit.method == "reml")
    value = np.linalg.slogdet(V)[1] + residual @ np.linalg.solve(V, residual)
    value += dof * np.log(2 * np.pi)
    value += np.linalg.slogdet(H)[1] * (fit.method == "reml")
    moments = {}
    for place in (1, 2):
        found = []
        for label in fit.groups_ if place == 2 else sorted({each[0] for each in fit.groups_}):
            lea, school = label if place == 2 else (label, None)
            C = above @ X.T * (rows["lea"] == lea).to_numpy()
            total = above
            if place == 2:
                C = C + own @ X.T * (rows["school"] == school).to_numpy()
                total = above + own
            D = np.eye(3) - C @ solved
            covariance = total - C @ np.linalg.solve(V, C.T) + D @ np.linalg.solve(H, D.T)
            found.append((mean + C @ np.linalg.solve(V, residual), covariance))
        moments[place] = [np.array(each) for each in zip(*found, strict=True)]
    return value, mean, np.linalg.inv(H), moments


@pytest.mark.parametrize("method", ["reml", "ml"])
@pytest.mark.parametrize("covariance", COVARIANCES)
def test_the_fit_is_that_of_the_dense_likelihood(covariance, method):
    rows = draw()
    varying = {"lea": ["intercept", "x"], "school": ["intercept", "x"]}
    fit = eb.LinearEB(covariance, method=method, varying=varying)
    fit.fit(rows, "y", groups=GROUPS)
    value, mean, errors, moments = dense(rows, fit)
    assert fit.criterion_ == pytest.approx(value, abs=1e-8)
    np.testing.assert_allclose(fit.mean_, mean, atol=1e-10)
    np.testing.assert_allclose(fit.mean_covariance_, errors, atol=1e-10)
    population = fit._population()
    known = population.posteriors(fit.clients_)
    for place, (posterior, _) in enumerate(known, 1):
        np.testing.assert_allclose(posterior.mean, moments[place][0], atol=1e-9)
        left = moments[place][1][:, range(3), range(3)]
        assert np.all(posterior.sd**2 >= left - 1e-9), "not knowing variances adds to it"
    exact = population.posteriors(fit.clients_, np.zeros_like(fit.mean_covariance_), doubt=False)
    for place, (posterior, _) in enumerate(exact, 1):
        np.testing.assert_allclose(posterior.mean, moments[place][0], atol=1e-9)


@pytest.mark.parametrize("covariance", ["diag", "full"])
def test_no_other_variances_are_better(covariance):
    """The criterion is least: a step in any entry of a root raises it."""
    rows = draw(60, seed=3)
    columns = ["intercept", "x"]
    fit = eb.LinearEB(covariance, varying=columns).fit(rows, "y", groups=GROUPS)
    scale = fit.noise_variance_
    found = [fit.covariance_above_["lea"], fit.covariance_]
    roots = []
    for each in found:  # which may be singular
        values, vectors = np.linalg.eigh(each[:2, :2] / scale)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        roots.append(np.linalg.qr(root.T, mode="r").T)

    def value(roots):
        T = [np.zeros((3, 3)), np.zeros((3, 3))]
        for each, root in zip(T, roots, strict=True):
            each[:2, :2] = root @ root.T
        X, V = covariance_of_rows(rows, *T, 1.0)
        y, solved = rows["y"].to_numpy(), np.linalg.solve(V, X)
        H = X.T @ solved
        residual = y - X @ np.linalg.solve(H, solved.T @ y)
        noise = residual @ np.linalg.solve(V, residual) / (len(y) - 3)
        return np.linalg.slogdet(V)[1] + np.linalg.slogdet(H)[1] + (len(y) - 3) * np.log(noise)

    least = value(roots)
    places = [(0, 0), (1, 1)] + [(1, 0)] * (covariance == "full")
    for level in range(2):
        for place in places:
            for step in (-0.03, 0.03):
                moved = [root.copy() for root in roots]
                moved[level][place] += step
                assert value(moved) > least - 1e-9
    # and flat there: central differences of a slope that is zero
    for level in range(2):
        for place in places:
            ends = []
            for step in (-1e-4, 1e-4):
                moved = [root.copy() for root in roots]
                moved[level][place] += step
                ends.append(value(moved))
            assert abs(ends[1] - ends[0]) / 2e-4 < 2e-3


@pytest.mark.parametrize("method", ["reml", "ml"])
@pytest.mark.parametrize("covariance", ["diag", "full"])
def test_slopes_are_those_of_the_criterion(covariance, method):
    rows = draw()
    X = np.column_stack([np.ones(len(rows)), rows[["x", "z"]]])
    factors = Factors.of(Clients.from_rows(X, rows["school"], rows["y"].to_numpy()))
    lea = rows.groupby("school")["lea"].first().to_numpy()
    varying = [np.array([0, 1]), np.array([0, 1, 2])]
    arguments = (factors.rows, [lea], len(rows), varying, covariance, method, True)
    problem = NestedProblem(*arguments)
    rng, root = np.random.default_rng(1), np.zeros((5, 5))
    places = [(0, 0), (1, 0), (1, 1), *map(tuple, 2 + np.argwhere(np.tri(3)))]
    for place in places:
        root[place] = rng.normal() * 0.4
    slope = 2 * problem.slope(problem.whiten(root)) @ root
    for place in places:
        ends = []
        for step in (-1e-6, 1e-6):
            moved = root.copy()
            moved[place] += step
            ends.append(problem.value(problem.whiten(moved)))
        assert (ends[1] - ends[0]) / 2e-6 == pytest.approx(slope[place], abs=1e-5)


def chem97():
    rows = pd.read_csv(REFERENCE / "chem97.csv.gz").merge(pd.read_csv(REFERENCE / "chem97_lea.csv"))
    return rows[["lea", "school", "score", "gcsecnt"]]


def test_chem97_is_as_in_lme4():
    """`tests/reference/lme4_levels.R` prints these figures."""
    fit = eb.LinearEB(varying=["intercept"]).fit(chem97(), "score", groups=GROUPS)
    assert fit.covariance_[0, 0] == pytest.approx(1.166202, rel=1e-5)
    assert fit.covariance_above_["lea"][0, 0] == pytest.approx(0.014766, abs=1e-6)
    assert fit.noise_variance_ == pytest.approx(5.154201, rel=1e-6)
    assert fit.criterion_ == pytest.approx(141696.9881, abs=1e-4)
    assert fit.n_parameters_ == 5
    tidy = fit.tidy("ran_pars")
    assert tidy["group"].tolist() == ["lea", "school", "Residual"]


def test_three_levels():
    rng = np.random.default_rng(5)
    rows = draw(30, seed=4)
    rows["country"] = rows["lea"] % 6
    rows["y"] += rng.normal(size=6)[rows["country"]]
    fit = eb.LinearEB(varying=["intercept"]).fit(rows, "y", groups=["country", *GROUPS])
    X = np.column_stack([np.ones(len(rows)), rows[["x", "z"]]])
    names = ["country", "lea", "school"]
    levels = [*fit.covariance_above_.values(), fit.covariance_]
    V = fit.noise_variance_ * np.eye(len(rows))
    for name, covariance in zip(names, levels, strict=True):
        column = rows[name].to_numpy()
        V += np.equal.outer(column, column) * covariance[0, 0]
    H = X.T @ np.linalg.solve(V, X)
    mean = np.linalg.solve(H, X.T @ np.linalg.solve(V, rows["y"]))
    residual = rows["y"].to_numpy() - X @ mean
    value = np.linalg.slogdet(V)[1] + np.linalg.slogdet(H)[1]
    value += residual @ np.linalg.solve(V, residual) + (len(rows) - 3) * np.log(2 * np.pi)
    assert fit.criterion_ == pytest.approx(value, abs=1e-8)
    assert fit.posterior(level="lea").ids.tolist() == sorted(
        set(zip(rows["country"], rows["lea"], strict=True))
    )
    frame = fit.posterior(level="lea").to_frame()
    assert frame.columns[:3].tolist() == ["country", "lea", "term"]


@pytest.fixture(scope="module")
def fitted():
    rows = draw(60)
    varying = {"lea": ["intercept"], "school": ["intercept", "x"]}
    return rows, eb.LinearEB(varying=varying).fit(rows, "y", groups=GROUPS)


def test_known_schools_new_schools_and_new_leas(fitted):
    _, fit = fitted
    lea, school = fit.groups_[0]
    new = pd.DataFrame({"lea": [lea, lea, 99], "school": [school, 99, 99], "x": 1.0, "z": 0.5})
    x = np.array([1.0, 1.0, 0.5])
    own, leas = fit.posterior(groups=[(lea, school)]), fit.posterior(level="lea")
    expected = [x @ own.mean[0], x @ leas.mean[0], x @ fit.mean_]
    np.testing.assert_allclose(fit.predict(new), expected)
    np.testing.assert_allclose(fit.predict(new.drop(columns=GROUPS)), x @ fit.mean_)
    lower, upper = fit.predict_interval(new, kind="mean")
    assert (np.diff(upper - lower) > 0).all(), "the less is known, the wider"
    wider = fit.predict_interval(new)
    assert np.all(wider[0] < lower)
    assert np.all(wider[1] > upper)


def test_rows_that_are_given_replace_those_of_the_fit(fitted):
    rows, fit = fitted
    again = fit.posterior(rows[rows["lea"] == 0])
    whole = fit.posterior()
    mine = [j for j, label in enumerate(whole.ids) if label[0] == 0]
    np.testing.assert_allclose(again.mean, whole.mean[mine], atol=1e-10)
    first = rows[rows["school"] == fit.groups_[0][1]]
    one = fit.posterior(first)
    np.testing.assert_allclose(one.mean[0], whole.mean[0], atol=1e-10)
    np.testing.assert_allclose(one.sd[0], whole.sd[0], atol=1e-10)


def test_frames_have_a_column_for_each_level(fitted):
    rows, fit = fitted
    assert fit.ranef().columns.tolist() == ["lea", "school", "intercept", "x"]
    assert fit.ranef("lea").columns.tolist() == ["lea", "intercept"]
    joined = fit.coef().merge(fit.ranef("lea"), on="lea", suffixes=("", "_lea"))
    joined = joined.merge(fit.ranef(), on=GROUPS, suffixes=("", "_school"))
    whole = fit.mean_[0] + joined["intercept_lea"] + joined["intercept_school"]
    np.testing.assert_allclose(whole, joined["intercept"])
    above, effects = fit.coef("lea").set_index("lea"), fit.ranef("lea").set_index("lea")
    np.testing.assert_allclose(above["intercept"], fit.mean_[0] + effects["intercept"])
    np.testing.assert_allclose(above["x"], fit.mean_[1])
    augmented = fit.augment(rows)
    assert augmented.columns[:2].tolist() == GROUPS
    np.testing.assert_allclose(augmented[".fitted"], fit.predict(rows))
    assert "lea" in str(fit.summary())
    with pytest.raises(ValueError, match="level must be one of 'lea', 'school'"):
        fit.posterior(level="county")


def test_draws_have_the_moments_of_the_posterior(fitted):
    _, fit = fitted
    posterior = fit.posterior()
    draws = posterior.sample(4000, random_state=0)
    np.testing.assert_allclose(draws.mean(axis=0), posterior.mean, atol=5 / np.sqrt(4000))
    np.testing.assert_allclose(draws.std(axis=0), posterior.sd, rtol=0.08)


def test_files_and_pickles(fitted, tmp_path):
    rows, fit = fitted
    for groups in (True, False):
        fit.save(tmp_path / "fit.json", groups=groups)
        loaded = eb.load_fit(tmp_path / "fit.json")
        assert loaded.criterion_ == fit.criterion_
        for name, covariance in fit.covariance_above_.items():
            np.testing.assert_array_equal(loaded.covariance_above_[name], covariance)
        known = fit.predict(rows) if groups else fit.predict(rows[["x", "z"]])
        np.testing.assert_allclose(loaded.predict(rows), known)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fit)).predict(rows), fit.predict(rows))
    assert fit.published().covariance_above_.keys() == {"lea"}


def test_weights_and_blocks_of_rows():
    rows = draw()
    whole = eb.LinearEB().fit(rows, "y", groups=GROUPS)
    half = rows["school"] % 2 == 0
    parts = eb.LinearEB().fit(rows[half], "y", groups=GROUPS)
    parts.partial_fit(rows[~half], "y", groups=GROUPS)
    assert parts.criterion_ == pytest.approx(whole.criterion_, abs=1e-8)
    some = np.arange(len(rows)) % 3 > 0
    weighed = rows.assign(w=2.0 * some)
    fit = eb.LinearEB().fit(weighed, "y", groups=GROUPS, sample_weight="w")
    alone = eb.LinearEB().fit(rows[some], "y", groups=GROUPS)
    np.testing.assert_allclose(fit.mean_, alone.mean_, rtol=1e-7)
    assert fit.noise_variance_ == pytest.approx(2 * alone.noise_variance_, rel=1e-6)


def test_labels_may_be_given_in_any_form():
    rows = draw()
    known = eb.LinearEB().fit(rows, "y", groups=GROUPS)
    X, y = rows[["x", "z"]], rows["y"]
    for groups in (rows[GROUPS], [rows["lea"].to_numpy(), rows["school"].to_numpy()]):
        fit = eb.LinearEB().fit(X, y, groups=groups)
        assert fit.criterion_ == known.criterion_
        np.testing.assert_array_equal(fit.predict(X, groups=groups), known.predict(rows))
    fit = eb.LinearEB().fit(
        X.sample(frac=1, random_state=1), y, groups=[rows["lea"], rows["school"]]
    )
    assert fit.criterion_ == pytest.approx(known.criterion_, abs=1e-8)


def test_nodes_that_hold_whole_leas():
    """A node sends the factors of its schools, and a number for the lea of each."""
    rows = draw()
    here = eb.LinearEB("full").fit(rows, "y", groups=GROUPS)
    parts = [rows[rows["lea"] < 5], rows[rows["lea"] >= 5]]
    given = [{"X": part, "y": "y", "groups": GROUPS} for part in parts]
    for key in (None, b"a key that nodes share"):
        nodes, *_ = fit_on_nodes(eb.LinearEB("full"), given, key)
        assert nodes[0].criterion_ == pytest.approx(here.criterion_, abs=1e-9)
        assert nodes[1].covariance_above_.keys() == {"lea"}
        means = np.concatenate([node.posterior().mean for node in nodes])
        np.testing.assert_allclose(means, here.posterior().mean, atol=1e-6)
    given[1]["groups"] = "school"
    given[1]["X"] = parts[1].drop(columns="lea")
    with pytest.raises(ValueError, match="some have no levels"):
        fit_on_nodes(eb.LinearEB("full"), given)


def test_what_numbers_of_groups_do_not_identify():
    rows = draw()
    alone = rows.assign(school=rows["lea"])
    with pytest.warns(IdentificationWarning, match="Every lea has one group of level 'school'"):
        fit = eb.LinearEB(varying=["intercept"]).fit(alone, "y", groups=GROUPS)
    one = eb.LinearEB(varying=["intercept"]).fit(rows.drop(columns="school"), "y", groups="lea")
    assert fit.criterion_ == pytest.approx(one.criterion_, abs=1e-7)
    with pytest.warns(IdentificationWarning, match="'lea' has one group with rows"):
        fit = eb.LinearEB(varying=["intercept"]).fit(rows.assign(lea=0), "y", groups=GROUPS)
    one = eb.LinearEB(varying=["intercept"]).fit(rows.drop(columns="lea"), "y", groups="school")
    assert fit.criterion_ == pytest.approx(one.criterion_, abs=1e-7)
    with pytest.warns(IdentificationWarning, match="No group of level 'school' has two rows"):
        eb.LinearEB(varying=["intercept"]).fit(
            rows.assign(school=np.arange(len(rows))), "y", groups=GROUPS
        )


def test_what_levels_cannot_be_fitted_with():
    rows = draw()
    for arguments in ({"share": "sums"}, {"solver": "gradient", "covariance": "spherical"}):
        with pytest.raises(ValueError, match="levels of groups need share='groups'"):
            eb.LinearEB(**arguments).fit(rows, "y", groups=GROUPS)
    with pytest.raises(
        ValueError, match=r"'z' must be constant within groups; it varies in \(0, 0\)"
    ):
        eb.LinearEB().fit(rows, "y", groups=GROUPS, covariates=["z"])
    with pytest.raises(ValueError, match="columns for each level of groups"):
        eb.LinearEB(varying={"lea": ["x"]}).fit(rows, "y", groups=GROUPS)
    fit = eb.LinearEB().fit(rows, "y", groups=GROUPS)
    with pytest.raises(ValueError, match="several levels of groups has no SQL"):
        fit.to_sql()
    with pytest.raises(ValueError, match="groups has 1 level; the fit had 2"):
        fit.predict(rows[["x", "z"]], groups=rows["lea"])


def test_formulas_of_levels():
    rows = draw()
    varying = {"lea": ["intercept"], "school": ["intercept", "x"]}
    known = eb.LinearEB("full", varying=varying).fit(rows, "y", groups=GROUPS)
    fit = eb.from_formula("y ~ x + z + (1 | lea) + (1 + x | lea:school)", rows)
    assert fit.estimator_.varying == varying
    assert fit.criterion_ == pytest.approx(known.criterion_, abs=1e-9)
    np.testing.assert_allclose(fit.predict(rows), known.predict(rows))
    fixed = rows[["x", "z"]] @ fit.coef_ + fit.intercept_
    np.testing.assert_allclose(fit.augment()[".fixed"], fixed)
    assert fit.posterior(level="lea").ids.tolist() == sorted(set(rows["lea"]))
    both = eb.from_formula("y ~ x + z + (1 + x || lea/school)", rows)
    known = eb.LinearEB("diag", varying=["intercept", "x"]).fit(rows, "y", groups=GROUPS)
    assert both.criterion_ == pytest.approx(known.criterion_, abs=1e-9)


def with_covariate(seed=0):
    """Rows of groups with a covariate, and its products with x."""
    rows = draw(14, seed)[["lea", "school", "x", "y"]]
    own = np.random.default_rng(seed + 1).normal(size=rows["school"].max() + 1)
    rows["w"] = own[rows["school"]]
    rows["y"] += rows["w"] * (0.7 + 0.5 * rows["x"])
    return rows


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_covariates_of_groups_are_columns_that_do_not_vary(covariance):
    rows = with_covariate()
    options = {"groups": GROUPS}
    fit = eb.LinearEB(covariance).fit(rows, "y", covariates=["w"], **options)
    wide = rows.assign(xw=rows["x"] * rows["w"])
    twin = eb.LinearEB(covariance, varying=["intercept", "x"]).fit(wide, "y", **options)
    assert fit.criterion_ == pytest.approx(twin.criterion_, rel=1e-9)
    # terms of the twin are intercept, x, w, xw
    found = np.concatenate([fit.mean_, fit.population_coef_.ravel()])
    np.testing.assert_allclose(found, twin.mean_, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(fit.predict(rows), twin.predict(wide), rtol=1e-5, atol=1e-6)
    for level in GROUPS:
        one, other = fit.ranef(level=level), twin.ranef(level=level)
        np.testing.assert_allclose(one[["intercept", "x"]], other[["intercept", "x"]], atol=1e-5)
    tests = fit.tests(), twin.tests()
    np.testing.assert_allclose(tests[0]["df"], tests[1]["df"], rtol=1e-3)
    coefficients, w = fit.coef(), rows.groupby(GROUPS)["w"].first().to_numpy()
    above = twin.posterior().mean
    expected = above[:, 0] + above[:, 2] * w
    np.testing.assert_allclose(coefficients["intercept"], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(coefficients["x"], above[:, 1] + above[:, 3] * w, atol=1e-5)
    parents = fit.posterior(level="lea").mean
    np.testing.assert_allclose(parents, twin.posterior(level="lea").mean[:, :2], atol=1e-5)
    fresh = rows.iloc[:3].assign(school=999)
    ends = (
        fit.predict_interval(fresh),
        twin.predict_interval(fresh.assign(xw=fresh["x"] * fresh["w"])),
    )
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-5, atol=1e-5)


def test_covariates_of_groups_in_a_frame_of_their_own(tmp_path):
    rows = with_covariate(1)
    fit = eb.LinearEB().fit(rows, "y", groups=GROUPS, covariates=["w"])
    table = rows.groupby(GROUPS, as_index=False)["w"].first()
    plain = rows.drop(columns="w")
    for given in (table[::-1], table.set_index(GROUPS), table["w"].to_numpy()):
        other = eb.LinearEB().fit(plain, "y", groups=GROUPS, covariates=given)
        assert other.criterion_ == fit.criterion_
        np.testing.assert_array_equal(other.predict(plain), fit.predict(rows))
    fit.save(tmp_path / "fit.json")
    twin = eb.load_fit(tmp_path / "fit.json")
    np.testing.assert_array_equal(twin.predict(rows), fit.predict(rows))
    with pytest.raises(ValueError, match="covariates must have the column 'lea'"):
        eb.LinearEB().fit(plain, "y", groups=GROUPS, covariates=table.drop(columns="lea"))
    with pytest.raises(ValueError, match="covariates are missing for 1 groups"):
        eb.LinearEB().fit(plain, "y", groups=GROUPS, covariates=table[1:])


def test_a_column_of_parents_far_from_zero():
    """It is constant within parents up to rounding, which may take the row of the residuals."""
    rng = np.random.default_rng(7)
    own = np.repeat(np.arange(8), rng.integers(1, 4, 8))
    sizes = rng.integers(2, 9, len(own))
    parent, group = np.repeat(own, sizes), np.repeat(np.arange(len(own)), sizes)
    X = np.column_stack([rng.normal(size=len(group)), rng.normal(size=8)[parent]])
    y = X.sum(axis=1) + rng.normal(size=8)[parent] + rng.normal(size=len(group))
    near, far = (
        eb.LinearEB(varying=["intercept"]).fit(X + np.array([0, move]), y, groups=[parent, group])
        for move in (0, 30)
    )
    assert far.criterion_ == pytest.approx(near.criterion_, abs=1e-9)
