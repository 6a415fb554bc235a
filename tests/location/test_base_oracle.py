"""Risk of 10,000 groups within 1 % of the oracle's, for every family and every prior it offers.

The oracle knows the population, and computes posterior means by quadrature over it. Given the
messages, the expected squared error of other estimates is larger by the mean square of their
difference from its: that is the excess, with no noise of the parameters. The paired difference of
squared errors has the same expectation, and is within four standard errors of it, unless the oracle
is wrong: a false alarm in 6 of 100,000 cases, .4 % for all.
"""

import contextlib
import re
from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy.special import betaincinv, betaln, gammaincinv, gammaln
from scipy.stats import t
from sklearn.base import clone

import ebfed as eb
from ebfed import families, priors
from ebfed.evaluation.coverage.settings import (
    BOOTSTRAP,
    MODELLED,
    ROW_VARIANCE,
    SETTINGS,
    TruePopulation,
)
from ebfed.location.base import LocationEstimator
from ebfed.priors import nested as parents

M = 10_000
LIMIT = 0.01
# With three rows, errors of log variances have such tails that the NPMLE takes the farthest for
# groups of their own. T errors of fewer degrees of freedom are tested below.
ROWS = {"variance": (6, 12), "student_t": (9, 16)}
# Few groups are between two spikes, and all depends on these: the mean over draws is tested.
RARE = {("student_t", "npmle", "spikes")}
# Fits that take long, of which others are like them.
LEFT_OUT = {("duration", "npmle", "gamma")}
CASES = [
    pytest.param(likelihood, prior, population, id=f"{likelihood}-{prior}-{population}")
    for likelihood, setting in SETTINGS.items()
    for prior in setting.priors
    for population in setting.populations["large"]
    if setting.holds(prior, population)
    and prior not in {**BOOTSTRAP, **MODELLED}
    and (likelihood, prior, population) not in LEFT_OUT | RARE
]


def offered(setting):
    """Names of the priors that an estimator offers, as its error says."""
    estimator = clone(setting.estimator).set_params(prior="unknown")
    is_location = isinstance(estimator, LocationEstimator)
    fit = partial(eb.posterior_from, [1.0], [1.0], "unknown", df=3)
    with pytest.raises(ValueError, match="prior must be") as refused:
        (estimator.protocol if is_location else fit)()
    return set(re.findall(r"'(\w+)'", str(refused.value))) - {"unknown"}


def test_every_family_and_every_prior_has_a_case():
    listed = [getattr(families, name) for name in families.__all__]
    tried = {
        setting.estimator.protocol().family.name
        for setting in SETTINGS.values()
        if isinstance(setting.estimator, LocationEstimator)
    }
    assert tried == {each.name for each in listed if hasattr(each, "conjugate")}
    for name, setting in SETTINGS.items():
        cases = {case.values[1] for case in CASES if case.values[0] == name}
        missing = offered(setting) - cases
        # of t errors, the slabs with a point are tried by scale mixtures
        assert missing == ({"point_normal", "point_laplace"} if name == "student_t" else set())


def check_risk(found, oracle, spread, truth, limit=LIMIT):
    """Compare estimates with the oracle's, whose posterior variances are `spread`."""
    risk = np.mean(spread)
    excess = np.mean((found - oracle) ** 2) / risk
    paired = ((found - truth) ** 2 - (oracle - truth) ** 2) / risk
    error = paired.std() / np.sqrt(len(paired))
    print(f"excess {excess:.3%}, paired {paired.mean():.3%} +- {error:.3%}")
    assert excess < limit
    assert abs(paired.mean() - excess) < 4 * error


def compared(likelihood, prior, population, rows, seed=0):
    """Fit a prior to groups of a population; the parameter of variances is their logarithm.

    Returns estimates, the oracle's, its posterior variances, parameters and messages.
    """
    setting, rng = SETTINGS[likelihood], np.random.default_rng(seed)
    truth = setting.populations["large"][population]
    theta = truth.draw(M, rng)
    summary = setting.draw(theta, truth.sizes(theta, rows, False, rng), rng)
    prior = setting.priors[prior]
    fit = clone(setting.estimator).set_params(prior=prior).fit(summary)
    if setting.likelihood is None:
        family = fit.protocol().family
        read = family.likelihood(family.figures(family.converted(summary)))
    else:
        read = setting.likelihood(summary)
    if likelihood == "variance":  # posteriors show variances, and populations are of logarithms
        found = fit.prior_.posterior(read).mean[:, 0]
    else:
        found = fit.posterior(groups=fit.groups_).mean[:, 0]
    nodes, masses = truth.nodes(400)
    logs = read.logpdf(nodes[:, None])
    joint = masses * np.exp(logs - logs.max(axis=1, keepdims=True))
    joint /= joint.sum(axis=1, keepdims=True)
    oracle = joint @ nodes
    return found, oracle, joint @ nodes**2 - oracle**2, theta, read


@pytest.mark.filterwarnings("ignore:EM for GaussianMixture stopped")
@pytest.mark.parametrize(("likelihood", "prior", "population"), CASES)
def test_risk_is_near_the_oracle(likelihood, prior, population):
    rows = ROWS.get(likelihood, SETTINGS[likelihood].rows["unequal"])
    check_risk(*compared(likelihood, prior, population, rows)[:4])


def efficient_excess(low, high, share, rows):
    """Excess of maximum likelihood that knows that there are two spikes, for many groups.

    With Fisher's information I of a group on places and share, and the derivatives d of its
    posterior mean by these, it is ``trace(I^-1 E[d d']) / M``, relative to the risk.
    """
    angle = (np.arange(100_000) + 0.5) / 100_000 * np.pi - np.pi / 2
    x, step = 1.5 + 3 * np.tan(angle), 3 * np.pi / 100_000 / np.cos(angle) ** 2
    information, slopes, risk = np.zeros((3, 3)), np.zeros((3, 3)), 0.0
    for n in rows:
        df, scale = n - 1, np.sqrt(ROW_VARIANCE / n)
        first, second = (t.pdf((x - place) / scale, df) / scale for place in (low, high))
        mass = (share * first + (1 - share) * second) * step / len(rows)
        above = (1 - share) * second * step / len(rows) / mass
        pulls = [n * (x - place) / (df * scale**2 + (x - place) ** 2) for place in (low, high)]
        # of the log-odds of the higher spike, by the two places and the share
        odds = np.array([-pulls[0], pulls[1], np.full(len(x), -1 / (share * (1 - share)))])
        score = np.array([(1 - above) * pulls[0], above * pulls[1], first - second])
        score[2] *= step / len(rows) / mass
        variance = above * (1 - above)
        slope = (high - low) * variance * odds + np.array([1 - above, above, 0 * x])
        information += (score * mass) @ score.T
        slopes += (slope * mass) @ slope.T
        risk += mass @ variance * (high - low) ** 2
    return np.trace(np.linalg.solve(information, slopes)) / M / risk


def test_risk_of_two_spikes_is_near_the_oracle():
    """The mean of ten draws, of which single ones are up to 7 % above.

    A fit that knows that there are two spikes is .22 +- .03 % above in the mean of 40 draws. The
    maximiser has atoms beside these, which stand for outliers of the error.
    """
    likelihood, prior, population = next(iter(RARE))
    (share, low), (_, high) = SETTINGS[likelihood].populations["large"][population].parts
    efficient = efficient_excess(low, high, share, ROWS[likelihood])
    assert 0.002 < efficient < 0.005
    excess = []
    for seed in range(10):
        found, oracle, spread, *_ = compared(likelihood, prior, population, ROWS[likelihood], seed)
        excess.append(np.mean((found - oracle) ** 2) / np.mean(spread))
    print(f"excess {np.mean(excess):.3%} of {np.round(excess, 4)}, efficient {efficient:.3%}")
    assert np.mean(excess) < 10 * efficient


# T errors of few degrees of freedom: 2 and 3, then 3 and 6.
FEW = ((3, 4), (4, 7))
# Limits where more than 1 % is lost, nearly all of it on a few estimates that are far: it is open
# whether the parameter or the error is. A scaled t(3) population, the scale by maximum likelihood,
# is .02 % above, one of any degrees of freedom .5 % in the mean of six draws, and up to 2.7 %.
# Two degrees: the squared error has no mean, and other draws lose 10 or 1000 times as much where
# the farthest error is taken for a parameter.
FAR = {
    # weights of the largest scales, or the range of the spline, follow the farthest estimate
    ((3, 4), "scale_mixture", "t(3)"): 0.015,
    ((3, 4), "log_spline", "normal"): 0.025,
    ((3, 4), "log_spline", "laplace"): 0.22,
    ((3, 4), "log_spline", "t(3)"): 0.055,
    ((4, 7), "scale_mixture", "t(3)"): 0.025,
    ((4, 7), "log_spline", "t(3)"): 0.03,
    # one tail alone, for which atoms stand
    ((4, 7), "npmle", "skewed"): 0.017,
    ((4, 7), "npmle", "t(3)"): 0.025,
}


@pytest.mark.parametrize(
    ("rows", "prior", "population"),
    [
        pytest.param(rows, prior, population, id=f"{rows[0]}-{rows[1]}-{prior}-{population}")
        for rows in FEW
        for prior in SETTINGS["student_t"].priors
        for population in SETTINGS["student_t"].populations["large"]
        if SETTINGS["student_t"].holds(prior, population)
    ],
)
def test_risk_of_few_degrees_of_freedom(rows, prior, population):
    """Of estimates within ten errors of the middle, the excess is below 1 %."""
    *four, read = compared("student_t", prior, population, rows)
    found, oracle, spread, _ = four
    away = np.abs(read.values[:, 0] - np.median(read.values)) / np.sqrt(read.variances[:, 0])
    near = ((found - oracle) ** 2)[away < 10].sum() / spread.sum()
    print(f"near {near:.3%}")
    assert near < LIMIT
    # the NPMLE has atoms of their own for errors of two degrees of freedom that are far: .3 to .8
    # of the risk, and more in other draws, as squared errors have no mean
    if (rows, prior) != ((3, 4), "npmle"):
        check_risk(*four, FAR.get((rows, prior, population), LIMIT))


def test_risk_of_weighted_rows_is_near_the_oracle():
    """Weights are precisions of rows, up to a factor that is estimated."""
    rng = np.random.default_rng(1)
    groups = np.repeat(np.arange(M), rng.integers(2, 8, M))
    theta, weight = rng.normal(1, 0.8, M), rng.uniform(0.2, 3, len(groups))
    y = rng.normal(theta[groups], 1.5 / np.sqrt(weight))
    fit = eb.GaussianEB().fit(y, groups=groups, sample_weight=weight)
    precision = np.bincount(groups, weight) / 1.5**2
    spread = 1 / (precision + 1 / 0.8**2)
    local = np.bincount(groups, weight * y) / np.bincount(groups, weight)
    oracle = spread * (precision * local + 1 / 0.8**2)
    check_risk(fit.posterior().mean[:, 0], oracle, spread, theta)


def within(means, masses, logs, conditional):
    """Posterior means and variances of groups of parents, over a quadrature of the parent's.

    `logs` are log-likelihoods of groups at means of their parent, shape (parents, groups, k), and
    `conditional` posterior means and variances there.
    """
    total = np.log(masses) + logs.sum(axis=1)
    shares = np.exp(total - total.max(axis=1, keepdims=True))
    shares = (shares / shares.sum(axis=1, keepdims=True))[:, None]
    mean, variance = conditional
    center = (shares * mean).sum(axis=2)
    spread = (shares * (variance + mean**2)).sum(axis=2) - center**2
    return center.ravel(), spread.ravel()


@pytest.mark.parametrize("family", ["binomial", "poisson"])
def test_risk_of_levels_is_near_the_oracle(family):
    """Rates of 50 counties in each of 200 states; means are in `test_levels.py`.

    The populations of states and of counties are estimated, and known to the oracle.
    """
    rng = np.random.default_rng(2)
    state, county = np.repeat(np.arange(200), 50), np.tile(np.arange(50), 200)
    size = rng.integers(3, 20, M)
    owner = np.repeat(np.arange(M), size)
    if family == "binomial":
        truth = TruePopulation((1.0, lambda rank: betaincinv(3, 2, rank)))
        parent = truth.draw(200, rng)[state]
        theta = rng.beta(8 * parent, 8 * (1 - parent))
        y, estimator = (rng.random(len(owner)) < theta[owner]) * 1.0, eb.BernoulliEB()
    else:
        truth = TruePopulation((1.0, lambda rank: 0.5 * gammaincinv(4, rank)))
        parent = truth.draw(200, rng)[state]
        theta = rng.gamma(5, parent / 5)
        y, estimator = rng.poisson(theta[owner]) * 1.0, eb.PoissonEB()
    frame = pd.DataFrame({"state": state[owner], "county": county[owner], "y": y})
    found = estimator.fit(frame, groups=["state", "county"]).posterior().mean[:, 0]
    sums, n = (each.reshape(200, 50, 1).astype(float) for each in (np.bincount(owner, y), size))
    means, masses = truth.nodes(200)
    if family == "binomial":
        a, b = 8 * means, 8 * (1 - means)
        logs = betaln(a + sums, b + n - sums) - betaln(a, b)
        mean = (a + sums) / (8 + n)
        conditional = mean, mean * (1 - mean) / (9 + n)
    else:
        rate = 5 / means
        logs = 5 * np.log(rate) - (5 + sums) * np.log(rate + n) + gammaln(5 + sums)
        mean = (5 + sums) / (rate + n)
        conditional = mean, mean / (rate + n)
    check_risk(found, *within(means, masses, logs, conditional), theta)


def test_every_population_with_levels_has_a_case():
    nested = set()
    for name in priors.__all__:
        kind = getattr(priors, name)
        if isinstance(kind, type) and issubclass(kind, priors.Prior) and kind is not priors.Prior:
            with contextlib.suppress(TypeError):  # which says that it has no parents
                parents.within(kind(), ["state"])
                nested.add(name)
    assert nested == {"Normal", "Beta", "Gamma"}
