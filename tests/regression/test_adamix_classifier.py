"""Mixtures of logistic regressions."""

import numpy as np
import pytest
from scipy.special import expit, logsumexp
from scipy.stats import norm
from sklearn.base import clone
from sklearn.metrics import log_loss
from sklearn.utils.estimator_checks import check_estimator

import ebfed as eb
from ebfed.regression.evidence_sources import weigh_classes
from ebfed.regression.numerics.evidence import MixturePopulation
from ebfed.testing import check_regression_contract


def clusters(m=400, n=15, p=2, spread=0.4, share=0.3, seed=0):
    """0/1 rows of m clients of two components on opposite sides of zero."""
    rng = np.random.default_rng(seed)
    centre = np.array([1.5, -1.0, 1.0])[:p]
    label = rng.random(m) < share
    theta = np.where(label, -1, 1)[:, None] * centre + spread * rng.normal(size=(m, p))
    groups = np.repeat(np.arange(m), n)
    X = rng.normal(size=(m * n, p))
    y = (rng.random(m * n) < expit((X * theta[groups]).sum(axis=1))).astype(int)
    return X, y, groups, theta, label


def three_classes(m=400, n=20, spread=0.4, share=0.3, seed=0):
    """Rows of classes 0, 1, 2, of m clients of two components."""
    rng = np.random.default_rng(seed)
    label = rng.random(m) < share
    centre = np.where(label, -1, 1)[:, None, None] * np.array([[1.5, -1.0], [-1.0, 1.5]])
    theta = centre + spread * rng.normal(size=(m, 2, 2))
    groups = np.repeat(np.arange(m), n)
    X = rng.normal(size=(m * n, 2))
    logits = np.einsum("np,ncp->nc", X, theta[groups])
    logits = np.column_stack([np.zeros(m * n), logits])
    y = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    return X, y, groups, theta.reshape(m, 4), label


ESTIMATORS = pytest.mark.parametrize(
    "estimator",
    [
        eb.AdaMixClassifier(2, n_init=2, random_state=0),
        eb.AdaMixClassifier(2, covariance="diag", n_init=1, fit_intercept=False, random_state=0),
    ],
    ids=repr,
)


@ESTIMATORS
def test_contract(estimator):
    X, y, groups, *_ = clusters(60, 10)
    check_regression_contract(estimator, X, y, groups, tolerance=1e-2)


@ESTIMATORS
def test_contract_of_three_classes(estimator):
    """Of which a half of the groups, all in one place, never sees the last."""
    X, y, groups, *_ = three_classes(60, 10)
    y[(groups >= 30) & (y == 2)] = 0
    check_regression_contract(estimator, X, y, groups, tolerance=1e-2)


@pytest.mark.parametrize(
    "estimator",
    [
        eb.AdaMixClassifier(1, random_state=0),
        pytest.param(eb.AdaMixClassifier(2, random_state=0), marks=pytest.mark.slow),
    ],
)
# Its data have no groups, so that every row is one, whose spread nothing identifies.
@pytest.mark.filterwarnings("ignore::ebfed.priors.IdentificationWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scikit_learn(estimator):
    # without groups a row of weight 2 is one group, and the row repeated is two
    weights = "check_sample_weight_equivalence_on_dense_data"
    check_estimator(estimator, expected_failed_checks={weights: "weights are of rows of groups"})


def test_one_component_is_the_logistic_mixed_model():
    """Both by expectation propagation."""
    X, y, groups, *_ = clusters(150)
    one = eb.AdaMixClassifier(1).fit(X, y, groups=groups)
    normal = eb.LogisticEB("spherical", method="ep").fit(X, y, groups=groups)
    assert one.log_likelihood_ == pytest.approx(normal.log_likelihood_, abs=0.02)
    np.testing.assert_allclose(one.mean_, normal.mean_, atol=0.01)
    np.testing.assert_allclose(one.variances_[0], np.diag(normal.covariance_), rtol=0.02)


def test_population_is_found():
    """Within 5 standard errors or so; far better than one normal population."""
    X, y, groups, theta, label = clusters(1000)
    est = eb.AdaMixClassifier(2, fit_intercept=False, random_state=0).fit(X, y, groups=groups)
    np.testing.assert_allclose(est.weights_, [0.3, 0.7], atol=0.06)
    np.testing.assert_allclose(est.means_, [[-1.5, 1.0], [1.5, -1.0]], atol=0.2)
    np.testing.assert_allclose(np.sqrt(est.variances_), 0.4, atol=0.15)
    found = est.responsibilities()["component_0"].to_numpy() > 0.5
    assert np.mean(found == label) > 0.97
    low, high = est.posterior().interval()
    assert 0.93 < np.mean((low <= theta) & (theta <= high)) < 0.97
    normal = eb.LogisticEB(fit_intercept=False).fit(X, y, groups=groups)
    errors = [np.mean((each.posterior().mean - theta) ** 2) for each in (est, normal)]
    assert errors[0] < 0.6 * errors[1]


def test_posterior_and_probabilities_are_those_of_quadrature():
    X, y, groups, *_ = clusters(600, 20, p=1, spread=0.6)
    est = eb.AdaMixClassifier(2, fit_intercept=False, random_state=0).fit(X, y, groups=groups)
    est.means_covariance_ = np.zeros_like(est.means_covariance_)  # population as known
    line = np.linspace(-8, 8, 4001)
    prior = logsumexp(
        np.log(est.weights_) + norm.logpdf(line[:, None], est.means_.T, np.sqrt(est.variances_.T)),
        axis=1,
    )
    posterior = est.posterior()
    for g in (0, 50, 120):
        own = groups == g
        sign = np.where(y[own] == 1, 1, -1)
        log = prior - np.logaddexp(0, -sign * X[own, 0] * line[:, None]).sum(axis=1)
        mass = np.exp(log - log.max())
        mass /= mass.sum()
        assert posterior.mean[g, 0] == pytest.approx(mass @ line, abs=0.01)
        assert posterior.sd[g, 0] == pytest.approx(
            np.sqrt(mass @ line**2 - (mass @ line) ** 2), abs=0.01
        )
        told = est.predict_proba(np.array([[0.7]]), groups=[g])[0, 1]
        assert told == pytest.approx(mass @ expit(0.7 * line), abs=0.003)


@pytest.mark.parametrize(("n", "error"), [(0, 1e-7), (30, 0.03), (300, 0.01)])
def test_evidence_of_three_classes_is_that_of_quadrature(n, error):
    """Laplace's method is off by some 1 / n."""
    rng = np.random.default_rng(0)
    mean, root = np.array([0.5, -0.3]), np.array([0.8, 0.5])
    x, y = rng.normal(size=n), rng.integers(3, size=n)
    clients = eb.tables.Clients(np.zeros(1, int), np.array([0, n]), x[:, None], y)
    population = MixturePopulation(np.ones(1), mean[None], root[None] ** 2, 1.0)
    found = weigh_classes(clients, population, np.ones(2), np.arange(3))
    line = np.linspace(-6, 6, 121)
    theta = mean + root * np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    total = norm.logpdf(theta, mean, root).sum(axis=1)
    for each, label in zip(x, y, strict=True):
        logits = np.column_stack([np.zeros(len(theta)), each * theta])
        total += logits[:, label] - logsumexp(logits, axis=1)
    step = 2 * np.log(line[1] - line[0]) + np.log(root).sum()
    assert found.log[0, 0] == pytest.approx(logsumexp(total) + step, abs=error)
    mass = np.exp(total - logsumexp(total))
    np.testing.assert_allclose(mean + root**2 * found.mean[0, 0], mass @ theta, atol=error / 5)


@pytest.mark.parametrize("variances", [[0.3], [0.3, 0.8, 0.1, 1.2]])
def test_slopes_are_those_of_the_approximate_evidence(variances):
    X, y, groups, *_ = three_classes(20, 5)
    clients = eb.tables.Clients.from_rows(X, groups, y)
    means, variances = np.array([[0.5, -0.2, 0.1, 0.4]]), np.array([variances])

    def weigh(means, variances):
        population = MixturePopulation(np.ones(1), means, variances, 1.0)
        return weigh_classes(clients, population, np.array([1.0, 2.0, 1.0, 2.0]), np.arange(3))

    found = weigh(means, variances)
    for j, h in enumerate(1e-5 * np.eye(4)):
        slope = (weigh(means + h, variances).log - weigh(means - h, variances).log) / 2e-5
        np.testing.assert_allclose(found.mean[:, :, j], slope, atol=1e-7)
    for j, h in enumerate(1e-5 * np.eye(variances.shape[1])):
        slope = (weigh(means, variances + h).log - weigh(means, variances - h).log) / 2e-5
        np.testing.assert_allclose(found.variance[:, :, j], slope, atol=1e-7)


def test_population_of_three_classes_is_found():
    X, y, groups, theta, label = three_classes(1000)
    train = np.arange(len(X)) % 2 == 0
    losses = []
    for k in (1, 2):
        est = eb.AdaMixClassifier(k, fit_intercept=False, random_state=0)
        est.fit(X[train], y[train], groups=groups[train])
        told = est.predict_proba(X[~train], groups=groups[~train])
        np.testing.assert_allclose(told.sum(axis=1), 1, atol=1e-12)
        losses.append(log_loss(y[~train], told))
    assert losses[1] < losses[0] - 0.04
    np.testing.assert_allclose(est.weights_, [0.3, 0.7], atol=0.06)
    centre = [1.5, -1.0, -1.0, 1.5]
    np.testing.assert_allclose(est.means_, np.outer([-1, 1], centre), atol=0.25)
    np.testing.assert_allclose(np.sqrt(est.variances_), 0.4, atol=0.15)
    assert np.diff(est.history_["log_likelihood"].dropna()).min() >= 0
    found = est.responsibilities()["component_0"].to_numpy() > 0.5
    assert np.mean(found == label) > 0.97
    low, high = est.posterior().interval()
    assert 0.92 < np.mean((low <= theta) & (theta <= high)) < 0.97


def test_reports_of_three_classes():
    X, y, groups, *_ = three_classes(60, 10)
    est = eb.AdaMixClassifier(2, n_init=1, random_state=0)
    est.fit(X, np.array(list("abc"))[y], groups=groups)
    terms = [f"{term}[{label}]" for label in "bc" for term in ("intercept", "x0", "x1")]
    assert est.terms_ == terms
    assert est.mean_.shape == (6,)
    assert est.coef_.shape == (2, 2)
    assert est.intercept_.shape == (2,)
    tidy = est.tidy()
    assert tidy.loc[tidy["std.error"].notna(), "term"].tolist() == 2 * terms
    assert est.posterior().to_frame()["term"].tolist()[:6] == terms
    assert "Laplace" in est.notes_[-1]
    assert set(est.predict(X[:50])) <= set("abc")
    scaled = eb.AdaMixClassifier(2, covariance="diag", n_init=1, random_state=0)
    here = clone(scaled).fit(X, y, groups=groups)
    there = scaled.fit(X * [1000, 0.01], y, groups=groups)
    np.testing.assert_allclose(there.means_ * np.tile([1, 1000, 0.01], 2), here.means_, atol=1e-6)


def test_bad_input_of_three_classes():
    X, y, groups, *_ = three_classes(30, 10)
    est = eb.AdaMixClassifier(1)
    with pytest.raises(ValueError, match="one class only"):
        clone(est).fit(X, np.zeros(len(X)), groups=groups)
    with pytest.raises(ValueError, match="Unknown label type"):
        clone(est).fit(X, y + 0.5 * X[:, 0], groups=groups)
    est.fit(X, y, groups=groups)
    with pytest.raises(ValueError, match=r"labels that the fit had not: \[7\]"):
        est.posterior(X, np.where(y == 1, 7, y), groups=groups)
    clients, memory = est.protocol().prepare(X, y, groups=groups)
    facts = est.protocol().describe(clients, memory)
    state = est.protocol().start(facts, np.zeros(2, np.uint64))
    for _ in range(2):
        sent = est.protocol().broadcast(state)
        message, memory = est.protocol().local(sent, memory, clients, None)
        est.protocol().check_message(message, facts, sent, state["turn"])
        state = est.protocol().update(state, message)
    message["0"]["mean"] = message["0"]["mean"][:, :, :3]
    with pytest.raises(ValueError, match=r"mean must be numbers of shape \(30, 1, 6\)"):
        est.protocol().check_message(message, facts, sent, state["turn"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_components": 0}, "n_components must be a whole number"),
        ({"covariance": "full"}, "covariance must be"),
        ({"n_rounds": 0}, "n_rounds must be a whole number"),
    ],
)
def test_bad_arguments(arguments, message):
    X, y, groups, *_ = clusters(10)
    with pytest.raises(ValueError, match=message):
        clone(eb.AdaMixClassifier(**arguments)).fit(X, y, groups=groups)
