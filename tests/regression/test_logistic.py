"""LogisticEB: accuracy, exactness of posteriors, invariance, and what comes of bad input."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

import ebfed as eb
from ebfed.engines import Dask, Local
from ebfed.priors import IdentificationWarning
from ozkara2023.logistic import simulate

METHODS = ["aghq", "ep", "laplace", "gradient"]
KINDS = {"gradient": "spherical"}
JOINT = pytest.mark.filterwarnings("ignore:method='gradient' maximises")


def draw(m=40, n=10, mean=(0.0, 0.0, 0.0), sd=(0.8, 0.8, 0.8), seed=0):
    """Rows, 0/1 responses, groups, coefficients: an intercept and slopes."""
    rng = np.random.default_rng(seed)
    theta = np.asarray(mean) + np.asarray(sd) * rng.standard_normal((m, len(mean)))
    groups = np.repeat(np.arange(m), n)
    X = rng.standard_normal((m * n, len(mean) - 1))
    logit = theta[groups, 0] + (X * theta[groups, 1:]).sum(axis=1)
    return X, (rng.random(m * n) < expit(logit)).astype(int), groups, theta


# --- accuracy ------------------------------------------------------------------------------------


def error(method, n, seed, m=1000):
    clients, theta = simulate(m, n, seed)
    learner = eb.LogisticEB("spherical", method=method, fit_intercept=False, random_state=0)
    posterior = learner.fit(clients).posterior()
    lower, upper = posterior.interval()
    inside = np.mean((lower <= theta) & (theta <= upper))
    return ((posterior.mean - theta) ** 2).sum(axis=1).mean(), inside


def test_small_simulation():
    """Of 300 clients; 3 of 4 runs lie within 0.1 of 1.66 (n = 20), and all of 20 within 0.25."""
    mse, inside = error("ep", 20, 0, m=300)
    assert mse < 1.9
    assert 0.92 < inside < 0.98


@pytest.mark.slow
@pytest.mark.parametrize(("n", "target"), [(10, 2.06), (20, 1.68), (50, 1.09)])
def test_error_and_coverage(n, target):
    """Means of three runs, whose standard error is 0.015; targets lie two or more above."""
    errors, inside = np.transpose([error("ep", n, [seed, n]) for seed in range(3)])
    assert errors.mean() <= target
    assert 0.93 < inside.mean() < 0.97


def random_intercept(mean, sd, m=300, n=8):
    rng = np.random.default_rng(1)
    y = rng.binomial(n, expit(mean + sd * rng.standard_normal(m)))
    nodes, weights = np.polynomial.hermite_e.hermegauss(151)
    log_weights = np.log(np.maximum(weights, 1e-300) / np.sqrt(2 * np.pi))

    def loss(point):
        logit = point[0] + np.exp(point[1]) * nodes
        rows = -y[:, None] * np.logaddexp(0, -logit) - (n - y[:, None]) * np.logaddexp(0, logit)
        return -np.logaddexp.reduce(rows + log_weights, axis=1).sum()

    best = minimize(loss, [0.0, 0.0], tol=1e-8)
    bits = (np.arange(n) < y[:, None]).astype(int).ravel()
    return bits, np.repeat(np.arange(m), n), best


@pytest.mark.parametrize(("mean", "sd"), [(0.0, 1.0), (-1.5, 2.5)])
def test_population_is_that_of_quadrature(mean, sd):
    """A random intercept: the likelihood maximised directly, on 151 nodes."""
    y, groups, best = random_intercept(mean, sd)
    ones = np.ones((len(y), 1))
    exact = eb.LogisticEB(fit_intercept=False).fit(ones, y, groups=groups)
    # the tolerance of the search beside it
    assert exact.mean_[0] == pytest.approx(best.x[0], abs=1e-4)
    assert np.sqrt(exact.covariance_[0, 0]) == pytest.approx(np.exp(best.x[1]), rel=1e-4)
    assert exact.log_likelihood_ == pytest.approx(-best.fun, abs=1e-5)
    est = eb.LogisticEB(method="ep", fit_intercept=False).fit(ones, y, groups=groups)
    # propagation errs by some third of the sampling error, 0.07 and 0.1 here, where groups are of
    # one class; its evidence by some hundredths of each group
    assert est.mean_[0] == pytest.approx(best.x[0], abs=0.04)
    assert np.sqrt(est.covariance_[0, 0]) == pytest.approx(np.exp(best.x[1]), rel=0.05)
    assert est.log_likelihood_ == pytest.approx(-best.fun, abs=0.02 * 300)


def sampled(x, y, mean, covariance, root, n_draws=20_000):
    """Mean and covariance of a posterior by importance sampling, around a normal approximation."""
    rng = np.random.default_rng(0)
    p = len(mean)
    wide = np.linalg.cholesky(1.3 * covariance)
    draws = rng.standard_normal((n_draws, p))
    theta = mean + draws @ wide.T
    height = -0.5 * ((theta - 0.5) ** 2).sum(axis=1) / root**2
    height -= np.logaddexp(0, -np.where(y == 1, 1.0, -1.0) * (theta @ x.T)).sum(axis=1)
    weight = np.exp(height + 0.5 * (draws**2).sum(axis=1))
    weight /= weight.sum()
    first = weight @ theta
    return first, (weight[:, None] * (theta - first)).T @ (theta - first)


def test_moments_of_ten_coefficients_are_those_of_sampling():
    """Of 20 clients of 20 rows; errors of sampling are 1 % of a standard deviation, and of it."""
    clients, _ = simulate(20, 20, 4)
    est = eb.LogisticEB("spherical", fit_intercept=False).fit(clients)
    assert est.method_ == "ep"
    est.mean_, est._result["root"] = np.full(10, 0.5), 0.5 * np.eye(10)
    found = est._population().posterior_given_population(clients)
    for i in range(20):
        own = slice(20 * i, 20 * i + 20)
        mean, covariance = found.mean[i], found.covariance[i]
        given = clients.X[own], clients.y[own], mean, covariance, 0.5
        first, spread = sampled(*given)
        sd = np.sqrt(np.diag(spread))
        assert np.abs((mean - first) / sd).max() < 0.06
        np.testing.assert_allclose(np.sqrt(np.diag(covariance)), sd, rtol=0.06)


# --- posteriors ----------------------------------------------------------------------------------


def exact_posterior(x, y, mean, covariance):
    """Mean and sd of two coefficients, on a grid of eight standard deviations."""
    t = np.linspace(-8, 8, 401)
    grid = np.stack(np.meshgrid(t, t, indexing="ij"), axis=-1).reshape(-1, 2)
    theta = mean + grid * np.sqrt(np.diag(covariance))
    sign = np.where(y == 1, 1.0, -1.0)
    height = -0.5 * (grid**2).sum(axis=1)
    height -= np.logaddexp(0, -sign * (theta @ x.T)).sum(axis=1)
    weight = np.exp(height - height.max())
    weight /= weight.sum()
    first = weight @ theta
    return first, np.sqrt(weight @ (theta - first) ** 2), theta, weight


@pytest.mark.parametrize("method", ["aghq", "ep"])
def test_posteriors_are_those_of_quadrature(method):
    X, y, groups, _ = draw(m=300, n=8, mean=(0.5, 1.0), sd=(0.7, 1.0))
    y[groups == 0] = 1  # separated
    est = eb.LogisticEB(method=method).fit(X, y, groups=groups)
    est.mean_covariance_ = np.zeros((2, 2))  # the population taken as known
    est._result = est._result | {"node_weights": np.zeros(0)}
    posterior = est.posterior(groups=np.arange(6))
    for i in range(6):
        x = np.column_stack([np.ones(8), X[groups == i]])
        mean, sd, theta, weight = exact_posterior(x, y[groups == i], est.mean_, est.covariance_)
        np.testing.assert_allclose(posterior.mean[i], mean, atol=0.05 * sd.max())
        np.testing.assert_allclose(posterior.sd[i], sd, rtol=0.05)
        if method == "aghq":
            np.testing.assert_allclose(posterior.mean[i], mean, atol=1e-5 * sd.max())
            np.testing.assert_allclose(posterior.sd[i], sd, rtol=1e-5)
        for q in (0.025, 0.5, 0.975):
            reached = weight @ (theta <= posterior.quantile(q)[i])
            # normal quantiles of a skewed posterior
            assert np.all(np.abs(reached - q) < (0.02 if q != 0.5 else 0.06))
        probability = est.predict_proba(X[groups == i][:1], groups=[i])[0, 1]
        assert probability == pytest.approx(weight @ expit(theta @ x[0]), abs=0.01)


def test_intervals_cover():
    """Of 3 x 1000 coefficients; a false alarm is beyond four standard errors, 0.4 %."""
    X, y, groups, theta = draw(m=1000, n=15)
    for method in ("aghq", "ep"):
        posterior = eb.LogisticEB(method=method).fit(X, y, groups=groups)
        lower, upper = posterior.posterior().interval()
        inside = np.mean((lower <= theta) & (theta <= upper))
        assert 0.93 < inside < 0.97


def test_new_groups_get_the_population():
    X, y, groups, _ = draw()
    est = eb.LogisticEB().fit(X, y, groups=groups)
    new = est.predict_proba(X, groups=np.full(len(X), 999))
    np.testing.assert_allclose(new, est.predict_proba(X))
    row = np.concatenate(([1.0], X[0]))
    mean = row @ est.mean_
    sd = np.sqrt(row @ (est.covariance_ + est.mean_covariance_) @ row)
    t = np.linspace(-9, 9, 4001)
    weight = np.exp(-(t**2) / 2)
    exact = weight @ expit(mean + sd * t) / weight.sum()
    assert new[0, 1] == pytest.approx(exact, abs=1e-6)
    np.testing.assert_allclose(new.sum(axis=1), 1)
    np.testing.assert_allclose(
        est.decision_function(X, groups=groups),
        np.diff(est.predict_log_proba(X, groups=groups)).ravel(),
    )


# --- invariance ----------------------------------------------------------------------------------


@JOINT
@pytest.mark.parametrize("method", METHODS)
def test_blocks_do_not_matter(method):
    X, y, groups, _ = draw()
    est = eb.LogisticEB(KINDS.get(method, "diag"), method=method, random_state=3)
    one = clone(est).fit(X, y, groups=groups)
    for engine in (Local(13), Local(5, threads=2)):
        other = clone(est).set_params(engine=engine).fit(X, y, groups=groups)
        np.testing.assert_array_equal(one.posterior().mean, other.posterior().mean)
        np.testing.assert_array_equal(one.covariance_, other.covariance_)
        assert one.history_.equals(other.history_)


@JOINT
@pytest.mark.slow
def test_dask_gives_the_same():
    distributed = pytest.importorskip("distributed")
    X, y, groups, _ = draw()
    with distributed.Client(processes=False, dashboard_address=None) as client:
        for method in METHODS:
            est = eb.LogisticEB(KINDS.get(method, "diag"), method=method, random_state=3)
            one = clone(est).fit(X, y, groups=groups)
            other = clone(est).set_params(engine=Dask(client, n_blocks=7)).fit(X, y, groups=groups)
            np.testing.assert_array_equal(one.posterior().mean, other.posterior().mean)


@JOINT
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "labels", [["no", "yes"], [False, True], [-1, 1], [3.0, 7.0], ["a", "bcd"]], ids=str
)
def test_any_two_labels(method, labels):
    X, y, groups, _ = draw(m=12)
    est = eb.LogisticEB(KINDS.get(method, "diag"), method=method, random_state=0)
    plain = clone(est).fit(X, y, groups=groups)
    named = clone(est).fit(X, np.asarray(labels)[y], groups=groups)
    assert named.classes_.tolist() == labels
    np.testing.assert_array_equal(plain.mean_, named.mean_)
    told = named.predict(X, groups=groups)
    np.testing.assert_array_equal(told, np.asarray(labels)[plain.predict(X, groups=groups)])
    assert named.score(X, np.asarray(labels)[y], groups=groups) == np.mean(
        told == np.asarray(labels)[y]
    )


def test_units_do_not_matter():
    X, y, groups, _ = draw()
    plain = eb.LogisticEB().fit(X, y, groups=groups)
    scaled = eb.LogisticEB().fit(X * [1e-6, 1e6], y, groups=groups)
    np.testing.assert_allclose(scaled.mean_, plain.mean_ / [1, 1e-6, 1e6], rtol=1e-4, atol=1e-14)
    assert scaled.log_likelihood_ == pytest.approx(plain.log_likelihood_, abs=1e-5)


@pytest.mark.parametrize("shift", [100.0, 2000.0])
def test_centres_do_not_matter(shift):
    X, y, groups, _ = draw()
    plain = eb.LogisticEB("full").fit(X, y, groups=groups)
    moved = eb.LogisticEB("full").fit(X + shift, y, groups=groups)
    assert moved.log_likelihood_ == pytest.approx(plain.log_likelihood_, abs=1e-5)
    np.testing.assert_allclose(moved.coef_, plain.coef_, atol=1e-4)
    np.testing.assert_allclose(
        moved.predict_proba(X + shift, groups=groups),
        plain.predict_proba(X, groups=groups),
        atol=0.01,
    )


@pytest.mark.filterwarnings("ignore:Columns of X are collinear")
def test_collinear_columns():
    X, y, groups, _ = draw()
    plain = eb.LogisticEB("full").fit(X, y, groups=groups)
    wide = np.column_stack([X, 2 * X[:, 0], np.full(len(X), 3.0)])
    est = eb.LogisticEB("full").fit(wide, y, groups=groups)
    # points of importance sampling are others
    assert est.log_likelihood_ == pytest.approx(plain.log_likelihood_, abs=0.3)
    assert est.coef_[0] + 2 * est.coef_[2] == pytest.approx(plain.coef_[0], abs=0.02)
    assert any("of 5 mean coefficients only 3" in note for note in est.notes_)
    unknown = est.tidy().query("effect == 'fixed'")["std.error"].isna()
    assert unknown.tolist() == [True, True, False, True, True]


def test_turning_features_turns_a_full_covariance():
    X, y, groups, _ = draw(m=100)
    plain = eb.LogisticEB("full").fit(X, y, groups=groups)
    turned = eb.LogisticEB("full").fit(X @ [[1.0, 1.0], [0.0, 1.0]], y, groups=groups)
    # points of importance sampling do not turn with them
    assert turned.log_likelihood_ == pytest.approx(plain.log_likelihood_, abs=0.3)


def test_frames():
    X, y, groups, _ = draw()
    table = pd.DataFrame(X, columns=["u", "v"]).assign(won=np.where(y, "yes", "no"), who=groups)
    est = eb.LogisticEB().fit(table, "won", groups="who")
    assert est.tidy()["term"].tolist() == [
        "intercept", "u", "v", "sd__intercept", "sd__u", "sd__v",
    ]  # fmt: skip
    assert set(est.predict(table)) == {"yes", "no"}
    assert len(est.augment(table)) == len(table)
    assert "Gauss-Hermite" in str(est.summary())
    est = eb.LogisticEB(method="ep").fit(table, "won", groups="who")
    assert "expectation propagation" in str(est.summary())


# --- boundaries ----------------------------------------------------------------------------------


def finite(est, X, groups):
    posterior = est.posterior()
    lower, upper = posterior.interval()
    return all(
        np.isfinite(x).all()
        for x in (posterior.mean, posterior.sd, lower, upper, est.predict_proba(X, groups=groups))
    )


@JOINT
@pytest.mark.parametrize("method", METHODS)
def test_separated_groups(method):
    X, y, groups, _ = draw()
    y[groups % 2 == 0] = groups[groups % 2 == 0] // 2 % 2
    est = eb.LogisticEB(KINDS.get(method, "diag"), method=method, random_state=0).fit(
        X, y, groups=groups
    )
    assert finite(est, X, groups)


def test_groups_of_one_class_each():
    """The likelihood rises with the variance of intercepts: that of the fit is large."""
    X, _, groups, _ = draw()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        est = eb.LogisticEB().fit(X, groups % 2, groups=groups)
    assert finite(est, X, groups)
    assert est.covariance_[0, 0] > 50
    with pytest.warns(IdentificationWarning, match="groups all of one class") as caught:
        eb.LogisticEB().fit(X, groups % 2, groups=groups)
    assert len(caught) == 1


@pytest.mark.parametrize("method", ["aghq", "ep", "laplace"])
@pytest.mark.parametrize("alone", [False, True], ids=["one client", "rows alone"])
def test_without_spread_it_is_logistic_regression(method, alone):
    X, y, *_ = draw()
    groups = np.arange(len(y)) if alone else np.zeros(len(y), int)
    with pytest.warns(IdentificationWarning, match="not identified"):
        est = eb.LogisticEB(KINDS.get(method, "diag"), method=method, random_state=0).fit(
            X, y, groups=groups
        )
    plain = LogisticRegression(C=1e8, tol=1e-10).fit(X, y)
    # the spread is a thousandth, in units of the logit
    np.testing.assert_allclose(est.coef_, plain.coef_[0], atol=2e-4)
    assert est.intercept_ == pytest.approx(plain.intercept_[0], abs=2e-4)
    assert np.all(est.covariance_ == 0)
    assert finite(est, X, groups)


@JOINT
@pytest.mark.filterwarnings("ignore:Columns of X are collinear")
@pytest.mark.parametrize("method", METHODS)
def test_columns_that_say_nothing(method):
    X, y, groups, _ = draw()
    wide = np.column_stack([X, np.full(len(X), 3.0), np.zeros(len(X)), X[:, 0]])
    varying = ["intercept", 3, 4] if method == "aghq" else None  # three at most
    est = eb.LogisticEB(KINDS.get(method, "diag"), method=method, varying=varying, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        est.fit(wide, y, groups=groups)
    assert finite(est, wide, groups)
    assert np.abs(est.mean_).max() < 10


def test_no_spread_is_a_normal_answer():
    """Of 200 groups without spread: its estimates stay below 0.15, ten standard errors of zero."""
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(4000, 1)), np.arange(4000) % 200
    est = eb.LogisticEB().fit(X, rng.random(4000) < expit(X[:, 0]), groups=groups)
    assert np.all(np.diag(est.covariance_) < 0.15)
    assert any("variance between groups is zero" in note for note in est.notes_) == np.any(
        np.diag(est.covariance_) == 0
    )


def test_classes_separated_without_error():
    X, _, groups, _ = draw()
    with pytest.warns(IdentificationWarning, match="separated without error"):
        est = eb.LogisticEB().fit(X, (X[:, 0] > 0).astype(int), groups=groups)
    assert any("separated without error" in note for note in est.notes_)
    assert est.score(X, (X[:, 0] > 0).astype(int), groups=groups) > 0.95


def test_laplace_and_descent_say_what_they_are():
    X, y, groups, _ = draw()
    approximate = eb.LogisticEB(method="laplace").fit(X, y, groups=groups)
    assert any("underestimates" in note for note in approximate.notes_)
    with pytest.warns(IdentificationWarning, match="has no maximum"):
        est = eb.LogisticEB("spherical", method="gradient").fit(X, y, groups=groups)
    assert np.isnan(est.log_likelihood_)
    assert est.tidy()["std.error"].isna().all()
    with pytest.raises(ValueError, match="diverged"):
        eb.LogisticEB("spherical", method="gradient", learning_rate=1e200).fit(X, y, groups=groups)


def test_rounds_may_run_out():
    X, y, groups, _ = draw()
    with pytest.warns(ConvergenceWarning, match="Raise n_rounds"):
        est = eb.LogisticEB(n_rounds=2).fit(X, y, groups=groups)
    assert finite(est, X, groups)


X, Y, GROUPS, _ = draw(m=10)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("rows", "y", "message"),
    [
        (X, np.zeros(len(X), int), "one class only"),
        (X, np.arange(len(X)) % 3, "multiclass: y has 3 classes"),
        (X, np.linspace(0, 1, len(X)), "continuous"),
        (X, np.where(Y == 1, 1.0, np.nan), "NaN"),
        (X, None, "y"),
        (np.where(X > 1, np.nan, X), Y, "NaN"),
        (np.where(X > 1, np.inf, X), Y, "infinity"),
        (1e307 * X, Y, "infinity|too large"),
        (1e200 * X, Y, "too large"),
        (X[:5], Y, "inconsistent|rows"),
    ],
)
def test_bad_rows(method, rows, y, message):
    with pytest.raises(ValueError, match=message):
        eb.LogisticEB(KINDS.get(method, "diag"), method=method).fit(
            rows, y, groups=GROUPS[: len(rows)]
        )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"covariance": "wide"}, "covariance must be one of"),
        ({"method": "gibbs"}, "method must be one of"),
        ({"n_rounds": 0}, "n_rounds must be"),
        (
            {"covariance": "spherical", "method": "gradient", "learning_rate": 0.0},
            "learning_rate must",
        ),
        ({"method": "gradient"}, "needs covariance='spherical'"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        eb.LogisticEB(**arguments).fit(X, Y, groups=GROUPS)


def test_labels_that_the_fit_had_not():
    est = eb.LogisticEB().fit(X, Y, groups=GROUPS)
    with pytest.raises(ValueError, match="labels that the fit had not"):
        est.posterior(X, Y + 1, groups=GROUPS)
    with pytest.raises(ValueError, match="multiclass"):
        clone(est).partial_fit(X, Y, classes=[0, 1, 2], groups=GROUPS)


def test_missing_labels_and_labels_of_objects():
    missing = pd.Series(Y).astype("boolean")
    missing[3] = pd.NA
    with pytest.raises(ValueError, match="y contains missing values"):
        eb.LogisticEB().fit(X, missing, groups=GROUPS)
    for labels in ([0, 1], [False, True], ["a", "b"]):
        y = np.array(labels, object)[Y]
        assert eb.LogisticEB().fit(X, y, groups=GROUPS).classes_.tolist() == labels
    with pytest.raises(ValueError, match="several types: int, str"):
        eb.LogisticEB().fit(X, np.array([0, "b"], object)[Y], groups=GROUPS)


def test_a_first_block_of_one_class():
    first = Y == 1
    with pytest.raises(ValueError, match="classes="):
        eb.LogisticEB().partial_fit(X[first], Y[first] > 0, groups=GROUPS[first])
    est = eb.LogisticEB()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the likelihood of one class has no maximum
        est.partial_fit(X[first], Y[first] > 0, classes=[0, 1], groups=GROUPS[first])
    est.partial_fit(X[~first], Y[~first] > 0, groups=GROUPS[~first])
    whole = eb.LogisticEB().fit(X, Y, groups=GROUPS)
    np.testing.assert_allclose(est.mean_, whole.mean_, rtol=1e-6)
