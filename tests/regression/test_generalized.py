"""Generalized linear models of groups: against dense integrals, figures of lme4, and each other."""

import itertools
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import expit
from sklearn.base import clone

import ebfed as eb
from ebfed.regression.families import family_named
from ebfed.regression.posteriors.predictive import predictive_quantiles
from ebfed.report.view import view_of

REFERENCE = Path(__file__).parents[1] / "reference"
EPIL = pd.read_csv(REFERENCE / "epil.csv").assign(
    lbase=lambda d: np.log(d["base"] / 4) - np.log(d["base"] / 4).mean(),
    lage=lambda d: np.log(d["age"]) - np.log(d["age"]).mean(),
)
FORMULA = "y ~ lbase*trt + lage + V4 + (1 | subject)"
LME4 = pd.read_csv(REFERENCE / "lme4_epil.csv")["estimate"].to_numpy()

RNG = np.random.default_rng(0)
GROUPS = np.repeat(np.arange(40), RNG.integers(1, 9, 40))
N = len(GROUPS)
X = RNG.normal(size=(N, 2))
EXPOSURE = RNG.uniform(0.5, 4.0, N)
OFFSET = np.log(EXPOSURE)
EFFECTS = RNG.normal(size=(40, 2)) * [0.6, 0.4]
PREDICTOR = 0.4 + X @ [0.5, -0.3] + EFFECTS[GROUPS, 0] + EFFECTS[GROUPS, 1] * X[:, 0] + OFFSET
COUNTS = RNG.poisson(np.exp(PREDICTOR)).astype(float)
HALF_WIDTH, N_GRID = 9.0, 241


def dense(log_density, groups, fixed, Z, root):
    """Log marginal likelihood, with random effects ``Z root eta``, over a grid of eta."""
    q = root.shape[1]
    line = np.linspace(-HALF_WIDTH, HALF_WIDTH, N_GRID)
    eta = np.array(list(itertools.product(line, repeat=q)))
    total = -0.5 * (eta**2).sum(axis=1) + q * np.log((line[1] - line[0]) / np.sqrt(2 * np.pi))
    value = 0.0
    for group in np.unique(groups):
        own = groups == group
        z = fixed[own] + eta @ (Z[own] @ root).T
        height = total + log_density(own, z).sum(axis=1)
        value += height.max() + np.log(np.exp(height - height.max()).sum())
    return value


def poisson(own, z):
    return stats.poisson.logpmf(COUNTS[own], np.exp(z))


def is_maximum(fit, value, point, steps):
    """Whether a log-likelihood falls in every direction, by as much as it bends."""
    best = value(point)
    for j, step in enumerate(steps):
        up, down = (value(point + s * step * np.eye(len(point))[j]) for s in (1, -1))
        bend = up + down - 2 * best
        assert bend < 0
        assert abs((up - down) / 2 / bend) < 0.01, "a share of the step, itself one of an error"
    assert fit.log_likelihood_ == pytest.approx(best, abs=1e-5)


def test_random_intercept_is_the_maximum_of_a_dense_integral():
    fit = eb.GeneralizedEB("poisson", varying=["intercept"])
    fit.fit(X, COUNTS, groups=GROUPS, offset=OFFSET)

    def value(point):
        fixed = point[0] + X @ point[1:3] + OFFSET
        return dense(poisson, GROUPS, fixed, np.ones((N, 1)), point[3:].reshape(1, 1))

    point = np.append(fit.mean_, np.sqrt(fit.covariance_[0, 0]))
    steps = np.append(np.sqrt(np.diag(fit.mean_covariance_)), 0.1)
    is_maximum(fit, value, point, 0.01 * steps)
    # the observed information
    h = 1e-3
    eye = h * np.eye(4)
    information = -np.array(
        [
            [
                (value(point + a + b) - value(point + a - b))
                - (value(point - a + b) - value(point - a - b))
                for b in eye
            ]
            for a in eye
        ]
    ) / (4 * h * h)
    np.testing.assert_allclose(
        fit.mean_covariance_, np.linalg.inv(information)[:3, :3], rtol=1e-3, atol=1e-5
    )


SIZE = 1.5
DISPERSED = RNG.negative_binomial(SIZE, SIZE / (SIZE + np.exp(PREDICTOR))).astype(float)
POSITIVE = RNG.gamma(3.0, np.exp(PREDICTOR) / 3.0)


def negative_binomial(own, z, dispersion):
    size = 1 / dispersion
    return stats.nbinom.logpmf(DISPERSED[own], size, size / (size + np.exp(z)))


def gamma(own, z, shape):
    return stats.gamma.logpdf(POSITIVE[own], shape, scale=np.exp(z) / shape)


@pytest.mark.parametrize("varying", [["intercept"], ["intercept", 0]])
@pytest.mark.parametrize(
    ("family", "y", "density"),
    [("negative_binomial", DISPERSED, negative_binomial), ("gamma", POSITIVE, gamma)],
)
def test_shapes_are_the_maximum_of_a_dense_integral(family, y, density, varying):
    fit = eb.GeneralizedEB(family, varying=varying).fit(X, y, groups=GROUPS, offset=OFFSET)
    Z = np.column_stack([np.ones(N), X[:, 0]])[:, : len(varying)]
    shape = fit.tidy().iloc[-1]
    assert shape["term"] == {"gamma": "shape", "negative_binomial": "dispersion"}[family]

    def value(point):
        fixed = point[0] + X @ point[1:3] + OFFSET

        def of_rows(own, z):
            return density(own, z, point[3])

        return dense(of_rows, GROUPS, fixed, Z, np.diag(point[4:]))

    sds = np.sqrt(np.diag(fit.covariance_)[: len(varying)])
    point = np.array([*fit.mean_, shape["estimate"], *sds])
    steps = [*np.sqrt(np.diag(fit.mean_covariance_)), shape["std.error"], *np.full(len(sds), 0.1)]
    is_maximum(fit, value, point, 0.01 * np.array(steps))
    assert fit.n_parameters_ == len(point)
    # where the others are as fitted, the curvature in the shape is the information's lower bound
    step = 1e-2 * shape["std.error"]
    ends = [value(point + s * step * np.eye(len(point))[3]) for s in (1, 0, -1)]
    alone = (-(ends[0] + ends[2] - 2 * ends[1]) / step**2) ** -0.5
    assert alone <= 1.001 * shape["std.error"] < 2 * alone
    low, high = fit.predict_interval(X, groups=GROUPS, offset=OFFSET, level=0.9)
    assert 0.85 < np.mean((low <= y) & (y <= high)) <= 1


@pytest.mark.parametrize(("family", "y"), [("negative_binomial", DISPERSED), ("gamma", POSITIVE)])
def test_shapes_by_sums_saved_and_weighed(family, y, tmp_path):
    fit = eb.GeneralizedEB(family, varying=["intercept"]).fit(X, y, groups=GROUPS)
    sums = eb.GeneralizedEB(family, varying=["intercept"], share="sums").fit(X, y, groups=GROUPS)
    np.testing.assert_allclose(fit.mean_, sums.mean_, rtol=1e-6)
    twice = eb.GeneralizedEB(family, varying=["intercept"])
    twice.fit(X, y, groups=GROUPS, sample_weight=np.full(N, 2))
    repeated = eb.GeneralizedEB(family, varying=["intercept"])
    repeated.fit(np.repeat(X, 2, axis=0), np.repeat(y, 2), groups=np.repeat(GROUPS, 2))
    np.testing.assert_allclose(twice.mean_, repeated.mean_, atol=1e-6)
    pd.testing.assert_frame_equal(twice.tidy(), repeated.tidy(), rtol=1e-4)
    fit.save(tmp_path / "fit.json")
    again = eb.load_fit(tmp_path / "fit.json")
    np.testing.assert_array_equal(again.predict(X, groups=GROUPS), fit.predict(X, groups=GROUPS))
    pd.testing.assert_frame_equal(again.tidy(), fit.tidy())


@pytest.mark.parametrize("covariance", ["diag", "full"])
def test_random_slopes_are_the_maximum_of_a_dense_integral(covariance):
    fit = eb.GeneralizedEB("poisson", covariance, varying=["intercept", 0])
    fit.fit(X, COUNTS, groups=GROUPS, offset=OFFSET)
    Z = np.column_stack([np.ones(N), X[:, 0]])
    root = np.linalg.cholesky(fit.covariance_[:2, :2])
    assert (root[1, 0] == 0) == (covariance == "diag")
    assert not fit.covariance_[2].any()

    def value(point):
        turned = np.array([[point[3], 0.0], [point[5] if len(point) > 5 else 0.0, point[4]]])
        return dense(poisson, GROUPS, point[0] + X @ point[1:3] + OFFSET, Z, turned)

    point = [*fit.mean_, root[0, 0], root[1, 1], root[1, 0]][: 6 if covariance == "full" else 5]
    steps = [*np.sqrt(np.diag(fit.mean_covariance_)), 0.1, 0.1, 0.1][: len(point)]
    is_maximum(fit, value, np.array(point), 0.01 * np.array(steps))
    assert fit.n_parameters_ == len(point)


def test_epil_has_the_figures_of_lme4():
    fit = eb.from_formula(FORMULA, EPIL, family="poisson")
    errors = fit.tidy("fixed")["std.error"].to_numpy()
    # glmer stops where its optimiser does: the likelihood there is lower in the tenth digit
    assert np.max(np.abs(fit.mean_ - LME4[:6]) / errors) < 1.5e-4
    assert np.sqrt(fit.covariance_[0, 0]) == pytest.approx(LME4[6], abs=1e-5)
    trt = (EPIL["trt"] == "progabide").astype(float)
    columns = np.column_stack(
        [np.ones(236), EPIL["lbase"], trt, EPIL["lage"], EPIL["V4"], EPIL["lbase"] * trt]
    )
    y, groups = EPIL["y"].to_numpy(), EPIL["subject"].to_numpy()

    def value(mean, sd):
        def density(own, z):
            return stats.poisson.logpmf(y[own], np.exp(z))

        return dense(density, groups, columns @ mean, np.ones((236, 1)), np.array([[sd]]))

    ours = value(fit.mean_, np.sqrt(fit.covariance_[0, 0]))
    assert fit.log_likelihood_ == pytest.approx(ours, abs=1e-7)
    assert ours - value(LME4[:6], LME4[6]) == pytest.approx(0, abs=1e-7)
    assert ours >= value(LME4[:6], LME4[6]) - 1e-10
    assert "log-normal" in str(fit.summary())
    assert fit.estimator_.varying == ["intercept"]


def test_posterior_moments_are_those_of_a_dense_integral():
    fit = eb.GeneralizedEB("poisson", varying=["intercept"])
    fit.fit(X, COUNTS, groups=GROUPS, offset=OFFSET)
    known = view_of(fit).posterior_given_population()
    sd = np.sqrt(fit.covariance_[0, 0])
    eta = np.linspace(-HALF_WIDTH, HALF_WIDTH, 2001)
    for group in (0, 7, 39):
        own = group == GROUPS
        z = (fit.mean_[0] + X[own] @ fit.mean_[1:] + OFFSET[own])[:, None] + sd * eta
        height = stats.poisson.logpmf(COUNTS[own, None], np.exp(z)).sum(axis=0) - eta**2 / 2
        weight = np.exp(height - height.max())
        weight /= weight.sum()
        mean = weight @ eta
        assert known.mean[group, 0] == pytest.approx(fit.mean_[0] + sd * mean, abs=1e-6)
        spread = sd * np.sqrt(weight @ (eta - mean) ** 2)
        assert known.sd[group, 0] == pytest.approx(spread, abs=1e-6)


def test_binomial_is_logistic_regression():
    y = (COUNTS > 2).astype(float)
    ours = eb.GeneralizedEB("binomial").fit(X, y, groups=GROUPS)
    logistic = eb.LogisticEB().fit(X, y, groups=GROUPS)
    np.testing.assert_array_equal(ours.mean_, logistic.mean_)
    np.testing.assert_array_equal(ours.covariance_, logistic.covariance_)
    assert ours.log_likelihood_ == logistic.log_likelihood_
    np.testing.assert_allclose(
        ours.predict(X, groups=GROUPS), logistic.predict_proba(X, groups=GROUPS)[:, 1], rtol=1e-6
    )


def test_weights_are_numbers_of_rows():
    times = RNG.integers(0, 4, N)
    row = np.repeat(np.arange(N), times)
    for family, y in (("poisson", COUNTS), ("binomial", (COUNTS > 2).astype(float))):
        options = {"offset": OFFSET, "sample_weight": times}
        weighed = eb.GeneralizedEB(family, varying=["intercept"])
        weighed.fit(X, y, groups=GROUPS, **options)
        repeated = eb.GeneralizedEB(family, varying=["intercept"])
        repeated.fit(X[row], y[row], groups=GROUPS[row], offset=OFFSET[row])
        # units of columns are those of rows as they stand, which change no maximum
        np.testing.assert_allclose(weighed.mean_, repeated.mean_, atol=1e-6)
        np.testing.assert_allclose(weighed.covariance_, repeated.covariance_, atol=1e-6)
        assert weighed.log_likelihood_ == pytest.approx(repeated.log_likelihood_, abs=1e-7)


def test_whole_weights_of_binary_rows_count_in_every_estimator():
    """So that `nobs` and BIC are of the same rows, and standard errors those of repeated ones."""
    rows = pd.DataFrame({"x": X[:, 0], "g": GROUPS, "s": GROUPS // 8, "won": COUNTS > 2})
    rows["times"], options = np.random.default_rng(8).integers(1, 4, N), {"family": "binomial"}
    every = rows.loc[rows.index.repeat(rows["times"])]
    one = eb.from_formula("won ~ x + (1 | g)", rows, weights="times", **options)
    for text, link in (("(1 | s/g)", None), ("(1 + x | g)", "probit")):
        given = {"formula": f"won ~ x + {text}", "link": link, **options}
        short, long = (
            eb.from_formula(data=rows, weights="times", **given),
            eb.from_formula(data=every, **given),
        )
        assert isinstance(short.estimator_, eb.GeneralizedEB)
        pd.testing.assert_frame_equal(short.glance(), long.glance(), rtol=1e-6)
        pd.testing.assert_frame_equal(short.tests(), long.tests(), rtol=1e-4)
        assert len(eb.anova(one, short)) == 2
    shares = {"sample_weight": np.full(N, 3), "groups": GROUPS}
    trials = eb.GeneralizedEB("binomial").fit(X, np.minimum(COUNTS, 3) / 3, **shares)
    assert trials.clients_.totals().sum() == N  # of trials, not of rows


def test_trials_are_repeated_rows():
    """But for the number of ways to have so many successes, of which rows show one."""
    trials = RNG.integers(0, 6, N)
    won = RNG.binomial(trials, expit(PREDICTOR - 1))
    first = eb.GeneralizedEB("binomial", varying=["intercept"])
    first.fit(X, won, groups=GROUPS, trials=trials)
    row = np.repeat(np.arange(N), trials)
    y = np.concatenate([[1.0] * a + [0.0] * (b - a) for a, b in zip(won, trials, strict=True)])
    other = eb.GeneralizedEB("binomial", varying=["intercept"])
    other.fit(X[row], y, groups=GROUPS[row])
    np.testing.assert_allclose(first.mean_, other.mean_, atol=1e-6)
    np.testing.assert_allclose(first.covariance_, other.covariance_, atol=1e-6)
    ways = stats.binom.logpmf(won, trials, 0.5).sum() + trials.sum() * np.log(2)
    assert first.log_likelihood_ == pytest.approx(other.log_likelihood_ + ways, abs=1e-6)


def test_columns_of_a_frame_are_known_later():
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(y=COUNTS, g=GROUPS, o=OFFSET, w=2.0)
    given = eb.GeneralizedEB(varying=["intercept"])
    given.fit(X, COUNTS, groups=GROUPS, offset=OFFSET, sample_weight=np.full(N, 2.0))
    named = eb.GeneralizedEB(varying=["intercept"])
    named.fit(frame, "y", groups="g", offset="o", sample_weight="w")
    np.testing.assert_array_equal(named.mean_, given.mean_)
    assert named.terms_ == ["intercept", "a", "b"]
    expected = given.predict(X, groups=GROUPS, offset=OFFSET)
    np.testing.assert_array_equal(named.predict(frame), expected)
    np.testing.assert_array_equal(named.augment(frame)[".fitted"], expected)
    np.testing.assert_array_equal(
        given.augment(X, COUNTS, groups=GROUPS, offset=OFFSET)[".fitted"], expected
    )
    np.testing.assert_allclose(named.posterior(frame).mean, given.posterior().mean, rtol=1e-9)
    assert named.score(frame) == pytest.approx(
        given.score(X, COUNTS, np.full(N, 2.0), groups=GROUPS, offset=OFFSET)
    )
    shuffled = frame.sample(frac=1, random_state=0)
    apart = eb.GeneralizedEB(varying=["intercept"])
    apart.fit(frame[["a", "b"]], shuffled["y"], groups=frame["g"], offset=shuffled["o"])
    once = eb.GeneralizedEB(varying=["intercept"]).fit(X, COUNTS, groups=GROUPS, offset=OFFSET)
    np.testing.assert_array_equal(apart.mean_, once.mean_)


def test_blocks_of_rows_are_one_fit():
    whole = eb.GeneralizedEB().fit(X, COUNTS, groups=GROUPS, offset=OFFSET)
    parts = eb.GeneralizedEB()
    for part in np.array_split(np.arange(N), 3):
        parts.partial_fit(X[part], COUNTS[part], groups=GROUPS[part], offset=OFFSET[part])
    np.testing.assert_allclose(parts.mean_, whole.mean_, rtol=1e-9)
    with pytest.raises(ValueError, match="offset= must give the offset"):
        parts.partial_fit(X, COUNTS, groups=GROUPS)


@pytest.mark.parametrize("turned", [False, True])
def test_blocks_of_whole_and_of_other_weights_are_one_fit(turned):
    """Whole weights are numbers of rows only if those of all rows are."""
    weight, won = np.full(N, 2.0), (COUNTS > 2).astype(int)
    parts = np.array_split(np.arange(N), 3)
    weight[parts[1]] = np.random.default_rng(9).uniform(0.5, 1.5, len(parts[1]))
    whole = eb.GeneralizedEB("binomial").fit(X, won, groups=GROUPS, sample_weight=weight)
    blocks = eb.GeneralizedEB("binomial")
    for part in parts[::-1] if turned else parts:
        blocks.partial_fit(X[part], won[part], groups=GROUPS[part], sample_weight=weight[part])
    pd.testing.assert_frame_equal(blocks.glance(), whole.glance(), rtol=1e-9)
    assert blocks.glance()["nobs"][0] == N
    counted = eb.GeneralizedEB("binomial")
    for part in (parts[0], parts[2]):
        counted.partial_fit(X[part], won[part], groups=GROUPS[part], sample_weight=weight[part])
    assert counted.glance()["nobs"][0] == 2 * (len(parts[0]) + len(parts[2]))


def test_formulas():
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(
        y=COUNTS, g=GROUPS, e=EXPOSURE, n=5, won=np.minimum(COUNTS, 5).astype(int)
    )
    text = "y ~ a + b + offset(log(e)) + (1 + a | g)"
    fit = eb.from_formula(text, frame, family="poisson")
    est = eb.GeneralizedEB(covariance="full", varying=["intercept", 0])
    est.fit(X, COUNTS, groups=GROUPS, offset=OFFSET)
    np.testing.assert_allclose(fit.mean_, est.mean_, rtol=1e-8)
    expected = est.predict(X, groups=GROUPS, offset=OFFSET)
    np.testing.assert_allclose(fit.predict(), expected, rtol=1e-8)
    np.testing.assert_allclose(fit.predict(frame.assign(e=1.0)), expected / EXPOSURE, rtol=1e-8)
    np.testing.assert_allclose(fit.augment()[".resid"], COUNTS - expected, atol=1e-6)
    assert fit.tidy()["term"].tolist()[-3:] == ["sd__intercept", "sd__a", "cor__intercept.a"]
    low, high = fit.predict_interval(frame)
    assert np.mean((low <= COUNTS) & (high >= COUNTS)) > 0.95
    alone = eb.from_formula("y ~ 1 + (1 | g)", frame, family="poisson", prior="log-normal")
    assert alone.mean_.shape == (1,)
    cases = eb.from_formula(
        "cbind(won, trials=n) ~ a + (1 | g)", frame, eb.GeneralizedEB("binomial")
    )
    pairs = eb.from_formula("cbind(won, trials=n) ~ a + (1 | g)", frame)
    np.testing.assert_allclose(cases.mean_, pairs.mean_, atol=1e-6)
    np.testing.assert_allclose(cases.predict(), pairs.predict(), atol=1e-6)
    with pytest.raises(ValueError, match="prior='log-normal' is of family='poisson'"):
        eb.from_formula("y ~ a + (1 | g)", frame, family="gaussian", prior="log-normal")


def test_a_group_that_was_not_seen_has_the_mean_of_the_population():
    fit = eb.GeneralizedEB(varying=["intercept"])
    fit.fit(X, COUNTS, groups=GROUPS, offset=OFFSET)
    new = fit.predict(X[:3], groups=[99, 99, 98], offset=0.0)
    rows = np.column_stack([np.ones(3), X[:3]])
    variance = np.einsum("np,pq,nq->n", rows, fit.covariance_ + fit.mean_covariance_, rows)
    np.testing.assert_allclose(new, np.exp(rows @ fit.mean_ + variance / 2), rtol=1e-9)
    np.testing.assert_allclose(fit.predict(X[:3], offset=0.0), new, rtol=1e-9)


def test_intervals_hold_their_share_of_new_rows():
    rng = np.random.default_rng(1)
    groups = np.repeat(np.arange(1500), 6)
    x = rng.normal(size=(9000, 1))
    z = 0.5 + 0.3 * x[:, 0] + rng.normal(0, 0.7, 1500)[groups]
    y, later = rng.poisson(np.exp(z)), rng.poisson(np.exp(z))
    fit = eb.GeneralizedEB(varying=["intercept"]).fit(x, y, groups=groups)
    for options in ({"groups": groups}, {}):
        low, high = fit.predict_interval(x, level=0.9, **options)
        below, above = np.mean(later < low), np.mean(later > high)
        # quantiles of whole numbers leave out less than they may
        assert below <= 0.05 + 0.005
        assert 0.02 < above <= 0.05 + 0.005
    low, high = fit.predict_interval(x, groups=groups, level=0.9, kind="mean")
    assert np.mean((low <= np.exp(z)) & (np.exp(z) <= high)) == pytest.approx(0.9, abs=0.015)
    for wrong in ({"kind": "none"}, {"level": 1.0}):
        with pytest.raises(ValueError, match=min(wrong)):
            fit.predict_interval(x, **wrong)


def test_intervals_end_where_counts_are_beyond_all_floats_that_differ_by_one():
    none, known = np.zeros(0), np.zeros(3)
    mean = np.log([1e10, 1e17, 1e30])
    found = predictive_quantiles(family_named("poisson"), none, mean, known, 0.975)
    np.testing.assert_allclose(found, np.exp(mean) + 1.96 * np.exp(mean / 2), rtol=1e-6)
    # nearly all is uncertainty of the mean: 41 nodes have its quantile to a node's distance
    wide = predictive_quantiles(
        family_named("poisson"), none, np.array([30.0, 700.0, -800.0]), known + 100.0, 0.975
    )
    assert 30 + 17 < np.log(wide[0]) < 30 + 22
    assert wide[1] > 1e305
    assert wide[2] == 0


def test_negative_binomial_probabilities_of_large_counts():
    # counts of a large mean are nearly gamma
    family, log_dispersion = family_named("negative_binomial"), np.array([0.1])
    size = np.exp(-0.1)
    for mean in (1e10, 1e17, 1e25):
        y = np.array([0.3, 1.0, 2.0]) * mean
        found = family.below(y, np.full(3, np.log(mean)), log_dispersion)
        expected = stats.gamma.cdf(y, size, scale=mean / size)
        np.testing.assert_allclose(found, expected, rtol=1e-8)
    found = family.below(np.arange(5.0), np.full(5, 0.4), log_dispersion)
    expected = stats.nbinom.cdf(np.arange(5), size, size / (size + np.exp(0.4)))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_file_has_the_names_of_columns(tmp_path):
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(y=COUNTS, g=GROUPS, o=OFFSET)
    fit = eb.GeneralizedEB().fit(frame, "y", groups="g", offset="o")
    fit.save(tmp_path / "fit.json")
    again = eb.load_fit(tmp_path / "fit.json")
    np.testing.assert_array_equal(again.predict(frame), fit.predict(frame))


def test_a_file_and_a_pickle_give_the_fit_back(tmp_path):
    fit = eb.GeneralizedEB(covariance="full").fit(X, COUNTS, groups=GROUPS, offset=OFFSET)
    expected = fit.predict(X, groups=GROUPS, offset=OFFSET)
    fit.save(tmp_path / "fit.json")
    for again in (eb.load_fit(tmp_path / "fit.json"), pickle.loads(pickle.dumps(fit))):
        np.testing.assert_array_equal(again.predict(X, groups=GROUPS, offset=OFFSET), expected)
        with pytest.raises(ValueError, match="offset= must give"):
            again.predict(X, groups=GROUPS)


BAD = [
    ({"y": -COUNTS}, "y must be counts: whole numbers from 0"),
    ({"y": COUNTS + 0.5}, "y must be counts"),
    ({"y": 0 * COUNTS}, "y is 0 in every row: the likelihood has no maximum"),
    ({"offset": np.where(np.arange(N) == 3, np.nan, 0)}, "offset"),
    ({"offset": np.full(N, 1e308)}, "offset must be finite, and at most 100 in size"),
    ({"offset": OFFSET[:-1]}, f"offset has {N - 1} entries for the {N} rows"),
    ({"offset": "o"}, "offset='o' names a column"),
    ({"trials": np.ones(N)}, "trials= is for family='binomial'"),
    ({"sample_weight": -np.ones(N)}, "sample_weight must be finite"),
    ({"sample_weight": np.zeros(N)}, "sample_weight must not be zero in every row"),
    ({"y": np.full(N, 1e30)}, "y must be counts: whole numbers from 0 to 2\\*\\*53"),
    ({"y": np.full(N, 1e308)}, "y holds a value too large for float64 arithmetic"),
    ({"y": np.full(N, 1e12)}, r"y must be counts up to 1e\+11 for family='poisson'"),
]


@pytest.mark.parametrize(("given", "message"), BAD, ids=[message for _, message in BAD])
def test_bad_rows_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        eb.GeneralizedEB().fit(X, groups=GROUPS, **({"y": COUNTS} | given))


def test_bad_binomial_rows_are_refused():
    est = eb.GeneralizedEB("binomial")
    with pytest.raises(ValueError, match=r"y must be 0 or 1, or numbers of successes with trials"):
        est.fit(X, COUNTS, groups=GROUPS)
    with pytest.raises(ValueError, match=r"row 0 has 0\.5"):
        est.fit(X, np.full(N, 0.5), groups=GROUPS)
    with pytest.raises(ValueError, match=r"y must be at most trials; row 2 has 4 of 3"):
        est.fit(X, np.where(np.arange(N) == 2, 4, 1), groups=GROUPS, trials=np.full(N, 3))
    with pytest.raises(ValueError, match="trials must be whole numbers"):
        est.fit(X, np.ones(N), groups=GROUPS, trials=np.full(N, 1.5))


def test_wrong_arguments_are_refused():
    for wrong, message in (
        ({"family": "gaussian"}, "family must be one of"),
        ({"covariance": "banded"}, "covariance must be one of"),
        ({"share": "rows"}, "share must be"),
        ({"n_rounds": 0}, "n_rounds must be a whole number"),
    ):
        with pytest.raises(ValueError, match=message):
            eb.GeneralizedEB(**wrong).fit(X, COUNTS, groups=GROUPS)


def test_constant_counts_and_a_column_of_no_events():
    same = eb.GeneralizedEB(varying=["intercept"]).fit(X, np.full(N, 3.0), groups=GROUPS)
    assert any("variance between groups is zero" in note for note in same.notes_)
    np.testing.assert_allclose(same.mean_, [np.log(3), 0, 0], atol=1e-6)
    never = (np.arange(N) % 3 == 0).astype(float)  # rows of which no one has an event
    fit = eb.GeneralizedEB(varying=["intercept"])
    with pytest.warns(eb.IdentificationWarning, match="rises without end"):
        fit.fit(never[:, None], np.where(never > 0, 0.0, COUNTS), groups=GROUPS)
    assert fit.mean_[1] < -10
    assert any("rises without end" in note for note in fit.notes_)


def test_large_slopes_of_dispersed_counts_have_a_likelihood():
    rng = np.random.default_rng(1)
    groups, x = np.repeat(np.arange(30), 8), rng.normal(size=240)
    z = 2 + 2 * rng.normal(size=30)[groups] + 2 * rng.normal(size=30)[groups] * x
    y = rng.poisson(np.exp(np.minimum(z, 12)) * rng.gamma(1, size=240))
    fit = eb.GeneralizedEB("negative_binomial").fit(x[:, None], y, groups=groups)
    assert fit.log_likelihood_ < 0, "counts have probabilities"
    assert abs(fit.mean_[0] - 2) < 2


@pytest.mark.parametrize(
    ("family", "most"), [("poisson", 1e9), ("negative_binomial", 1e10)], ids=lambda x: str(x)
)
@pytest.mark.parametrize("terms", ["(1 | g)", "(x | g)", "(1 | h / g)"])
def test_estimates_do_not_depend_on_the_size_of_large_counts(family, most, terms):
    """Of counts so large that they are their rates, only the intercept tells how large."""
    rng = np.random.default_rng(4)
    g = np.repeat(np.arange(24), 5)
    x = np.tile([-1.0, -0.5, 0.0, 0.5, 1.0], 24)
    z = rng.normal(2, 0.5, 24)[g] + rng.normal(0, 0.4, 8)[g // 3] + rng.normal(0.3, 0.2, 24)[g] * x
    rate = np.exp(z) * (rng.gamma(4, 1 / 4, len(g)) if family != "poisson" else 1)
    found = []
    for size in (1e7, most):
        frame = pd.DataFrame({"y": np.round(rate * size), "x": x, "g": g, "h": g // 3})
        found.append(eb.from_formula("y ~ x + " + terms, frame, family=family).tidy()["estimate"])
    np.testing.assert_allclose(found[1][0] - found[0][0], np.log(most / 1e7), atol=2e-3)
    # both have noise of 1e-4 and less, and searches end near their maxima
    np.testing.assert_allclose(found[1][1:], found[0][1:], rtol=5e-3, atol=2e-3)


@pytest.mark.parametrize("family", ["poisson", "negative_binomial", "gamma"])
def test_rates_are_responses_at_an_exposure_of_one(family):
    rng = np.random.default_rng(1)
    groups, x, years = np.repeat(np.arange(20), 6), rng.normal(size=120), rng.uniform(1, 9, 120)
    y = 1.0 + rng.poisson(years * np.exp(0.3 * x))
    fit = eb.GeneralizedEB(family, varying=["intercept"])
    fit.fit(x[:, None], y, groups=groups, offset=np.log(years))
    found = fit.predict(x[:, None], groups=groups, offset=np.log(years))
    rate = fit.predict(x[:, None], groups=groups, type="rate")
    np.testing.assert_allclose(rate * years, found, rtol=1e-10)
    mean = fit.predict_interval(x[:, None], groups=groups, offset=np.log(years), kind="mean")
    of_rate = fit.predict_interval(x[:, None], groups=groups, kind="rate")
    np.testing.assert_allclose(np.array(of_rate) * years, mean, rtol=1e-10)
    with pytest.raises(ValueError, match="type must be one of 'response', 'rate', 'link'"):
        fit.predict(x[:, None], groups=groups, type="logit")
    shares = eb.GeneralizedEB("binomial", varying=["intercept"])
    shares.fit(x[:, None], rng.integers(0, 2, 120), groups=groups)
    with pytest.raises(ValueError, match="type='rate' is for rows that may have exposures"):
        shares.predict(x[:, None], type="rate")
    with pytest.raises(ValueError, match="type='rate' is for rows that may have exposures"):
        shares.predict_interval(x[:, None], kind="rate")


def test_shares_with_weights_are_of_so_many_trials():
    """As `glm` of R: a share and its weight are successes and trials."""
    rng = np.random.default_rng(2)
    groups, x, n = np.repeat(np.arange(20), 6), rng.normal(size=(120, 1)), rng.integers(1, 9, 120)
    won = rng.binomial(n, 1 / (1 + np.exp(-x[:, 0])))
    fit = eb.GeneralizedEB("binomial", varying=["intercept"])
    expected = clone(fit).fit(x, won, groups=groups, trials=n)
    found = clone(fit).fit(x, won / n, groups=groups, sample_weight=n)
    assert found.log_likelihood_ == pytest.approx(expected.log_likelihood_, rel=1e-12)
    np.testing.assert_allclose(found.mean_, expected.mean_, rtol=1e-9)
    score = expected.score(x, won, groups=groups, trials=n)
    assert found.score(x, won / n, n, groups=groups) == pytest.approx(score, rel=1e-9)
    with pytest.raises(ValueError, match="must be a whole number of successes"):
        clone(fit).fit(x, won / n, groups=groups, sample_weight=n + 1)
    with pytest.raises(ValueError, match=r"GeneralizedEB\('binomial'\) takes shares"):
        eb.LogisticEB().fit(x, won / n, groups=groups, sample_weight=n)


@pytest.mark.parametrize("family", ["poisson", "negative_binomial"])
@pytest.mark.filterwarnings("ignore::UserWarning")  # that the likelihood has no maximum
def test_a_cell_without_events_is_predicted_to_have_none(family):
    """The coefficient goes to minus infinity, with any error: no mean of ``e^z`` under that."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"g": np.repeat(np.arange(8), 6), "cell": np.tile([0, 0, 0, 0, 1, 2], 8)})
    rows["y"] = rng.poisson(4.0, 48) * (rows["cell"] != 2)
    fit = eb.from_formula("y ~ C(cell) + (1 | g)", rows, family=family)
    found, empty = fit.predict(), rows["cell"] == 2
    assert (found[empty] < 0.01).all()
    assert found[~empty].min() > 1
    assert np.isfinite(fit.augment()[".resid"]).all()
    assert fit.score(rows) < 1
    assert (fit.predict(rows.drop(columns="g"))[empty] < 0.01).all()


def test_binary_rows_have_correlated_effects_of_some_terms():
    """The formula was refused: the estimator that was chosen has no such model."""
    rng = np.random.default_rng(0)
    g, x, z = np.repeat(np.arange(12), 8), *rng.normal(size=(2, 96))
    y = np.where(rng.random(96) < expit(x + rng.normal(size=12)[g]), "yes", "no")
    frame = pd.DataFrame({"y": y, "x": x, "z": z, "g": g})
    tidy = eb.from_formula("y ~ x + z + (1 + x | g)", frame, family="binomial").tidy()
    assert "cor__intercept.x" in set(tidy["term"])


def test_groups_that_differ_and_rows_that_scatter_are_both_tried():
    """Each explains such counts, and is a maximum of the likelihood: the lower was found."""
    y = [148, 0, 901, 0, 1078, 0, 0, 0, 93361, 42910, 24627, 67016, 0, 0, 0, 0, 0, 0, 1]
    rows = pd.DataFrame({"y": y, "g": np.repeat([0, 1, 2, 3], [2, 6, 4, 7])})
    prior = {"family": "negative_binomial", "prior": "log-normal"}
    fit = eb.from_formula("y ~ 1 + (1 | g)", rows, **prior)
    assert fit.log_likelihood_ > -93.7, "-95.5, of groups that do not differ"
    assert fit.tidy("ran_pars")["estimate"][0] > 1


def test_a_group_of_one_far_row_is_not_taken_for_rows_that_scatter():
    # there are two maxima: -36.15, with sd 0.416 and shape 0.887, and the higher one
    y = [24.522, 21.0, 19.49, 5.479, 6.682, 3.872, 7.706, 8.491, 6.91, 6.89, 0.0076]
    rows = pd.DataFrame({"y": y, "g": list("aaabbbbbbbc")})
    fit = eb.from_formula("y ~ 1 + (1 | g)", rows, family="gamma")
    found = fit.tidy(effects="ran_pars").set_index("term")["estimate"]
    # by search from twelve places, with a grid of quadrature that is refined (tests/fuzz/oracles)
    assert fit.glance()["logLik"].item() == pytest.approx(-26.26, abs=0.01)
    assert found["sd__intercept"] == pytest.approx(3.487, rel=1e-3)
    assert found["shape"] == pytest.approx(20.21, rel=1e-3)
