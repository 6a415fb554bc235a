"""Rates from rows that scatter more than Poisson counts."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.optimize import minimize

import ebfed as eb

RNG = np.random.default_rng(0)
GROUPS = np.repeat(np.arange(200), 6)
RATES = RNG.gamma(4, 1.0, 200)
COUNTS = RNG.poisson(RATES[GROUPS] * RNG.gamma(2, 0.5, 1200))


@pytest.fixture(scope="module")
def scattered():
    return eb.NegativeBinomialEB().fit(COUNTS, groups=GROUPS)


def test_maximum_likelihood_by_brute_force(scattered):
    """Mean and shape given the dispersion: sums of groups integrated over rates by quadrature."""
    dispersion = scattered.dispersion_[0]
    total, size = np.bincount(GROUPS, COUNTS), 6 / dispersion
    at = np.geomspace(1e-3, 60, 3000)
    inside = stats.nbinom.logpmf(total[:, None], size, size / (size + 6 * at))

    def minus(x):
        mean, shape = np.exp(x)
        heights = stats.gamma.pdf(at, shape, scale=mean / shape) * np.gradient(at)
        return -np.log(np.exp(inside) @ heights).sum()

    best = minimize(minus, np.zeros(2), method="BFGS", options={"gtol": 1e-4})
    mean, shape = np.exp(best.x)
    assert scattered.prior_.mean_[0] == pytest.approx(mean, rel=1e-3)
    assert scattered.prior_.shape_[0] == pytest.approx(
        shape, rel=5e-3
    )  # the likelihood is flat there
    heights = stats.gamma.pdf(at, shape, scale=mean / shape) * np.gradient(at)
    weights = np.exp(inside) * heights
    np.testing.assert_allclose(scattered.predict(), weights @ at / weights.sum(axis=1), rtol=2e-3)


def test_joint_maximum_likelihood_is_near(scattered):
    """The dispersion within groups against that of all parameters together: a standard error."""
    at = np.geomspace(1e-3, 60, 400)
    counts = COUNTS.reshape(200, 6)

    def minus(x):
        mean, shape, dispersion = np.exp(x)
        size = 1 / dispersion
        logs = stats.nbinom.logpmf(counts[:, :, None], size, size / (size + at)).sum(axis=1)
        heights = stats.gamma.pdf(at, shape, scale=mean / shape) * np.gradient(at)
        return -np.log(np.exp(logs) @ heights).sum()

    start = np.log([*scattered.prior_.mean_, *scattered.prior_.shape_, *scattered.dispersion_])
    best = minimize(minus, start, method="Nelder-Mead", options={"xatol": 1e-3, "fatol": 1e-4})
    assert np.exp(best.x[2]) == pytest.approx(scattered.dispersion_[0], rel=0.05)
    assert scattered.log_likelihood_ == pytest.approx(-best.fun, abs=0.5)


def test_intervals_hold_the_rates_where_poisson_ones_do_not():
    """2,000 groups: 95 % intervals hold 93 to 97 %, those of Poisson rows less than 85 %."""
    rng = np.random.default_rng(2)
    groups, rates = np.repeat(np.arange(2000), 5), rng.gamma(4, 1.0, 2000)
    counts = rng.poisson(rates[groups] * rng.gamma(2, 0.5, 10_000))

    def held(fit):
        lower, upper = fit.fit(counts, groups=groups).posterior().interval()
        return ((lower[:, 0] <= rates) & (rates <= upper[:, 0])).mean()

    assert 0.93 < held(eb.NegativeBinomialEB()) < 0.97
    assert held(eb.PoissonEB()) < 0.85


def test_rows_without_dispersion_are_those_of_poisson():
    """Counts more alike than Poisson ones: estimates within 1e-4, by quadrature, of closed ones."""
    rng = np.random.default_rng(3)
    rates, groups = rng.gamma(4, 1.0, 100), np.repeat(np.arange(100), 6)
    counts = rng.binomial(10, np.minimum(rates / 10, 1.0)[groups])
    fit, poisson = (
        make().fit(counts, groups=groups) for make in (eb.NegativeBinomialEB, eb.PoissonEB)
    )
    assert fit.dispersion_[0] == 0
    np.testing.assert_allclose(fit.predict(), poisson.predict(), rtol=1e-3)
    assert fit.log_likelihood_ == pytest.approx(poisson.log_likelihood_, rel=1e-6)


@pytest.mark.parametrize("largest", [1e8, 1e12, 1e15, 2.0**53])
def test_one_huge_count_leaves_the_others_theirs(largest):
    """Means and errors of the fitted population, by quadrature over the logarithm of the rate."""
    counts = np.random.default_rng(0).negative_binomial(2, 0.25, size=(40, 5)).astype(float)
    counts[0, 0] = largest
    fit = eb.NegativeBinomialEB().fit(counts.ravel(), groups=np.repeat(np.arange(40), 5))
    (mean,), (shape,), size = fit.prior_.mean_, fit.prior_.shape_, 5 / fit.dispersion_[0]
    w, total = np.linspace(-60, 60, 200_001), counts.sum(axis=1)[1:, None]
    logs = total * w - (total + size) * np.log1p(5 * np.exp(w) / size)
    logs += shape * w - shape / mean * np.exp(w)
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    expected = weights @ np.exp(w)
    sd = np.sqrt(weights @ np.exp(2 * w) - expected**2)
    posterior = fit.posterior()
    np.testing.assert_allclose(posterior.mean[1:, 0], expected, rtol=2e-3)
    np.testing.assert_allclose(posterior.sd[1:, 0], sd, rtol=0.05)  # of the population, too
    own = counts[0].mean()
    assert abs(posterior.mean[0, 0] / own - 1) < 0.4
    assert np.isfinite(fit.log_likelihood_)


@pytest.mark.filterwarnings("ignore::ebfed.priors.IdentificationWarning")
@pytest.mark.parametrize("largest", [1e8, 1e12, 1e14])
def test_single_rows_are_those_of_poisson_whatever_their_size(largest):
    counts = np.append(np.random.default_rng(1).poisson(6, 100).astype(float), largest)
    fit, poisson = (make().fit(counts) for make in (eb.NegativeBinomialEB, eb.PoissonEB))
    # by quadrature, to a hundredth of an error
    np.testing.assert_allclose(fit.predict(), poisson.predict(), rtol=1e-6, atol=0.02)
    assert fit.log_likelihood_ == pytest.approx(poisson.log_likelihood_, abs=1e-2)


def test_exposures_and_frames():
    exposure = RNG.uniform(0.5, 2, 200)[GROUPS]
    counts = RNG.poisson(exposure * RATES[GROUPS] * RNG.gamma(2, 0.5, 1200))
    frame = pd.DataFrame({"site": GROUPS, "events": counts, "years": exposure})
    fit = eb.NegativeBinomialEB().fit(frame, groups="site", exposure="years")
    assert fit.dispersion_[0] == pytest.approx(0.5, abs=0.15)  # three standard errors
    given = eb.NegativeBinomialEB(dispersion=fit.dispersion_[0])
    given.fit(counts, groups=GROUPS, exposure=exposure)
    np.testing.assert_allclose(given.predict(), fit.predict(), rtol=1e-8)
    assert given.log_likelihood_ == pytest.approx(fit.log_likelihood_, abs=0.01)
    assert fit.n_parameters_ == given.n_parameters_ + 1
    np.testing.assert_allclose(fit.predict(frame, type="rate"), fit.predict()[GROUPS], rtol=1e-8)


def test_formula(scattered):
    frame = pd.DataFrame({"site": GROUPS, "events": COUNTS, "years": 2.0})
    text = "events ~ 1 + offset(log(years)) + (1 | site)"
    fit = eb.from_formula(text, frame, family="negative_binomial", prior="gamma")
    np.testing.assert_allclose(2 * fit.estimator_.predict(), scattered.predict(), rtol=1e-4)


@pytest.mark.parametrize("prior", ["npmle", "log_spline"])
def test_other_populations(prior, scattered):
    """Estimates under another population differ by a small share of their errors."""
    fit = eb.NegativeBinomialEB(prior=prior).fit(COUNTS, groups=GROUPS)
    np.testing.assert_array_equal(fit.dispersion_, scattered.dispersion_)
    apart = np.sqrt(np.mean((fit.predict() - scattered.predict()) ** 2))
    assert apart < 0.3 * np.sqrt(np.mean(scattered.posterior().sd ** 2))


def test_copies(tmp_path, scattered):
    scattered.save(tmp_path / "fit.json")
    again = eb.load_fit(tmp_path / "fit.json")
    np.testing.assert_array_equal(again.predict(), scattered.predict())
    np.testing.assert_array_equal(again.dispersion_, scattered.dispersion_)
    server = scattered.published()
    np.testing.assert_allclose(
        server.predict(COUNTS, groups=GROUPS), scattered.predict(COUNTS, groups=GROUPS)
    )


@pytest.mark.parametrize(
    ("arguments", "given", "text"),
    [
        ({"dispersion": 0}, {}, "'estimate' or a positive number; got 0. PoissonEB"),
        ({"dispersion": "ml"}, {}, "'estimate' or a positive number; got 'ml'"),
        ({}, {"groups": [0, 0], "exposure": [1.0, 2.0]}, "same in all rows of a group"),
        ({"channel": eb.channels.TwoBit(1.0)}, {"groups": [0, 0]}, "dispersion must be given"),
    ],
)
def test_refused(arguments, given, text):
    with pytest.raises(ValueError, match=text):
        eb.NegativeBinomialEB(**arguments).fit([3, 5], **given)


def test_single_rows_are_taken_for_poisson():
    with pytest.warns(eb.priors.IdentificationWarning, match="dispersion of rows is not"):
        fit = eb.NegativeBinomialEB().fit(COUNTS)
    assert fit.dispersion_[0] == 0
    assert fit.prior_.mean_[0] == pytest.approx(COUNTS.mean(), rel=1e-4)
    known = eb.NegativeBinomialEB(dispersion=0.5).fit(COUNTS)
    assert known.prior_.shape_[0] > fit.prior_.shape_[0]


def test_several_columns_and_covariates_are_refused():
    with pytest.raises(ValueError, match="one column of counts; it has 2"):
        eb.NegativeBinomialEB().fit([[3, 5], [2, 4]], groups=[0, 0])
    with pytest.raises(TypeError, match="PoissonEB takes covariates"):
        eb.NegativeBinomialEB().fit(COUNTS, groups=GROUPS, covariates=np.arange(200.0))


# Private reports ----------------------------------------------------------------------------------

SEVERAL = np.arange(20_000) // 4
TRUE = np.random.default_rng(5).gamma(4, 1.0, 5000)
ROWS = np.random.default_rng(6).poisson(
    TRUE[SEVERAL] * np.random.default_rng(7).gamma(2, 0.5, 20_000)
)
NOISY = eb.channels.Laplace(4.0, (0.0, 12.0))


def test_population_from_reports():
    """Within three standard errors of the truth; a Poisson fit of the reports is not."""
    given = {"channel": NOISY, "random_state": 0}
    est = eb.NegativeBinomialEB(dispersion=0.5, **given).fit(ROWS, groups=SEVERAL)
    error, spread = est.prior_.mean_variance_[0] ** 0.5, est.prior_.variance_variance_[0] ** 0.5
    assert est.prior_.mean_[0] == pytest.approx(4.0, abs=3 * error)
    assert est.prior_.variance_[0] == pytest.approx(4.0, abs=3 * spread)
    assert error < 0.1
    assert spread < 0.7
    poisson = eb.PoissonEB(**given).fit(ROWS, groups=SEVERAL)
    assert poisson.prior_.variance_[0] > 4.0 + 4 * spread
    assert est.privacy_["epsilon"].tolist() == [4.0]


def test_smooth_population_from_reports():
    given = {"dispersion": 0.5, "prior": "log_spline"}
    est = eb.NegativeBinomialEB(**given, channel=NOISY, random_state=0)
    est.fit(ROWS, groups=SEVERAL)
    exact = eb.NegativeBinomialEB(**given).fit(ROWS, groups=SEVERAL)
    losses = [np.mean((each.predict().ravel() - TRUE) ** 2) for each in (est, exact)]
    assert losses[0] < 1.08 * losses[1]  # it is 1.04 for this seed


def test_dispersion_from_those_who_show_their_rows():
    consent = np.where(np.arange(5000) % 4, "private", "open")[SEVERAL]
    est = eb.NegativeBinomialEB(
        channel={"private": NOISY, "open": eb.channels.Exact()}, random_state=0
    )
    est.fit(ROWS, groups=SEVERAL, consent=consent)
    some = consent == "open"
    alone = eb.NegativeBinomialEB().fit(ROWS[some], groups=SEVERAL[some])
    np.testing.assert_allclose(est.dispersion_, alone.dispersion_, rtol=1e-9)
    assert est.prior_.mean_variance_[0] < alone.prior_.mean_variance_[0]


def test_channel_without_a_range():
    with pytest.raises(ValueError, match="needs a range"):
        eb.NegativeBinomialEB(dispersion=1.0, channel=eb.channels.Laplace(1.0)).fit([1, 2, 3])
    guess = eb.channels.Guess((1.0, 6.0), 2.0)
    est = eb.NegativeBinomialEB(
        dispersion=0.5, channel=eb.channels.TwoBit(4.0), guess=guess, random_state=0
    ).fit(ROWS, groups=SEVERAL)
    assert est.prior_.mean_[0] == pytest.approx(4.0, rel=0.1)
