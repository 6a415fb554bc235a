"""Mixtures of regressions: AdaMix and MixtureLinearEB."""

import warnings

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import check_estimator

import ebfed as eb
from ebfed import channels
from ebfed.priors import IdentificationWarning
from ebfed.privacy import accountant, events
from ebfed.testing import check_regression_contract


def clusters(m=300, p=3, k=2, apart=2.0, spread=0.4, noise=0.7, rows=(1, 12), seed=0):
    """Rows of m clients of k components, coefficients of x and the intercept."""
    rng = np.random.default_rng(seed)
    means = apart * rng.normal(size=(k, p))
    label = rng.integers(k, size=m)
    theta = means[label] + spread * rng.normal(size=(m, p))
    groups = np.repeat(np.arange(m), rng.integers(*rows, m))
    X = rng.normal(size=(len(groups), p - 1))
    y = theta[groups, 0] + (X * theta[groups, 1:]).sum(axis=1) + noise * rng.normal(size=len(X))
    return X, y, groups, theta, label


def table3(n, seed, m=1000, d=50):
    """Clients of Table 3 of Ozkara et al. (2023)."""
    rng = np.random.default_rng(seed)
    mu = rng.normal(size=d)
    mu *= np.sqrt(50) / np.linalg.norm(mu)
    theta = rng.choice([-1, 1], m)[:, None] * mu + np.sqrt(0.001) * rng.normal(size=(m, d))
    X = rng.normal(size=(m, n, d))
    y = np.einsum("mnd,md->mn", X, theta) + np.sqrt(0.1) * rng.normal(size=(m, n))
    return X.reshape(-1, d), y.ravel(), np.repeat(np.arange(m), n), theta


EVERY = [
    eb.AdaMix(2, random_state=0),
    eb.AdaMix(1, random_state=0),
    eb.AdaMix(3, covariance="diag", n_init=2, random_state=0),
    eb.AdaMix(2, noise_variance=0.5, random_state=0),
    eb.MixtureLinearEB(2, random_state=0),
    eb.MixtureLinearEB(2, solver="clustering", noise_variance=0.5, random_state=0),
    eb.AdaMix(
        2,
        solver="gradient",
        noise_variance=0.5,
        n_rounds=4,
        learning_rate=0.01,
        random_state=0,
    ),
    eb.AdaMix(1, population="laplace", random_state=0),
    eb.AdaMix(2, population="laplace", covariance="diag", n_init=2, random_state=0),
    eb.AdaMix("bic", max_components=3, n_init=2, random_state=0),
    eb.MixtureLinearEB("heldout", max_components=3, n_init=2, random_state=0),
]
DRAWN = [
    eb.AdaMix(2, channel=channels.AddNoise(0.3), noise_variance=0.5, n_rounds=3, random_state=0),
    eb.AdaMix(
        2,
        channel=channels.Clip(radius=9),
        noise_variance=0.5,
        n_rounds=2,
        random_state=0,
    ),
]


@pytest.mark.parametrize("estimator", EVERY, ids=repr)
def test_contract(estimator):
    X, y, groups, *_ = clusters(120)
    check_regression_contract(estimator, X, y, groups, tolerance=1e-4)


@pytest.mark.parametrize("estimator", DRAWN, ids=repr)
def test_contract_of_draws(estimator):
    X, y, groups, *_ = clusters(120)
    check_regression_contract(estimator, X, y, groups, tolerance=1e9)


def log_density(est, X, y, groups):
    """Log marginal likelihood, from the joint normal density of each client's rows."""
    X = np.column_stack([np.ones(len(X)), X])
    total = 0.0
    for g in np.unique(groups):
        A, target = X[groups == g], y[groups == g]
        logs = [
            np.log(w)
            + multivariate_normal.logpdf(
                target, A @ mu, (A * v) @ A.T + est.noise_variance_ * np.eye(len(A))
            )
            for w, mu, v in zip(est.weights_, est.means_, est.variances_, strict=True)
        ]
        total += logsumexp(logs)
    return total


@pytest.mark.parametrize("estimator", EVERY[:5], ids=repr)
@pytest.mark.parametrize("seed", range(3))
def test_likelihood_climbs(estimator, seed):
    X, y, groups, *_ = clusters(80, k=3, apart=1.0, rows=(2, 8), seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        est = clone(estimator).fit(X, y, groups=groups)
    assert (est.history_["change"].dropna() >= 0).all()
    assert len(est.history_) == est.n_iter_
    assert est.log_likelihood_ == pytest.approx(est.history_["log_likelihood"].iloc[-1])
    assert est.log_likelihood_ == pytest.approx(log_density(est, X, y, groups), rel=1e-9)
    # no step of any parameter leads up from where it ended
    for name in ("means_", "noise_variance_", "variances_"):
        for factor in (0.98, 1.02):
            moved = clone(est)
            moved.__dict__.update(est.__dict__)
            if name == "variances_" and isinstance(est, eb.MixtureLinearEB):
                continue
            setattr(moved, name, getattr(est, name) * factor)
            if name == "noise_variance_" and est.noise_variance is not None:
                continue
            assert log_density(moved, X, y, groups) < est.log_likelihood_ + 1e-6


def test_one_component_is_the_mixed_model():
    X, y, groups, *_ = clusters(100, k=1)
    one = eb.AdaMix(1).fit(X, y, groups=groups)
    mixed = eb.LinearEB("spherical", method="ml").fit(X, y, groups=groups)
    assert one.log_likelihood_ == pytest.approx(mixed.log_likelihood_, abs=1e-5)
    np.testing.assert_allclose(one.mean_, mixed.mean_, rtol=1e-3)
    np.testing.assert_allclose(one.variances_[0], np.diag(mixed.covariance_), rtol=1e-2)
    np.testing.assert_allclose(one.posterior().mean, mixed.posterior().mean, atol=1e-3)
    # the mixture takes variances as known, of which a hundred groups leave a hundredth in doubt
    np.testing.assert_allclose(one.posterior().sd, mixed.posterior().sd, rtol=2e-2)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("covariance", ["spherical", "diag"])
def test_posterior_is_that_of_quadrature(p, covariance):
    X, y, groups, *_ = clusters(200, p=p, apart=3.0, seed=3)
    X = np.ones((len(y), 1)) if p == 1 else np.column_stack([np.ones(len(y)), X])
    est = eb.AdaMix(2, covariance=covariance, fit_intercept=False, random_state=0)
    est.fit(X, y, groups=groups)
    est.means_covariance_ = np.zeros_like(est.means_covariance_)  # population as known
    posterior = est.posterior()
    line = np.linspace(-15, 15, 3001 if p == 1 else 901)
    theta = np.stack(np.meshgrid(*[line] * p, indexing="ij"), axis=-1).reshape(-1, p)
    sds = np.sqrt(est.variances_)
    prior = logsumexp(
        [
            np.log(w) + norm.logpdf(theta, mu, sd).sum(axis=1)
            for w, mu, sd in zip(est.weights_, est.means_, sds, strict=True)
        ],
        axis=0,
    )
    for g in (0, 7, 31):
        own = groups == g
        log = prior + norm.logpdf(y[own], theta @ X[own].T, np.sqrt(est.noise_variance_)).sum(
            axis=1
        )
        mass = np.exp(log - log.max())
        mass /= mass.sum()
        mean = mass @ theta
        np.testing.assert_allclose(posterior.mean[g], mean, atol=1e-4)
        np.testing.assert_allclose(posterior.sd[g] ** 2, mass @ (theta - mean) ** 2, atol=1e-4)
        below = posterior.prob_below(0.3)[g]
        # the cell around 0.3 counts half
        grid = [(mass @ (x < 0.3 - 1e-9) + mass @ (x < 0.3 + 1e-9)) / 2 for x in theta.T]
        np.testing.assert_allclose(below, grid, atol=0.02)
    draws = posterior.sample(4000, 0)
    # 4 standard errors of 120 figures: false alarms below 1 %
    np.testing.assert_allclose(
        draws.mean(axis=0), posterior.mean, atol=4.2 * posterior.sd.max() / np.sqrt(4000)
    )


def test_coverage():
    """Of 95 % intervals, over 2500 clients in 5 simulations: 20 standard errors of room."""
    hits = []
    for seed in range(5):
        X, y, groups, theta, _ = clusters(500, k=2, apart=1.0, rows=(2, 10), seed=seed)
        est = eb.AdaMix(2, random_state=0).fit(X, y, groups=groups)
        low, high = est.posterior().interval()
        hits.append(np.mean((low <= theta) & (theta <= high)))
    assert 0.93 < np.mean(hits) < 0.97


@pytest.mark.parametrize(
    "estimator",
    [eb.AdaMix(3), eb.MixtureLinearEB(3), eb.AdaMix(2, population="laplace")],
    ids=repr,
)
@pytest.mark.parametrize("kind", ["one", "noiseless", "constant", "few", "alike", "wide"])
@pytest.mark.filterwarnings("ignore::ebfed.priors.IdentificationWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_nothing_collapses(estimator, kind):
    rng = np.random.default_rng(0)
    m, n, p = {"few": (3, 2, 2), "wide": (30, 2, 20)}.get(kind, (40, 4, 2))
    groups = np.repeat(np.arange(m), n)
    X = rng.normal(size=(m * n, p))
    y = X @ np.ones(p) + rng.normal(size=m * n)
    if kind == "noiseless":
        y = X @ np.ones(p)
    elif kind == "constant":
        X, y = np.ones_like(X), np.full(m * n, 3.0)
    elif kind == "alike":
        X, y = np.tile(X[:n], (m, 1)), np.tile(y[:n], m)
    est = clone(estimator).set_params(random_state=0).fit(X, y, groups=groups)
    posterior = est.posterior()
    for figure in (posterior.mean, posterior.sd, est.means_, est.variances_, est.weights_):
        assert np.isfinite(figure).all()
    exact = any("explain all rows exactly" in note for note in est.notes_)
    assert exact == (est.noise_variance_ == 0) == np.isnan(est.log_likelihood_)
    assert exact or kind not in ("noiseless", "constant")
    if kind in ("noiseless", "constant"):
        np.testing.assert_allclose(est.predict(X, groups=groups), y, atol=1e-3)


def test_responsibilities_and_new_groups():
    X, y, groups, _, label = clusters(200, apart=3.0, rows=(4, 9), seed=3)
    est = eb.AdaMix(2, random_state=0).fit(X, y, groups=groups)
    frame = est.responsibilities()
    assert frame.columns.tolist() == ["group", "component_0", "component_1"]
    found = frame["component_1"].to_numpy() > 0.5
    assert np.mean(found == label) in (pytest.approx(0, abs=0.03), pytest.approx(1, abs=0.03))
    strange = est.posterior(
        X[groups == 3], y[groups == 3], groups=np.full((groups == 3).sum(), 999)
    )
    np.testing.assert_allclose(strange.mean[0], est.posterior().mean[3], atol=1e-8)
    nobody = est.posterior(groups=[-1])
    np.testing.assert_allclose(nobody.mean[0], est.weights_ @ est.means_)
    np.testing.assert_allclose(nobody.responsibilities[0], est.weights_)


def test_units_do_not_matter():
    X, y, groups, *_ = clusters(100)
    est = eb.AdaMix(2, covariance="diag", random_state=0).fit(X, y, groups=groups)
    scaled = eb.AdaMix(2, covariance="diag", random_state=0).fit(
        X * [1e8, 1e-8], 1e9 * y, groups=groups
    )
    back = scaled.posterior().mean / 1e9 * [1, 1e8, 1e-8]
    np.testing.assert_allclose(back, est.posterior().mean, atol=1e-4)


@pytest.mark.slow
def test_dask_gives_the_same():
    distributed = pytest.importorskip("distributed")
    from ebfed.engines.dask import Dask

    X, y, groups, *_ = clusters(60)
    with distributed.Client(processes=False, n_workers=1, dashboard_address=None) as client:
        for estimator in (EVERY[0], DRAWN[0]):
            here = clone(estimator).fit(X, y, groups=groups)
            there = clone(estimator).set_params(engine=Dask(client)).fit(X, y, groups=groups)
            np.testing.assert_array_equal(there.means_, here.means_)
            np.testing.assert_array_equal(there.posterior().mean, here.posterior().mean)


# Channels -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "channel",
    [channels.AddNoise(0.5), channels.Quantizer(4, (-5, 5)), channels.Clip(radius=9)],
    ids=repr,
)
def test_population_through_a_channel(channel):
    """Standard deviation 0.4 of a component, seen through noise; errors some 5 standard errors."""
    X, y, groups, theta, _ = clusters(2000, apart=1.5, rows=(4, 10), seed=3)
    est = eb.AdaMix(2, channel=channel, noise_variance=0.49, n_rounds=8, random_state=0)
    est.fit(X, y, groups=groups)
    exact = eb.AdaMix(2, noise_variance=0.49).fit(X, y, groups=groups)
    np.testing.assert_allclose(est.means_, exact.means_, atol=0.1)
    np.testing.assert_allclose(np.sqrt(est.variances_), 0.4, atol=0.07)
    error, best = (np.mean((each.posterior().mean - theta) ** 2) for each in (est, exact))
    assert error < 1.02 * best


def test_no_client_reports_a_second_time():
    channel = channels.Gaussian(4.0, 1e-5, (-9, 9))
    est = eb.AdaMix(1, channel=channel, noise_variance=0.49, n_rounds=2)
    groups, x = np.repeat(np.arange(40), 3), np.linspace(-1, 1, 120)
    est.partial_fit(x[:, None], 2 * x, groups=groups)
    with pytest.raises(ValueError, match="ask every client for more reports"):
        est.partial_fit(x[:, None], 2 * x, groups=groups)


def test_private_rounds_are_all_counted():
    X, y, groups, *_ = clusters(200)
    channel = channels.Clip(radius=5) | channels.Gaussian(20, 1e-5)
    est = eb.AdaMix(1, channel=channel, noise_variance=0.49, n_rounds=3, random_state=0)
    ledger = est.fit(X, y, groups=groups).privacy_.iloc[0]
    spent = accountant.epsilon(events.repeated(channel.event(3), 3), 1e-5, relation="replace_one")
    assert ledger["times"] == 3
    assert ledger["epsilon"] == pytest.approx(spent)
    assert 20 < spent < 60
    assert ledger["delta"] == 1e-5
    assert ledger["bits"] == 3 * 200 * 3 * 64
    assert est.n_iter_ == 3
    open_ = eb.AdaMix(2, random_state=0).fit(X, y, groups=groups).privacy_
    assert np.isinf(open_["epsilon"]).all()


# Published ------------------------------------------------------------------------------------


def test_discrete_noise_is_accounted_for_before_it_is_sent(monkeypatch):
    X, y, groups, _, _ = clusters(60, 2, 1)
    channel = channels.DiscreteGaussian(20, 1e-5, (-5, 5))
    est = eb.AdaMix(1, channel=channel, noise_variance=0.49, n_rounds=4, random_state=0)
    row = est.fit(X, y, groups=groups).privacy_.iloc[0]
    # concentrated privacy adds up, and a Rényi divergence bounds epsilon
    whole = events.concentrated(4 * channel.event(2).rho)
    spent = accountant.epsilon(whole, 1e-5, relation="replace_one", method="rdp")
    np.testing.assert_allclose(row["epsilon"], spent, rtol=1e-9)
    assert 20 < row["epsilon"] < 80
    assert row["times"] == 4

    def no_account(self, n_features=1):
        raise ValueError("no account")

    sent = []
    monkeypatch.setattr(channels.DiscreteGaussian, "event", no_account)
    monkeypatch.setattr(channels.DiscreteGaussian, "encode", lambda *args: sent.append(args))
    with pytest.raises(ValueError, match="no account"):
        est.fit(X, y, groups=groups)
    assert not sent


def test_small_table():
    """A small Table 3, where estimates of coefficients alone are hopeless."""
    X, y, groups, theta = table3(8, 0, m=300, d=20)
    est = eb.AdaMix(2, fit_intercept=False, random_state=0).fit(X, y, groups=groups)
    assert np.mean(((est.posterior().mean - theta) ** 2).sum(axis=1)) < 0.025


@pytest.mark.slow
@pytest.mark.parametrize(("n", "most"), [(10, 0.049), (20, 0.045), (30, 0.042)])
@pytest.mark.parametrize("seed", range(5))
def test_table_3(n, most, seed):
    X, y, groups, theta = table3(n, seed)
    est = eb.AdaMix(2, fit_intercept=False, random_state=0).fit(X, y, groups=groups)
    assert np.mean(((est.posterior().mean - theta) ** 2).sum(axis=1)) < most
    points = eb.MixtureLinearEB(2, fit_intercept=False, random_state=0).fit(X, y, groups=groups)
    # what points cannot know: d times the variance of a component
    assert np.mean(((points.posterior().mean - theta) ** 2).sum(axis=1)) < 0.0525


def test_gradient_descent_of_the_paper():
    """Towards the nearest centre, at a pace of 2 d learning_rate a step; see the study."""
    X, y, groups, theta = table3(10, 0, m=200)
    est = eb.AdaMix(
        2,
        fit_intercept=False,
        solver="gradient",
        noise_variance=0.1,
        random_state=0,
    )
    errors = []
    for n_rounds in (1, 61, 101):
        found = est.set_params(n_rounds=n_rounds).fit(X, y, groups=groups).coefficients_
        errors.append(np.mean(((found - theta) ** 2).sum(axis=1)))
    assert errors[0] == pytest.approx(51, abs=0.5)
    assert errors[1] - errors[2] == pytest.approx(40 * 2 * 50 * 1e-3, abs=0.3)


# Arguments ------------------------------------------------------------------------------------

X_, y_, g_ = np.arange(12.0).reshape(6, 2) ** 1.5, np.arange(6.0) % 4, np.arange(6) // 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_components": 0}, "n_components must be a whole number"),
        ({"n_components": 1.5}, "n_components must be a whole number"),
        ({"n_components": True}, "n_components must be a whole number"),
        ({"n_init": 0}, "n_init must be a whole number"),
        ({"n_rounds": -1}, "n_rounds must be a whole number"),
        ({"tol": -1.0}, "tol must be a number"),
        ({"tol": "small"}, "tol must be a number"),
        ({"noise_variance": 0.0}, "noise_variance must be above 0"),
        ({"noise_variance": "small"}, "noise_variance must be above 0"),
        ({"covariance": "full"}, "covariance must be"),
        ({"solver": "newton"}, "solver must be"),
        ({"population": "cauchy"}, "population must be"),
        ({"population": "laplace", "solver": "gradient"}, "population must be 'normal' where"),
        ({"solver": "gradient", "learning_rate": -1.0}, "learning_rate"),
        ({"solver": "gradient", "learning_rate": 1e9}, "diverged"),
        ({"channel": "exact"}, "channel must be"),
        ({"channel": channels.AddNoise(1.0)}, "n_rounds must be given"),
        ({"channel": channels.AddNoise(1.0), "n_rounds": 2}, "noise_variance must be given"),
        (
            {"channel": channels.AddNoise(), "n_rounds": 2, "noise_variance": 1.0},
            "sd must be given",
        ),
        (
            {"channel": channels.Gaussian(1, 1e-5), "n_rounds": 2, "noise_variance": 1.0},
            "range must be given",
        ),
        (
            {"channel": channels.OneBit(1, (0, 1)), "n_rounds": 2, "noise_variance": 1.0},
            "all of a client's 3 coefficients",
        ),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        eb.AdaMix(**arguments).fit(X_, y_, groups=g_)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"solver": "newton"}, "solver must be"),
        ({"solver": "clustering"}, "noise_variance must be given"),
        ({"n_components": "two"}, "n_components must be"),
    ],
)
def test_bad_arguments_of_points(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        eb.MixtureLinearEB(**arguments).fit(X_, y_, groups=g_)


def test_bad_messages():
    est = eb.AdaMix(2, random_state=0)
    clients, memory = est.protocol().prepare(X_, y_, groups=g_)
    facts = est.protocol().describe(clients, memory)
    state = est.protocol().start(facts, np.zeros(2, np.uint64))
    turn = np.zeros(3, np.int8)
    for _ in range(2):
        sent = est.protocol().broadcast(state)
        message, memory = est.protocol().local(sent, memory, clients, None)
        est.protocol().check_message(message, facts, sent, turn)
        for name in message:
            with pytest.raises(ValueError, match="must"):
                est.protocol().check_message({**message, name: np.zeros(7)}, facts, sent, turn)
            lacking = {each: x for each, x in message.items() if each != name}
            with pytest.raises(ValueError, match="must"):
                est.protocol().check_message(lacking, facts, sent, turn)
        state = est.protocol().update(state, message)


def laplace(seed, m=300, n=4, b=1.0):
    """Clients whose three coefficients are drawn from Laplace's distribution."""
    rng = np.random.default_rng(seed)
    theta = rng.laplace([1.0, -2.0, 0.5], b, (m, 3))
    groups, X = np.repeat(np.arange(m), n), rng.normal(size=(m * n, 3))
    return X, (X * theta[groups]).sum(axis=1) + rng.normal(size=m * n), groups, theta


def test_laplace_population():
    """Section 3, example 2, of the paper; the standard errors of 8 fits leave room of 3."""
    found, risks, hits = [], [], []
    for seed in range(8):
        X, y, groups, theta = laplace(seed)
        fits = [
            eb.AdaMix(1, population=each, fit_intercept=False, random_state=0)
            for each in ("laplace", "normal")
        ]
        means = [fit.fit(X, y, groups=groups).posterior().mean for fit in fits]
        risks.append([((mean - theta) ** 2).mean() for mean in means])
        low, high = fits[0].posterior().interval()
        hits.append(np.mean((low <= theta) & (theta <= high)))
        found.append([*fits[0].means_[0], fits[0].variances_[0, 0], fits[0].noise_variance_])
        assert (fits[0].history_["change"].dropna() >= 0).all()
        assert fits[0].likelihood_kind_ == "approximate"
    np.testing.assert_allclose(np.mean(found, axis=0), [1, -2, 0.5, 2.0, 1.0], atol=0.15)
    ratio = np.mean(risks, axis=0)
    assert ratio[0] < 0.96 * ratio[1]
    assert 0.935 < np.mean(hits) < 0.965


def test_laplace_population_of_known_parameters_is_the_prior_s():
    """With a design of ones, posterior means are those of means under the prior for means."""
    rng = np.random.default_rng(3)
    groups = np.repeat(np.arange(200), 4)
    y = rng.laplace(0.5, 0.7, 200)[groups] + rng.normal(size=800)
    fit = eb.AdaMix(1, population="laplace", fit_intercept=False, noise_variance=1.0)
    fit.fit(np.ones((800, 1)), y, groups=groups)
    prior = eb.GaussianEB(1.0, prior="laplace").fit(y[:, None], groups=groups)
    np.testing.assert_allclose(fit.means_[0, 0], prior.prior_.mean_[0], atol=2e-3)
    np.testing.assert_allclose(fit.variances_[0, 0], prior.prior_.variance_[0], rtol=5e-3)
    assert fit.log_likelihood_ == pytest.approx(prior.log_likelihood_, abs=1e-3)
    ours, theirs = (
        each.posterior(integrate=False) if each is prior else each.posterior()
        for each in (fit, prior)
    )
    np.testing.assert_allclose(ours.mean, theirs.mean, atol=2e-3)


def test_what_is_not_identified_is_said():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 1))
    y = np.where(rng.random(200) < 0.5, 3, -3) * X[:, 0] + 0.1 * rng.normal(size=200)
    with pytest.warns(IdentificationWarning, match="No group has two rows"):
        est = eb.AdaMix(2, fit_intercept=False, random_state=0).fit(X, y)
    np.testing.assert_allclose(np.sort(est.means_.ravel()), [-3, 3], atol=0.1)
    X, y, groups, *_ = clusters(50, apart=0.3)
    own = groups == groups[0]
    with pytest.warns(IdentificationWarning, match="Only one group has data"):
        est = eb.AdaMix(1).fit(X, y, groups=np.zeros(len(y)))
    assert est.variance_.max() == 0
    with pytest.raises(ValueError, match="n_components=2 is more than there are groups"):
        eb.AdaMix(2).fit(X[own], y[own], groups=groups[own])
    same = np.tile(X[:4], (5, 1)), np.tile(y[:4], 5), np.arange(20) // 4
    with pytest.warns(IdentificationWarning, match="only 1 different estimate: of 2 components 1"):
        est = eb.AdaMix(2, random_state=0).fit(*same[:2], groups=same[2])
    assert len(est.weights_) == 1


@pytest.mark.parametrize("n_rounds", [3, 5])
@pytest.mark.parametrize("estimator", [eb.AdaMix(1), eb.AdaMix(2), eb.MixtureLinearEB(2)], ids=repr)
def test_rounds_are_counted(estimator, n_rounds):
    X, y, groups, *_ = clusters(50, apart=0.3)
    est = clone(estimator).set_params(n_rounds=n_rounds, random_state=0, tol=0)
    told = "too few to tell" if n_rounds == 3 and est.n_components > 1 else "stopped after"
    with pytest.warns(ConvergenceWarning, match=told) as caught:
        est.fit(X, y, groups=groups)
    assert "inf" not in str(caught[0].message)
    assert est.n_iter_ == len(est.history_) == n_rounds


def test_rounds_at_least():
    X, y, groups, *_ = clusters(50)
    with pytest.raises(ValueError, match="n_rounds must be at least 3"):
        eb.AdaMix(2, n_rounds=2).fit(X, y, groups=groups)


@pytest.mark.parametrize("estimator", [eb.AdaMix(1), eb.MixtureLinearEB(1)], ids=repr)
def test_exact_rows(estimator):
    """No likelihood, no noise and no errors, rather than those of a floor."""
    with pytest.warns(IdentificationWarning, match="explain all rows exactly"):
        est = clone(estimator).fit(np.arange(12.0)[:, None], np.ones(12), groups=np.arange(12) // 3)
    assert np.isnan(est.log_likelihood_)
    assert est.noise_variance_ == est.variance_.max() == np.abs(est.means_covariance_).max() == 0
    np.testing.assert_allclose(est.predict([[3.0]]), 1)
    assert np.isfinite(est.posterior(groups=[1, 99]).sd).all()


@pytest.mark.parametrize(
    "estimator", [eb.AdaMix(2), eb.AdaMix(2, covariance="diag"), eb.MixtureLinearEB(2)], ids=repr
)
def test_collinear_columns(estimator):
    X, y, groups, *_ = clusters(100, p=2)
    plain = clone(estimator).set_params(random_state=0).fit(X, y, groups=groups)
    wide = clone(plain)
    with pytest.warns(IdentificationWarning, match="collinear: of 3 coefficients .* only 2"):
        wide.fit(np.column_stack([X, 2 * X + 1]), y, groups=groups)
    assert np.abs(wide.means_).max() < 2 * np.abs(plain.means_).max()
    assert any("collinear" in note for note in wide.notes_)


@pytest.mark.parametrize(
    "estimator",
    [eb.AdaMix(1), eb.AdaMix(2, random_state=0), eb.MixtureLinearEB(2, random_state=0)],
    ids=repr,
)
# Its data have no groups, so that every row is one, whose noise nothing identifies.
@pytest.mark.filterwarnings("ignore::ebfed.priors.IdentificationWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scikit_learn(estimator):
    # without groups a row of weight 2 is one group, and the row repeated is two
    weights = "check_sample_weight_equivalence_on_dense_data"
    check_estimator(estimator, expected_failed_checks={weights: "weights are of rows of groups"})
