"""Log-spline populations: accuracy, standard errors, equivariance, and data that say little."""

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

import ebfed as eb
from ebfed.channels import TwoBit, UnaryEncoding
from ebfed.families import Binomial as Rates
from ebfed.likelihoods import Binomial, Gaussian, Joined, Poisson
from ebfed.priors import Discrete, IdentificationWarning, LogSpline

FOLDER = Path(__file__).parents[1] / "reference"
SURGERY = pd.read_csv(FOLDER / "surg.csv")
NODES = Binomial(SURGERY["malignant"].to_numpy()[:, None], SURGERY["removed"].to_numpy())

RNG = np.random.default_rng(0)
M = 300
THETA = RNG.choice([-2.0, 2.0], M) + RNG.normal(0, 0.5, M)
ERRORS = RNG.uniform(0.5, 1.5, M)
MESSAGES = Gaussian(RNG.normal(THETA, ERRORS)[:, None], ERRORS[:, None] ** 2)
SCHOOLS = [28, 8, -3, 7, -1, 1, 18, 12], [15, 10, 16, 11, 9, 11, 10, 18]


def bimodal(m, seed):
    """Parameters of two kinds, and their estimates with errors of 1."""
    rng = np.random.default_rng(seed)
    theta = np.where(rng.random(m) < 0.6, rng.normal(-1.5, 0.6, m), rng.normal(1.5, 0.8, m))
    return theta, rng.normal(theta)[:, None]


# --- accuracy ------------------------------------------------------------------------------------


def test_the_rates_of_surgery_are_those_of_deconvolve():
    """The basis has other columns than deconvolveR's, so the penalty is a little another."""
    grid = pd.read_csv(FOLDER / "deconvolve.csv")
    prior = LogSpline(5, c0=99**0.5, range=(0.005, 0.995)).fit(NODES)
    at = grid[["theta"]].to_numpy()
    density, errors = np.exp(prior.logpdf(at)) * 0.01, prior.density_errors(at) * 0.01
    assert (np.abs(density - grid["g"]) < 0.6 * grid["se"]).all()
    np.testing.assert_allclose(errors, grid["se"], rtol=0.1)
    mean = grid["g"] @ grid["theta"]
    np.testing.assert_allclose(prior.mean_, mean, rtol=0.01)


def test_risk_is_nearly_that_of_the_oracle():
    """Five populations of 2,000: 0.3 % above the oracle; the limit is six times that."""
    ours, best = [], []
    for seed in range(5):
        theta, x = bimodal(2000, seed)
        messages = Gaussian(x, np.ones((2000, 1)))
        ours.append(LogSpline().fit(messages).posterior(messages).mean[:, 0] - theta)
        parts = [(0.6, -1.5, 0.6), (0.4, 1.5, 0.8)]
        joint = np.array([w * norm.pdf(x[:, 0], c, np.hypot(1, s)) for w, c, s in parts])
        means = np.array([c + s**2 / (1 + s**2) * (x[:, 0] - c) for _, c, s in parts])
        best.append((joint * means).sum(axis=0) / joint.sum(axis=0) - theta)
    assert np.mean(np.square(ours)) < 1.02 * np.mean(np.square(best))


def test_intervals_hold_what_they_say():
    """Of 5 x 400 parameters, 95 % of 95 % intervals: a standard error of 0.5 %."""
    held = []
    for seed in range(5):
        theta, x = bimodal(400, seed)
        messages = Gaussian(x, np.ones((400, 1)))
        lower, upper = LogSpline().fit(messages).posterior(messages).interval()
        held.append((lower[:, 0] <= theta) & (theta <= upper[:, 0]))
    assert 0.92 < np.mean(held) < 0.97


def test_reports_of_rates_are_deconvolved():
    rng = np.random.default_rng(3)
    rates = np.where(rng.random(3000) < 0.5, rng.beta(20, 60, 3000), rng.beta(60, 20, 3000))
    data = eb.Summary.from_counts(rng.binomial(30, rates), np.full(3000, 30))
    est = eb.BernoulliEB(channel=UnaryEncoding(4.0), prior="log_spline", random_state=0).fit(data)
    exact = eb.BernoulliEB(prior="log_spline").fit(data)
    best = np.mean((exact.predict() - rates) ** 2)
    assert np.mean((est.predict() - rates) ** 2) < 1.05 * best  # a beta population: 2.26 times
    np.testing.assert_allclose(est.prior_.mean_, exact.prior_.mean_, atol=0.03)


# --- degrees of freedom and knots ----------------------------------------------------------------


def test_degrees_of_freedom_are_those_of_least_bic():
    """Two narrow humps need more than five; a normal population does not."""
    rng = np.random.default_rng(0)
    humps = rng.choice([-3.0, 3.0], 800) + rng.normal(0, 0.3, 800)
    for theta, most in ((humps, 24), (rng.normal(size=800), 5)):
        messages = Gaussian(rng.normal(theta, 0.5)[:, None], np.full((800, 1), 0.25))
        prior = LogSpline().fit(messages)
        assert prior.df_ <= most
        assert prior.parameters() == {"df": prior.df_}
        assert prior.n_parameters_ == prior.df_ == len(prior.coefficients_)
        figures = {}
        for df in (5, 8, 12, 16, 24):
            fixed = LogSpline(df).fit(messages)
            # constants of likelihoods are equal
            figures[df] = fixed.log_marginal(messages).sum() - df * np.log(800) / 2
        assert prior.df_ == max(figures, key=figures.get)
        same = LogSpline(prior.df_).fit(messages)
        np.testing.assert_allclose(prior.coefficients_, same.coefficients_, atol=1e-3)


def test_knots_of_rates_are_even_in_roots():
    rates = Poisson(np.random.default_rng(0).negative_binomial(2, 0.4, (80, 1)), np.full(80, 1.5))
    steps = np.diff(np.sqrt(LogSpline(7).fit(rates).knots_))
    np.testing.assert_allclose(steps, steps[0])
    steps = np.diff(LogSpline(7).fit(NODES).knots_)
    np.testing.assert_allclose(steps, steps[0])


def test_one_group_that_is_far_from_others_does_not_take_the_knots():
    """Half of the knots are where normal populations are, however long the interval."""
    x = np.append(np.random.default_rng(0).normal(0, 1.5, 2000), 60.0)[:, None]
    messages = Gaussian(x, np.full((2001, 1), 0.25))
    with_one, without = LogSpline().fit(messages), LogSpline().fit(messages.take(slice(0, 2000)))
    assert (np.abs(with_one.knots_) < 8).sum() >= 4
    differ = with_one.posterior(messages).mean[:-1] - without.posterior(messages).mean[:-1]
    assert np.sqrt(np.mean(differ**2)) < 0.1 * 0.5  # of the standard error


# --- standard errors -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "messages",
    [
        MESSAGES,
        NODES,
        Poisson(np.random.default_rng(1).negative_binomial(2, 0.4, (80, 1)), np.full(80, 1.5)),
    ],
    ids=["gaussian", "binomial", "poisson"],
)
def test_standard_errors_are_by_the_delta_method(messages):
    prior = LogSpline().fit(messages)
    some = messages.take(slice(0, 8))
    at = np.linspace(*prior.range_, 7)[1:-1, None]

    def figures(coefficients):
        there = prior._at(coefficients)
        return np.concatenate(
            [
                there.mean_,
                there.variance_,
                np.exp(there.logpdf(at)),
                there.posterior(some).mean[:, 0],
            ]
        )

    h = 1e-4
    slopes = np.array(
        [
            (figures(prior.coefficients_ + step) - figures(prior.coefficients_ - step)) / (2 * h)
            for step in h * np.eye(5)
        ]
    ).T
    expected = np.sqrt(((slopes @ prior.covariance_) * slopes).sum(axis=1))
    ours = np.concatenate(
        [
            np.sqrt(prior.mean_variance_),
            np.sqrt(prior.variance_variance_),
            prior.density_errors(at),
            prior.estimate_errors(some)[:, 0],
        ]
    )
    # differences, and another grid for a posterior than for the moments
    np.testing.assert_allclose(ours, expected, rtol=3e-3)


def test_other_coefficients_leave_the_fit_as_it_was():
    prior = LogSpline().fit(MESSAGES)
    before = prior.coefficients_.copy(), prior.mean_.copy()
    there = prior._at(np.zeros(5))
    np.testing.assert_allclose(there.mean_, prior.range_.mean(), rtol=1e-12)
    np.testing.assert_allclose(there.variance_, np.ptp(prior.range_) ** 2 / 12, rtol=1e-5)
    np.testing.assert_array_equal(prior.coefficients_, before[0])
    np.testing.assert_array_equal(prior.mean_, before[1])


@pytest.mark.slow
def test_standard_error_of_the_mean_is_its_sd_over_samples():
    """100 samples give an sd to 7 %; a false alarm would be four of these."""
    fits = []
    for seed in range(100):
        _, x = bimodal(400, seed)
        prior = LogSpline().fit(Gaussian(x, np.ones((400, 1))))
        fits.append((prior.mean_[0], prior.mean_variance_[0]))
    means, variances = np.array(fits).T
    assert np.sqrt(variances.mean()) == pytest.approx(means.std(), rel=0.28)


# --- equivariance --------------------------------------------------------------------------------


@pytest.mark.parametrize(("scale", "shift"), [(1e6, 0.0), (1e-6, 0.0), (1.0, 50.0), (-1.0, 0.0)])
def test_units_do_not_matter(scale, shift):
    prior = LogSpline().fit(MESSAGES)
    moved = Gaussian(scale * MESSAGES.values + shift, scale**2 * MESSAGES.variances)
    other = LogSpline().fit(moved)
    ours, theirs = prior.posterior(MESSAGES), other.posterior(moved)
    # Newton stops where a step gains less than 1e-9
    np.testing.assert_allclose((theirs.mean - shift) / scale, ours.mean, atol=1e-5)
    np.testing.assert_allclose(theirs.sd / abs(scale), ours.sd, atol=1e-5)
    np.testing.assert_allclose(
        other.log_marginal(moved) + np.log(abs(scale)), prior.log_marginal(MESSAGES), atol=1e-5
    )


def test_a_fit_is_the_same_again_and_in_parts():
    prior, again = LogSpline().fit(MESSAGES), LogSpline().fit(MESSAGES)
    np.testing.assert_array_equal(prior.coefficients_, again.coefficients_)
    parts = Joined((MESSAGES.take(slice(0, 100)), MESSAGES.take(slice(100, None))))
    joined = LogSpline().fit(parts)
    np.testing.assert_allclose(joined.mean_, prior.mean_, atol=2e-2)  # other nodes


def test_moments_are_those_of_the_density():
    prior = LogSpline().fit(MESSAGES)
    at = np.linspace(*prior.range_, 20_001)
    density = np.exp(prior.logpdf(at[:, None]))
    masses = density * (at[1] - at[0])
    # the trapezoidal rule on 1,000 cells
    assert masses.sum() == pytest.approx(1, abs=1e-4)
    assert masses @ at == pytest.approx(prior.mean_[0], abs=1e-3)
    assert prior.logpdf(np.array([[prior.range_[0] - 1], [prior.range_[1] + 1]])).max() == -np.inf


# --- data that say little ------------------------------------------------------------------------


def test_intervals_of_eight_schools_are_as_wide_as_those_of_a_normal_population():
    """Quadrature with flat mean and sd of a normal one gives sds from 6.3 to 8.5."""
    posterior = eb.posterior_from(*SCHOOLS, prior="log_spline")
    lower, upper = posterior.interval()
    assert ((posterior.sd > 5) & (posterior.sd < 10)).all()
    assert ((upper - lower > 15) & (upper - lower < 35)).all()
    assert posterior.mean.argmax() in (0, 6)


def test_no_event_leaves_rates_above_zero():
    none = Binomial(np.zeros((30, 1), int), np.full(30, 10))
    prior = LogSpline().fit(none)
    posterior = prior.posterior(none)
    assert (posterior.sd > 0).all()
    assert 0.002 < posterior.interval()[1].max() < 0.08
    new = prior.posterior(Binomial(np.zeros((1, 1), int), np.zeros(1, int)))
    # where all plausible populations are narrow, rows say nothing: alike but for rounding
    assert new.interval()[1] > posterior.interval()[1].max() * (1 - 1e-6)
    events = Poisson(np.zeros((30, 1), int), np.full(30, 10.0))
    assert (LogSpline().fit(events).posterior(events).sd > 0).all()


def test_plausible_coefficients_are_many_where_counts_say_little():
    """A beta(5, 95) population: importance weights from t distributions left one draw and a half.

    A chain of 150 x 1500 steps gives standard deviations from .003 to .026.
    """
    counts = np.repeat(np.arange(5), [1229, 585, 162, 23, 1])[:, None]
    prior = LogSpline().fit(Binomial(counts, np.full(2000, 10)))
    populations, weights = prior.populations()
    assert 1 / (weights**2).sum() > 30
    spreads = np.sqrt([each.variance_[0] for each in populations])
    low, middle, high = np.quantile(spreads, [0.05, 0.5, 0.95])
    assert 0.002 < low < 0.009
    assert 0.012 < middle < 0.019
    assert 0.020 < high < 0.030


def test_one_estimate_is_uncertain():
    with pytest.warns(eb.IdentificationWarning, match="Only one group"):
        posterior = eb.posterior_from([3.0], [1.0], prior="log_spline")
    np.testing.assert_allclose(posterior.mean, 3)
    assert 0.9 < posterior.sd.item() <= 1


def test_no_information_is_said():
    with pytest.warns(eb.IdentificationWarning, match="No client has data"):
        posterior = eb.posterior_from([3.0, 4.0], [np.inf, np.nan], prior="log_spline")
    assert (posterior.sd > 0).all()


def test_equal_estimates_have_intervals_unless_they_are_known():
    posterior = eb.posterior_from(np.full(10, 5.0), np.ones(10), prior="log_spline")
    np.testing.assert_allclose(posterior.mean, 5)
    assert (posterior.sd > 0.1).all()
    known = eb.posterior_from(np.full(10, 5.0), np.zeros(10), prior="log_spline")
    np.testing.assert_array_equal(known.mean, 5)
    assert known.prior.variance_ == 0
    assert known.prior.sample(3).ravel().tolist() == [5, 5, 5]


def test_an_imprecise_estimate_does_not_widen_the_interval():
    """Half the estimates have errors of 100, and reach to 300; parameters are within 4."""
    rng = np.random.default_rng(5)
    theta, errors = rng.normal(size=400), np.repeat([0.5, 100.0], 200)
    prior = LogSpline().fit(Gaussian(rng.normal(theta, errors)[:, None], errors[:, None] ** 2))
    assert np.ptp(prior.range_) < 15
    assert prior.variance_[0] == pytest.approx(1, abs=0.4)


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        (LogSpline(0), "df must be a positive whole number, or 'auto'; got 0"),
        (LogSpline(2.5), "df must be a positive whole number, or 'auto'; got 2.5"),
        (LogSpline(c0=0), "c0 must be a positive number; got 0"),
        (LogSpline(c0=np.inf), "c0 must be a positive number; got inf"),
        (LogSpline(range=(2, 1)), r"range must be two increasing numbers .*; got \(2, 1\)"),
        (LogSpline(range=3.0), "range must be two increasing numbers"),
    ],
)
def test_what_is_refused(prior, message):
    with pytest.raises(ValueError, match=message):
        prior.fit(MESSAGES)


def test_a_range_must_be_inside_the_support_and_parameters_scalar():
    with pytest.raises(ValueError, match=r"from 0\.0 to 1\.0; got"):
        LogSpline(range=(-0.1, 1)).fit(NODES)
    with pytest.raises(TypeError, match="fewer columns"):
        LogSpline().fit(Gaussian(np.zeros((3, 2)), np.ones((3, 1))))
    with pytest.raises(TypeError, match="one population for all clients"):
        LogSpline().fit(MESSAGES, np.arange(M)[:, None])


# --- by name -------------------------------------------------------------------------------------


def test_estimators_know_its_name():
    y, groups, _ = eb.datasets.make_bernoulli_groups(50, 8, random_state=0)
    frame = pd.DataFrame({"y": y, "group": groups})
    fits = {
        "means": eb.GaussianEB(prior="log_spline").fit(y, groups=groups),
        "rates": eb.BernoulliEB(prior="log_spline").fit(y, groups=groups),
        "events": eb.PoissonEB(prior="log_spline").fit(y, groups=groups),
        "formula": eb.from_formula("y ~ 1 + (1 | group)", frame, prior="log_spline"),
    }
    for est in fits.values():
        assert isinstance(est.prior_, LogSpline)
        assert np.isfinite(est.tidy().set_index("term").loc["mean", "std.error"])
    np.testing.assert_allclose(fits["formula"].prior_.mean_, fits["means"].prior_.mean_)


def test_it_is_drawn():
    ax = eb.report.plot_population(
        {"spline": LogSpline().fit(NODES), "npmle": Discrete().fit(NODES)},
        ax=eb.report.new_axes()[0],
    )
    assert len(ax.lines) >= 1
    low, high = ax.get_xlim()
    assert -0.05 < low < high < 1.05


def test_a_constant_population_does_not_warn_of_arithmetic():
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        LogSpline().fit(Gaussian(np.full((5, 1), 2.0), np.ones((5, 1))))


@pytest.mark.parametrize("epsilon", [4.0, 1000.0])
def test_a_report_far_away_is_within_the_population(epsilon):
    """Of the exact fit it is 6.9, of sd .86; reports add noise."""
    rng = np.random.default_rng(0)
    theta = rng.gamma(2, 0.5, 200)
    theta[0] = 6.0
    groups = np.repeat(np.arange(200), 10)
    rows = rng.poisson(theta[groups]).astype(float)
    exact = eb.PoissonEB(prior="log_spline").fit(rows, groups=groups).posterior()
    channel = eb.channels.Laplace(epsilon=epsilon, range=(0, 20))
    fit = eb.PoissonEB(prior="log_spline", channel=channel, random_state=0)
    found = fit.fit(rows, groups=groups).posterior()
    assert abs(found.mean[0, 0] - exact.mean[0, 0]) < 0.5 * exact.sd[0, 0]
    assert found.sd[0, 0] > 0.7 * exact.sd[0, 0]


def test_few_reports_of_one_kind_are_no_point():
    """At most channels, eight equal reports exclude hardly any population."""
    channel = TwoBit(0.5, range=(0.0, 1.0))
    summary = eb.Summary.from_counts(np.full(8, 8), np.full(8, 40))
    for seed in range(12):
        messages = channel.likelihood(channel.encode(summary, seed), Rates())
        prior = LogSpline().fit(messages)
        assert prior.variance_[0] > 1e-3


@pytest.mark.parametrize("seed", [8, 24, 31])
def test_few_reports_that_point_to_an_end_leave_other_means(seed):
    """Their best mean is near 1, and the interval was about it alone: .91 to 1."""
    rng = np.random.default_rng(seed)
    theta, groups = rng.beta(2, 2, 6), np.repeat(np.arange(6), 8)
    rows = rng.random(48) < theta[groups]
    fit = eb.BernoulliEB(channel=TwoBit(0.5), prior="log_spline", random_state=seed)
    posterior = fit.fit(rows, groups=groups).posterior(rows, groups=groups)
    assert np.ptp(fit.prior_.range_) > 0.8
    assert np.abs(posterior.mean.ravel() - (rows.reshape(6, 8).mean(axis=1))).max() < 0.25


@pytest.mark.parametrize("factor", [10.0, 1e3, 1e5])
def test_a_population_narrower_than_the_grid_is_nearly_a_point(factor):
    """Plausible populations may be narrow; the likelihood is then that of a point."""
    prior = LogSpline().fit(MESSAGES)
    narrow = prior._at(factor * prior.coefficients_)
    found = narrow.log_marginal(MESSAGES)
    assert np.isfinite(found).all()
    if factor > 100:
        point = MESSAGES.logpdf(narrow.mean_[None])[:, 0]
        # the spread of two neighbouring nodes changes far messages by some thousandths
        np.testing.assert_allclose(found, point, rtol=5e-3)


@pytest.mark.parametrize("df", [None, 5.0], ids=str)
def test_a_group_far_away_leaves_the_shape_of_the_others(df):
    x = np.append(np.random.default_rng(0).normal(size=100), 30.0)
    errors = {} if df is None else {"df": df}
    near = eb.posterior_from(x, np.ones(101), "log_spline", **errors)
    x[-1] = 1e6
    far = eb.posterior_from(x, np.ones(101), "log_spline", **errors)
    assert not near.notes
    assert not far.notes
    assert np.abs(far.mean - near.mean)[:-1].max() < 1.0  # of errors; 3.3 on knots in even steps


def test_a_count_so_large_that_the_others_are_one_point_is_noted():
    counts = np.append(np.random.default_rng(0).poisson(3, 100), 10**8)
    with pytest.warns(
        IdentificationWarning, match="the spline cannot show how most of them differ"
    ):
        far = eb.PoissonEB(prior="log_spline").fit(counts)
    assert any("far away" in note for note in far.notes_)


@pytest.mark.parametrize("far", [5.0, 10.0, -10.0, 30.0, 1e3, 1e6, 1e9])
def test_a_far_estimate_is_within_its_interval(far):
    # a smooth population says little so far out: about the estimate and its error
    x = np.append(np.random.default_rng(0).standard_normal(60), far)
    posterior = eb.posterior_from(x, 1.0, prior=LogSpline())
    lower, upper = (end[-1, 0] for end in posterior.interval())
    assert lower < far < upper
    assert abs(posterior.mean[-1, 0] - far) < 0.5
    assert 2 < upper - lower < 6
    # and the others are shrunk to one another, whatever it is
    assert np.abs(posterior.mean[:-1]).max() < 1.5
    assert posterior.sd[:-1].max() < 0.9


def test_estimates_of_any_precision_have_intervals_of_their_size():
    rng = np.random.default_rng(1)
    errors = np.exp(rng.uniform(-14, 0, 40))
    x = rng.normal(0, 1, 40)
    lower, upper = eb.posterior_from(x, errors, prior=LogSpline()).interval()
    width = (upper - lower)[:, 0] / (2 * 1.96 * errors)
    # the population narrows intervals of the largest errors; nodes are a quarter of an error apart
    assert width.min() > 0.4
    assert width.max() < 1.1


@pytest.mark.parametrize("size", [1e6, 1e9, 1e15])
def test_large_counts_have_intervals_of_their_size(size):
    counts = np.rint(size * np.random.default_rng(2).gamma(10, 0.1, 40))
    posterior = eb.PoissonEB(prior="log_spline").fit(counts).posterior()
    lower, upper = posterior.interval()
    root = np.sqrt(counts)
    np.testing.assert_allclose(posterior.mean[:, 0], counts, rtol=0, atol=0.3 * root.max())
    np.testing.assert_allclose((upper - lower)[:, 0], 3.92 * root, rtol=0.15)


# --- sharp estimates ----------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1e-3, 1e-4, 1e-6])
def test_estimates_sharper_than_the_grid(size):
    """They keep their own errors: of 1000, intervals of 95 % held .8, and some were points."""
    rng = np.random.default_rng(3)
    s = size * rng.uniform(0.5, 2.0, 1000)
    theta = rng.normal(1.0, 1.5, 1000)
    x = rng.normal(theta, s)
    found = eb.posterior_from(x, s, prior="log_spline")
    assert abs(found.sd.ravel() / s - 1).max() < 0.01
    assert abs((found.mean.ravel() - x) / s).max() < 0.01
    lower, upper = (end.ravel() for end in found.interval())
    assert 0.93 < np.mean((lower <= theta) & (theta <= upper)) < 0.97
    # of a density, the log-likelihood is that of the parameters themselves
    log_marginal = found.prior.log_marginal(Gaussian(x[:, None], s[:, None] ** 2))
    np.testing.assert_allclose(log_marginal, found.prior.logpdf(x[:, None]), atol=0.01)
    draws = found.sample(200, random_state=0)[:, :, 0]
    np.testing.assert_allclose(draws.std(axis=0) / s, 1.0, atol=0.3)


def test_sharp_estimates_beside_others_as_by_quadrature():
    rng = np.random.default_rng(6)
    s = np.geomspace(1e-3, 2.0, 60)
    x = rng.normal(rng.choice([-2.0, 2.0], 60), np.hypot(s, 0.4))
    found = eb.posterior_from(x, s, prior="log_spline", integrate=False)
    messages = Gaussian(x[:, None], s[:, None] ** 2)
    logs = found.prior.log_marginal(messages)
    low, high = found.prior.range_
    for i, (value, error) in enumerate(zip(x, s, strict=True)):
        ends = max(low, value - 9 * error), min(high, value + 9 * error)
        at = np.linspace(*ends, 20_001)
        joint = norm.pdf(value, at, error) * np.exp(found.prior.logpdf(at[:, None]))
        total = np.trapezoid(joint, at)
        mean = np.trapezoid(joint * at, at) / total
        sd = np.sqrt(np.trapezoid(joint * (at - mean) ** 2, at) / total)
        assert abs(found.mean[i, 0] - mean) < 0.01 * error
        assert abs(found.sd[i, 0] / sd - 1) < 0.01
        assert abs(logs[i] - np.log(total)) < 0.01


def test_estimates_of_groups_that_differ_much_in_size():
    """A few far more precise than the others do not thin the grid of those."""
    theta, x = bimodal(400, 5)
    s = np.where(np.arange(400) % 2 == 0, 1.0, 1e-4)
    x = theta + s * (x.ravel() - theta)
    found = eb.posterior_from(x, s, prior="log_spline")
    assert np.mean((found.mean.ravel() - theta)[::2] ** 2) < 0.7
    order = np.random.default_rng(0).permutation(400)
    other = eb.posterior_from(x[order], s[order], prior="log_spline")
    np.testing.assert_allclose(other.mean, found.mean[order], atol=1e-6)
    np.testing.assert_allclose(other.sd, found.sd[order], atol=1e-6)
