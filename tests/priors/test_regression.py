"""Populations with covariates, against the same models written out with dense matrices."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize, minimize_scalar
from scipy.special import betaln, expit, gammaln
from scipy.stats import betabinom
from statsmodels.discrete.discrete_model import Logit
from statsmodels.genmod.families import Binomial as BinomialFamily
from statsmodels.genmod.generalized_linear_model import GLM

from ebfed.likelihoods import Binomial, Gaussian, Joined
from ebfed.priors import Beta, Discrete, IdentificationWarning, Normal, Prior
from ebfed.priors.regression import check_covariates


def messages(m, seed, spread=1.0, same=False):
    """Estimates of known errors (two of them, if `same`), and two covariates."""
    rng = np.random.default_rng(seed)
    W = np.column_stack([rng.normal(1000, 3, m), rng.random(m) < 0.4])
    errors = rng.choice([0.5, 1.0], m) if same else rng.uniform(0.3, 2.0, m)
    values = 5 + 0.3 * W[:, 0] - 2 * W[:, 1]
    values += spread * rng.standard_normal(m) + errors * rng.standard_normal(m)
    return W, Gaussian(values[:, None], errors[:, None] ** 2)


def dense(W, likelihood, variance, reml=True):
    """Criterion, coefficients of centred covariates and their covariance."""
    x, v = likelihood.values[:, 0], likelihood.variances[:, 0] + variance
    A = np.column_stack([np.ones(len(W)), W - W.mean(axis=0)])
    information = A.T @ (A / v[:, None])
    beta = np.linalg.solve(information, A.T @ (x / v))
    value = np.log(v).sum() + ((x - A @ beta) ** 2 / v).sum()
    value += reml * np.linalg.slogdet(information)[1]
    return value, beta, np.linalg.inv(information)


# --- Normal --------------------------------------------------------------------------------------


@pytest.mark.parametrize("same", [False, True])
@pytest.mark.parametrize("method", ["reml", "ml"])
def test_fay_herriot_is_the_direct_maximum(method, same):
    W, likelihood = messages(60, 1, same=same)
    prior = Normal(method=method).fit(likelihood, W)
    direct = minimize_scalar(
        lambda t: dense(W, likelihood, t, method == "reml")[0],
        bounds=(0, 10),
        method="bounded",
        options={"xatol": 1e-10},
    )
    assert prior.variance_.item() == pytest.approx(direct.x, rel=1e-6)
    value, beta, covariance = dense(W, likelihood, prior.variance_.item(), method == "reml")
    assert value <= direct.fun + 1e-10
    np.testing.assert_allclose(np.r_[prior.mean_, prior.slopes_.ravel()], beta, rtol=1e-9)
    np.testing.assert_allclose(prior.coefficients_covariance_[0], covariance, rtol=1e-9)
    intercept = beta[0] - W.mean(axis=0) @ beta[1:]
    np.testing.assert_allclose(prior.coefficients_.ravel(), [intercept, *beta[1:]], rtol=1e-9)
    move = np.r_[1, -W.mean(axis=0)]
    np.testing.assert_allclose(
        prior.coefficient_errors_.ravel(),
        np.sqrt([move @ covariance @ move, *np.diag(covariance)[1:]]),
        rtol=1e-9,
    )
    assert prior.n_parameters_ == 4


@pytest.mark.parametrize("seed", range(40))
def test_optimum_is_global(seed):
    """Eight groups of very unequal errors: profiles with two minima, or one at zero."""
    rng = np.random.default_rng(seed)
    W, errors = rng.standard_normal((8, 1)), 10 ** rng.uniform(-1.5, 1, 8)
    values = rng.standard_normal(8) + errors * rng.standard_normal(8)
    likelihood = Gaussian(values[:, None], errors[:, None] ** 2)
    variance = Normal().fit(likelihood, W).variance_.item()
    grid = np.append(0, np.geomspace(1e-8, 1e3, 500))
    best = min(dense(W, likelihood, t)[0] for t in grid)
    assert dense(W, likelihood, variance)[0] <= best + 1e-10


def test_no_spread_is_a_normal_answer():
    W, likelihood = messages(40, 2, spread=0.0)
    prior = Normal().fit(likelihood, W)
    assert prior.variance_ == 0
    assert any("variance between groups is zero" in note for note in prior.notes_)
    expected = W @ prior.slopes_ + prior.coefficients_[0]
    np.testing.assert_allclose(prior.at(W).posterior(likelihood).mean, expected, rtol=1e-10)


@pytest.mark.parametrize("same", [False, True])
def test_moments_are_those_of_dersimonian_and_laird(same):
    W, likelihood = messages(50, 4, same=same)
    s2, x = likelihood.variances[:, 0], likelihood.values[:, 0]
    A = np.column_stack([np.ones(50), W - W.mean(axis=0)])
    P = np.diag(1 / s2)
    P -= P @ A @ np.linalg.solve(A.T @ P @ A, A.T @ P)
    expected = (x @ P @ x - (50 - 3)) / np.trace(P)
    assert Normal(method="moments").fit(likelihood, W).variance_.item() == pytest.approx(
        expected, rel=1e-8
    )


def test_noiseless_parameters_are_a_plain_regression():
    W, likelihood = messages(30, 5)
    prior = Normal().fit(Gaussian(likelihood.values, np.zeros((30, 1))), W)
    A = np.column_stack([np.ones(30), W - W.mean(axis=0)])
    beta, squares, *_ = np.linalg.lstsq(A, likelihood.values[:, 0])
    np.testing.assert_allclose(np.r_[prior.mean_, prior.slopes_.ravel()], beta, rtol=1e-9)
    assert prior.variance_.item() == pytest.approx(squares.item() / 27, rel=1e-9)


@pytest.mark.parametrize("covariance", ["diag", "spherical"])
def test_open_scale_and_several_columns(covariance):
    rng = np.random.default_rng(6)
    n, W = rng.integers(1, 9, 80), rng.standard_normal((80, 2))
    theta = W @ rng.standard_normal((2, 2)) + rng.standard_normal((80, 2))
    values = theta + rng.standard_normal((80, 2)) / np.sqrt(n)[:, None]
    degrees = int((n - 1).sum())
    scatter = rng.chisquare(degrees, 2)
    likelihood = Gaussian(values, 1 / n[:, None], scatter, degrees)
    prior = Normal(covariance=covariance).fit(likelihood, W)
    A = np.column_stack([np.ones(80), W - W.mean(axis=0)])

    def criterion(logs, columns):
        value = 0.0
        for j in columns:
            t, s2 = np.exp(logs)
            v = t + s2 / n
            information = A.T @ (A / v[:, None])
            rest = values[:, j] - A @ np.linalg.solve(information, A.T @ (values[:, j] / v))
            value += np.log(v).sum() + (rest**2 / v).sum() + np.linalg.slogdet(information)[1]
            value += degrees * np.log(s2) + scatter[j] / s2
        return value

    for columns in [(0,), (1,)] if covariance == "diag" else [(0, 1)]:
        best = minimize(criterion, [0, 0], args=(columns,), options={"gtol": 1e-7})
        t, s2 = np.exp(best.x)
        np.testing.assert_allclose(prior.variance_[list(columns)], t, rtol=1e-5)
        np.testing.assert_allclose(prior.noise_variance_[list(columns)], s2, rtol=1e-5)
        logs = np.log([prior.variance_[columns[0]], prior.noise_variance_[columns[0]]])
        assert criterion(logs, columns) <= best.fun + 1e-9
    assert prior.n_parameters_ == 6 + (2 if covariance == "diag" else 1)


def test_posterior_is_the_best_predictor_and_its_error_exact():
    """Henderson's mixed-model equations: the variance given, the coefficients not."""
    W, likelihood = messages(25, 7)
    prior = Normal(variance=0.8).fit(likelihood, W)
    posterior = prior.at(W).posterior(likelihood)
    A = np.column_stack([np.ones(25), W - W.mean(axis=0)])
    precision = 1 / likelihood.variances[:, 0]
    system = np.block(
        [
            [A.T @ (A * precision[:, None]), A.T * precision],
            [(A * precision[:, None]), np.diag(precision + 1 / 0.8)],
        ]
    )
    inverse = np.linalg.inv(system)
    x = likelihood.values[:, 0] * precision
    solution = inverse @ np.r_[A.T @ x, x]
    combine = np.hstack([A, np.eye(25)])
    np.testing.assert_allclose(posterior.mean[:, 0], combine @ solution, rtol=1e-9)
    errors = np.sqrt(np.diag(combine @ inverse @ combine.T))
    np.testing.assert_allclose(posterior.sd[:, 0], errors, rtol=1e-9)


def test_new_clients_and_silent_ones():
    W, likelihood = messages(25, 8)
    prior = Normal(variance=0.8).fit(likelihood, W)
    nothing = Gaussian(np.zeros((25, 1)), np.full((25, 1), np.inf))
    there = prior.at(W)
    posterior = there.posterior(nothing)
    np.testing.assert_allclose(posterior.mean, there.mean_)
    np.testing.assert_allclose(posterior.sd**2, 0.8 + there.mean_variance_)
    # messages that say nothing do not move the fit either
    both = Gaussian(
        np.vstack([likelihood.values, nothing.values]),
        np.vstack([likelihood.variances, nothing.variances]),
    )
    again = Normal(variance=0.8).fit(both, np.vstack([W, 5 * W]))
    np.testing.assert_allclose(again.coefficients_, prior.coefficients_, rtol=1e-9)


@pytest.mark.parametrize("i", range(4))
def test_closed_form_is_quadrature(i):
    W, likelihood = messages(30, 9)
    there = Normal().fit(likelihood, W).at(W)
    there.mean_variance_, there.variance_variance_ = np.zeros((30, 1)), np.zeros(1)
    mine = likelihood.take(slice(i, i + 1))
    one = Normal.known(there.variance_, there.mean_[i])
    numeric = Prior.posterior(one, mine)
    closed = there.posterior(likelihood, integrate=False)
    assert closed.mean[i] == pytest.approx(numeric.mean[0], abs=1e-4)
    assert closed.sd[i] == pytest.approx(numeric.sd[0], abs=1e-3)
    marginal = there.log_marginal(likelihood)[i]
    assert marginal == pytest.approx(Prior.log_marginal(one, mine)[0], abs=1e-4)


def test_no_covariates_are_none():
    _, likelihood = messages(30, 10)
    empty = np.empty((30, 0))
    prior, plain = Normal().fit(likelihood, empty), Normal().fit(likelihood)
    for name in ("mean_", "variance_", "mean_variance_", "variance_variance_", "kurtosis_"):
        np.testing.assert_allclose(getattr(prior, name), getattr(plain, name), rtol=1e-9)
    one, other = (each._posterior(likelihood) for each in (prior.at(empty), plain))
    np.testing.assert_allclose(one.mean, other.mean, rtol=1e-9)
    np.testing.assert_allclose(one.sd, other.sd, rtol=1e-9)
    np.testing.assert_allclose(one.interval(kind="robust"), other.interval(kind="robust"), 1e-6)
    assert plain.fit(likelihood).slopes_ is None
    with pytest.raises(AttributeError, match="without covariates"):
        _ = plain.coefficients_
    with pytest.raises(ValueError, match="without covariates"):
        plain.at(empty)


def test_a_second_fit_forgets_the_covariates():
    W, likelihood = messages(30, 10)
    prior = Normal().fit(likelihood, W)
    assert prior.fit(likelihood).slopes_ is None
    np.testing.assert_array_equal(prior.mean_, Normal().fit(likelihood).mean_)


NUMBER = st.floats(-1e3, 1e3)
FACTOR = st.floats(1e-3, 1e3).map(lambda x: round(x, 6))


@given(st.tuples(FACTOR, FACTOR, st.floats(-2, 2)), st.tuples(NUMBER, NUMBER))
def test_recoding_covariates_changes_nothing(scale, shift):
    rng = np.random.default_rng(11)
    V = np.column_stack([rng.normal(0, 3, 40), rng.random(40) < 0.4])
    errors = rng.uniform(0.3, 2.0, (40, 1))
    likelihood = Gaussian(V @ [[1.0], [-2.0]] + rng.standard_normal((40, 1)), errors**2)
    mixed = V @ np.array([[scale[0], scale[1] * scale[2]], [0, scale[1]]]) + shift
    one, other = Normal().fit(likelihood, V), Normal().fit(likelihood, mixed)
    np.testing.assert_allclose(other.variance_, one.variance_, rtol=1e-8)
    ours, theirs = one.at(V), other.at(mixed)
    np.testing.assert_allclose(theirs.mean_, ours.mean_, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(theirs.mean_variance_, ours.mean_variance_, rtol=1e-8)


# --- Beta ----------------------------------------------------------------------------------------


def counts(m, seed, concentration=8.0, longest=40):
    rng = np.random.default_rng(seed)
    W = np.column_stack([rng.normal(1000, 3, m), rng.random(m) < 0.4])
    mean = expit(-0.5 + 0.2 * (W[:, 0] - 1000) - W[:, 1])
    rate = (
        mean if np.isinf(concentration) else rng.beta(*concentration * np.array([mean, 1 - mean]))
    )
    trials = rng.integers(1, longest + 1, m)
    return W, Binomial(rng.binomial(trials, rate)[:, None], trials)


def negative(point, W, likelihood):
    """Minus the beta-binomial log-likelihood, by gamma functions."""
    z, n = likelihood.successes[:, 0], likelihood.trials
    mean = expit(np.column_stack([np.ones(len(W)), W - W.mean(axis=0)]) @ point[:-1])
    alpha, beta = mean * np.exp(point[-1]), (1 - mean) * np.exp(point[-1])
    choose = gammaln(n + 1) - gammaln(z + 1) - gammaln(n - z + 1)
    return -(choose + betaln(z + alpha, n - z + beta) - betaln(alpha, beta)).sum()


def test_beta_binomial_regression_is_the_direct_maximum():
    W, likelihood = counts(200, 1)
    prior = Beta().fit(likelihood, W)
    direct = minimize(negative, [0, 0, 0, 2], args=(W, likelihood), options={"gtol": 1e-6})
    there = prior.at(W)
    value = there.log_marginal(likelihood).sum()
    assert value == pytest.approx(-direct.fun, rel=1e-9)
    assert value >= -direct.fun - 1e-9
    found = np.r_[prior.predictor_, prior.slopes_.ravel(), np.log(prior.concentration_)]
    np.testing.assert_allclose(found, direct.x, atol=1e-6)
    alpha, beta = there.alpha_[:, 0], there.beta_[:, 0]
    z, n = likelihood.successes[:, 0], likelihood.trials
    np.testing.assert_allclose(
        there.log_marginal(likelihood), betabinom.logpmf(z, n, alpha, beta), rtol=1e-9
    )
    posterior = there.posterior(likelihood)
    np.testing.assert_allclose(posterior.mean[:, 0], (alpha + z) / (alpha + beta + n), rtol=1e-12)
    assert prior.n_parameters_ == 4


def test_errors_of_coefficients_are_about_those_of_maximum_likelihood():
    W, likelihood = counts(2000, 2)
    prior = Beta().fit(likelihood, W)
    at = np.r_[prior.predictor_, prior.slopes_.ravel(), np.log(prior.concentration_)]
    steps = 1e-3 * np.eye(4)
    hessian = [
        [
            sum(
                a * b * negative(at + a * s + b * t, W, likelihood)
                for a in (-1, 1)
                for b in (-1, 1)
            )
            / 4e-6
            for t in steps
        ]
        for s in steps
    ]
    covariance = np.linalg.inv(hessian)[:3, :3]
    # quasi-likelihood, which asks for the variance only: a few percent less efficient
    ratio = np.diag(prior.coefficients_covariance_[0]) / np.diag(covariance)
    assert np.all((ratio > 0.9) & (ratio < 1.2))


def test_without_overdispersion_it_is_logistic_regression():
    W, likelihood = counts(300, 0, np.inf)
    prior = Beta().fit(likelihood, W)
    assert np.isinf(prior.alpha_)
    assert any("overdispersion is zero" in note for note in prior.notes_)
    z, n = likelihood.successes[:, 0], likelihood.trials
    A = np.column_stack([np.ones(300), W - W.mean(axis=0)])
    model = GLM(np.column_stack([z, n - z]), A, family=BinomialFamily()).fit(tol=1e-14)
    found = np.r_[prior.predictor_, prior.slopes_.ravel()]
    np.testing.assert_allclose(found, model.params, rtol=1e-6)
    errors = np.sqrt(np.diag(prior.coefficients_covariance_[0]))
    np.testing.assert_allclose(errors, model.bse, rtol=1e-6)
    np.testing.assert_allclose(prior.at(W).log_marginal(likelihood).sum(), model.llf, rtol=1e-6)


def test_single_rows_are_logistic_regression():
    W, likelihood = counts(300, 3, longest=1)
    with pytest.warns(IdentificationWarning, match="No group has two rows"):
        prior = Beta().fit(likelihood, W)
    A = np.column_stack([np.ones(300), W - W.mean(axis=0)])
    model = Logit(likelihood.successes[:, 0], A).fit(disp=False, tol=1e-12)
    found = np.r_[prior.predictor_, prior.slopes_.ravel()]
    np.testing.assert_allclose(found, model.params, rtol=1e-6)


@pytest.mark.parametrize("which", ["separated", "all zero", "all one"])
def test_separation_is_bounded_and_said(which):
    w = np.linspace(-1, 1, 40)[:, None]
    hits = {"separated": np.where(w[:, 0] > 0.1, 5, 0), "all zero": 0, "all one": 5}[which]
    likelihood = Binomial(np.broadcast_to(hits, 40)[:, None].astype(np.int64), np.full(40, 5))
    with pytest.warns(IdentificationWarning, match="separate successes from failures"):
        prior = Beta().fit(likelihood, w)
    there = prior.at(w)
    posterior = there.posterior(likelihood)
    for values in (there.mean_, posterior.mean, posterior.sd, *posterior.interval()):
        assert np.isfinite(values).all()
    assert np.abs(prior.coefficients_).max() < 1e3
    away = np.abs(w[:, 0] - 0.1) > 0.1
    np.testing.assert_allclose(posterior.mean[away, 0], (hits + 0 * w[:, 0])[away] / 5, atol=1e-3)


def test_beta_without_covariates():
    _, likelihood = counts(150, 4)
    empty = np.empty((150, 0))
    prior, plain = Beta().fit(likelihood, empty), Beta().fit(likelihood)
    for name in ("mean_", "concentration_", "variance_", "mean_variance_", "variance_variance_"):
        np.testing.assert_allclose(getattr(prior, name), getattr(plain, name), rtol=1e-6)
    one, other = (each._posterior(likelihood) for each in (prior.at(empty), plain))
    np.testing.assert_allclose(one.mean, other.mean, rtol=1e-6)
    np.testing.assert_allclose(one.sd, other.sd, rtol=1e-6)


@given(st.tuples(FACTOR, FACTOR, st.floats(-2, 2)), st.tuples(NUMBER, NUMBER))
def test_recoding_covariates_of_rates_changes_nothing(scale, shift):
    W, likelihood = counts(60, 5, longest=8)
    V = W - [1000, 0]
    mixed = V @ np.array([[scale[0], scale[1] * scale[2]], [0, scale[1]]]) + shift
    one, other = Beta().fit(likelihood, V), Beta().fit(likelihood, mixed)
    np.testing.assert_allclose(other.at(mixed).mean_, one.at(V).mean_, rtol=1e-7)
    np.testing.assert_allclose(other.concentration_, one.concentration_, rtol=1e-6)


def test_covariates_of_no_columns_are_none():
    """Of many unequal errors too, which the scan of the likelihood merges where there are none."""
    _, likelihood = messages(2500, 3)
    prior = Normal().fit(likelihood, np.empty((2500, 0)))
    plain = Normal().fit(likelihood)
    assert prior.variance_ == pytest.approx(plain.variance_, rel=1e-9)
    assert prior.mean_ == pytest.approx(plain.mean_, rel=1e-9)


# --- refusals ------------------------------------------------------------------------------------


def test_refusals():
    W, likelihood = messages(20, 12)
    with pytest.raises(TypeError, match=r"Discrete is one population .* priors\.Normal"):
        Discrete().fit(likelihood, W)
    with pytest.raises(TypeError, match="one population for all"):
        Discrete().fit(likelihood).at(W)
    with pytest.raises(ValueError, match="mean must be None"):
        Normal(mean=0.0).fit(likelihood, W)
    with pytest.raises(TypeError, match="Gaussian messages"):
        Normal().fit(Joined((likelihood,)), W)
    with pytest.raises(ValueError, match=r"covariates must have shape \(n, 2\)"):
        Normal().fit(likelihood, W).at(W[:, :1])
    there = Normal().fit(likelihood, W).at(W)
    for call in (there.posterior, there.log_marginal):
        with pytest.raises(TypeError, match="serve Gaussian messages and counts only"):
            call(Joined((likelihood,)))
    W, rates = counts(20, 1)
    for prior in (Beta(method="moments"), Beta(2.0, 3.0)):
        with pytest.raises(ValueError, match="method must be 'ml'"):
            prior.fit(rates, W)
    with pytest.raises(ValueError, match="robust intervals"):
        Beta().fit(rates, W).at(W).posterior(rates).interval(kind="robust")


@pytest.mark.parametrize(
    ("columns", "refusal"),
    [
        ([[1, 2, 3, 4, 5], [2, 4, 6, 8, 10]], "collinear columns: 'a', 'b'"),
        ([[1, 2, 3, 4, 6], [7, 7, 7, 7, 7]], "constant columns: 'b'"),
        ([[1, 2, 3, 4, 6], [1, 0, 1, 0, 0], [0, 1, 0, 1, 1]], "collinear columns: 'b', 'c'"),
        ([[1e8, 1e8 + 1, 1e8, 1e8 + 2, 1e8], [1, np.nan, 1, 0, 0]], "finite"),
        ([[1, 2, 3, 4, 6], [1, 0, 1, 0, 0], [0, 1, 0, 1, 1], [1, 4, 9, 1, 4]], "at least 6 groups"),
    ],
)
def test_undetermined_coefficients(columns, refusal):
    with pytest.raises(ValueError, match=refusal):
        check_covariates(np.array(columns, float).T, list("abcd")[: len(columns)])
