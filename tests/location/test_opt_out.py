"""OptOutMean: the paper's lemmas, the equality with GaussianEB, and its promises."""

import numpy as np
import pytest
from sklearn.base import clone

import ebfed as eb
from ebfed.channels import AddNoise, Exact
from ebfed.priors import Normal
from ebfed.privacy.calibration import gaussian_sigma
from ebfed.theory import opt_out as theory

RNG = np.random.default_rng(11)


def federation(n_private, n_open, tau2, alpha2, d=1, phi=0.0, seed=0):
    """Clients of one row each: estimates, parameters, and choices."""
    rng = np.random.default_rng(seed)
    m = n_private + n_open
    truth = rng.normal(phi, np.sqrt(tau2), (m, d))
    choice = np.repeat(["private", "open"], [n_private, n_open])
    return rng.normal(truth, np.sqrt(alpha2)), truth, choice


@pytest.mark.parametrize("n_private", [0, 1, 4, 19])
@pytest.mark.parametrize(("tau2", "alpha2", "gamma2"), [(0.01, 1.0, 1.0), (2.0, 0.3, 5.0)])
@pytest.mark.parametrize("ratio", ["optimal", "fedavg", 0.3])
def test_lemma_1(n_private, tau2, alpha2, gamma2, ratio):
    n_open = 20 - n_private
    X, _, choice = federation(n_private, n_open, tau2, alpha2)
    est = eb.OptOutMean(tau2, alpha2, gamma2, ratio=ratio, random_state=1).fit(X, consent=choice)
    q = n_private * gamma2
    best = theory.optimal_ratio(tau2, alpha2, 1, q)
    r = {"optimal": best, "fedavg": 1.0}.get(ratio, ratio)
    np.testing.assert_allclose(est.ratio_, r, rtol=1e-12)
    expected = theory.server_variance(tau2, alpha2, 1, q, n_private, n_open, ratio=r)
    np.testing.assert_allclose(est.server_variance_, expected, rtol=1e-12)
    sent = np.where((choice == "open")[:, None], X, est._learned.memory["report"])
    weights = np.where(choice == "open", 1.0, r)
    np.testing.assert_allclose(est.global_, np.average(sent[:, 0], weights=weights), rtol=1e-12)


def test_the_gap_to_fedavg():
    X, _, choice = federation(12, 8, 0.5, 1.0)
    variance = {
        ratio: eb.OptOutMean(0.5, 1.0, 0.2, ratio=ratio).fit(X, consent=choice).server_variance_
        for ratio in ("optimal", "fedavg")
    }
    gap = theory.fedavg_gap(0.5, 1.0, 1, 12 * 0.2, 12, 8)
    np.testing.assert_allclose(variance["fedavg"] - variance["optimal"], gap, rtol=1e-12)


# N = 5, N_p = 4, alpha2 = 1, tau2 = .01, gamma2 = 1
CASES = {"paper": (2.1910, 0.41350), "ditto": (1.9513, 0.41262), "bayes": (2.1910, 0.39001)}


@pytest.mark.parametrize("personalize", CASES)
def test_the_price_of_forgetting_ones_own_noise(personalize):
    """Weight and risk as computed, and the risk as simulated, within 3 standard errors.

    Twelve comparisons with a fixed seed: by chance alone one in 30 seeds would fail.
    """
    penalty, risk = CASES[personalize]
    X, truth, choice = federation(4, 1, 0.01, 1.0, d=20_000)
    est = eb.OptOutMean(0.01, 1.0, 1.0, personalize=personalize, random_state=0)
    est.fit(X, consent=choice)
    np.testing.assert_allclose(est.lambda_[:4], penalty, atol=5e-5)
    np.testing.assert_allclose(est.lambda_[4], 100, rtol=1e-9)
    np.testing.assert_allclose(est.posterior().sd[:4] ** 2, risk, atol=5e-6)
    loss = (est.predict() - truth) ** 2
    error = loss.std(axis=1) / np.sqrt(loss.shape[1])
    stated = est.posterior().sd[:, 0] ** 2
    assert np.all(np.abs(loss.mean(axis=1) - stated) < 3 * error)
    exact = {"paper": theory.feo2_penalty, "ditto": theory.ditto_penalty}
    if personalize in exact:
        np.testing.assert_allclose(
            est.lambda_[0], exact[personalize](0.01, 1, 1, 4, 4, 1, private=True), rtol=1e-9
        )
        stated_risk = theory.ditto_risk(est.lambda_[0], 0.01, 1, 1, 4, 4, 1, private=True)
    else:
        stated_risk = theory.bayes_risk(0.01, 1, 1, 4, 4, 1, private=True)
    np.testing.assert_allclose(est.posterior().sd[0] ** 2, stated_risk, rtol=1e-9)


@pytest.mark.parametrize("ratio", ["optimal", 0.6])
@pytest.mark.parametrize("personalize", ["bayes", "ditto"])
def test_stated_risk_with_unequal_clients(ratio, personalize):
    """Posterior variance is the simulated risk (30 clients within 4 s.e.: 1 seed in 500)."""
    rng = np.random.default_rng(5)
    n = rng.integers(1, 9, 30)
    choice = dict(enumerate(np.where(np.arange(30) < 18, "private", "open")))
    truth = rng.normal(0, 0.7, (30, 10_000))
    X = rng.normal(truth, np.sqrt(2 / n)[:, None])
    summary = eb.Summary(np.arange(30), n, X, np.zeros_like(X))
    alpha2 = 2 * np.mean(1 / n)
    est = eb.OptOutMean(0.49, alpha2, 0.1, ratio=ratio, personalize=personalize, random_state=3)
    est.fit(summary, consent=choice)
    loss = (est.predict() - truth) ** 2
    error = loss.std(axis=1) / np.sqrt(loss.shape[1])
    assert np.all(np.abs(loss.mean(axis=1) - est.posterior().sd[:, 0] ** 2) < 4 * error)


@pytest.mark.parametrize("trust", ["server", "none"])
def test_it_is_gaussian_eb_with_a_channel_for_each_class(trust):
    X, _, choice = federation(13, 9, 0.5, 1.0, d=2, phi=3.0)
    mean = eb.OptOutMean(0.5, 1.0, 0.2, trust=trust, random_state=4).fit(X, consent=choice)
    location = eb.GaussianEB(
        1.0,
        prior=Normal(variance=0.5),
        channel={"private": AddNoise(np.sqrt(13 * 0.2)), "open": Exact()},
        random_state=4,
    ).fit(X, consent=choice)
    np.testing.assert_allclose(mean.global_, location.prior_.mean_, rtol=1e-12)
    np.testing.assert_allclose(mean.predict(), location.predict(), rtol=1e-12)
    np.testing.assert_allclose(mean.posterior().sd, location.posterior().sd, rtol=1e-12)


LEVELS = {"strict": 0.9, "middle": 0.2, "lax": 0.02}


def many_levels(m=60, d=3, tau2=0.5, rows=None, seed=0):
    """Clients of three levels and open ones, with unequal numbers of rows."""
    rng = np.random.default_rng(seed)
    n = rng.integers(1, 30, m) if rows is None else np.full(m, rows)
    truth = rng.normal(2.0, np.sqrt(tau2), (m, d))
    summary = eb.Summary(
        np.arange(m), n, rng.normal(truth, 1 / np.sqrt(n)[:, None]), np.zeros((m, d))
    )
    names = [*LEVELS, "open"]
    return summary, truth, {i: names[i % 4] for i in range(m)}


@pytest.mark.parametrize("trust", ["server", "none"])
@pytest.mark.parametrize("rows", [1, None])
def test_weights_of_levels_are_those_of_the_normal_likelihood(trust, rows):
    """To 1e-10: of each client's message, and of each level beside an open one."""
    summary, _, choice = many_levels(rows=rows)
    alpha2 = np.mean(1 / summary.n)
    mean = eb.OptOutMean(0.5, alpha2, LEVELS, trust=trust, random_state=4)
    mean.fit(summary, consent=choice)
    q = {name: 15 * gamma2 for name, gamma2 in LEVELS.items()}
    location = eb.GaussianEB(
        1.0,
        prior=Normal(variance=0.5),
        channel={name: AddNoise(np.sqrt(x)) for name, x in q.items()} | {"open": Exact()},
        random_state=4,
    ).fit(summary, consent=choice)
    own = mean._learned.own_reports(mean.summaries_).variance
    share = mean._learned.share(mean.summaries_, own)
    noise = np.array([q.get(choice[i], 0.0) for i in range(60)])
    precision = 1 / (0.5 + 1 / summary.n + noise)
    np.testing.assert_allclose(
        share, np.tile(precision / precision.sum(), (3, 1)).T, rtol=1e-10, atol=0
    )
    np.testing.assert_allclose(mean.global_, location.prior_.mean_, rtol=1e-10)
    np.testing.assert_allclose(mean.predict(), location.predict(), rtol=1e-10)
    np.testing.assert_allclose(mean.posterior().sd, location.posterior().sd, rtol=1e-10)
    if rows == 1:
        expected = [theory.optimal_ratio(0.5, 1.0, 1, x) for x in q.values()]
        np.testing.assert_allclose(mean.ratio_, np.tile(expected, (3, 1)).T, rtol=1e-10)


def test_risk_of_levels_is_that_of_the_oracle():
    """Within 2 %, with variances estimated: 8 federations of 400 clients and 5 columns."""
    risks, oracle = [], []
    for seed in range(8):
        _, truth, choice = many_levels(400, 5, rows=4, seed=seed)
        known = eb.OptOutMean(0.5, 0.25, LEVELS, trust="none", random_state=seed)
        rows = np.repeat(truth, 4, axis=0) + np.random.default_rng(seed).normal(size=(1600, 5))
        groups = np.repeat(np.arange(400), 4)
        for fit, errors in ((known, oracle), (clone(known).set_params(tau2=None), risks)):
            fit.set_params(alpha2=fit.alpha2 if fit is known else None)
            fit.fit(rows, groups=groups, consent=choice)
            errors.append([((fit.predict() - truth) ** 2).mean(), fit.server_variance_.mean()])
    ratio = np.mean(risks, axis=0) / np.mean(oracle, axis=0)
    assert ratio[0] < 1.02
    np.testing.assert_allclose(ratio[1], 1, atol=0.02)


def test_levels_of_epsilon_and_their_ledger():
    X, _, choice = federation(40, 20, 1.0, 0.5, d=2)
    choice = np.where(np.arange(60) < 15, "strict", np.where(choice == "open", choice, "lax"))
    for trust in ("server", "none"):
        est = eb.OptOutMean(
            epsilon={"strict": 0.5, "lax": 4.0},
            delta=1e-5,
            range=(-3, 3),
            trust=trust,
            tau2=1.0,
            alpha2=0.5,
        ).fit(X, consent=choice)
        ledger = est.privacy_.set_index("who")
        assert ledger["epsilon"].to_dict() == {"strict": 0.5, "lax": 4.0, "open": np.inf}
        assert ledger["clients"].tolist() == [15, 25, 20]
        for k, (name, n) in enumerate({"strict": 15, "lax": 25}.items()):
            sigma = gaussian_sigma(est.epsilon[name], 1e-5, 6 * np.sqrt(2))
            q = sigma**2 / (n - 1 if trust == "server" else 1)
            np.testing.assert_allclose(n * est.gamma2_[k], q, rtol=1e-9)
        assert np.all(est.ratio_[0] < est.ratio_[1])
        assert np.all(est.ratio_[1] < 1)


def test_levels_have_names_and_are_chosen():
    X, *_ = federation(4, 2, 1.0, 0.5)
    for wrong in ({}, {"open": 1.0}, {1: 1.0}):
        with pytest.raises(ValueError, match="gamma2 must be a number, or name levels"):
            eb.OptOutMean(1.0, 0.5, wrong).fit(X)
    with pytest.raises(ValueError, match=r"consent= must say which class of channel \('a', 'b'"):
        eb.OptOutMean(1.0, 0.5, {"a": 1.0, "b": 2.0}).fit(X)
    with pytest.raises(ValueError, match="personalize='paper' is for a single level"):
        eb.OptOutMean(1.0, 0.5, {"a": 1.0, "b": 2.0}, personalize="paper").fit(X, consent=["a"] * 6)
    with pytest.raises(ValueError, match="gamma2 must be a variance; got -1"):
        eb.OptOutMean(1.0, 0.5, {"a": 1.0, "b": -1}).fit(X, consent=["a"] * 6)


def test_estimated_variances_are_those_of_gaussian_eb():
    groups = np.repeat(np.arange(60), 5)
    X = RNG.normal(RNG.normal(1, 2, 60)[groups], 1.5)
    choice = np.where(groups % 3 == 0, "open", "private")
    mean = eb.OptOutMean(gamma2=0.2, trust="none", random_state=4)
    mean.fit(X, groups=groups, consent=choice)
    location = eb.GaussianEB(
        channel={"private": AddNoise(np.sqrt(40 * 0.2)), "open": Exact()}, random_state=4
    ).fit(X, groups=groups, consent=choice)
    np.testing.assert_allclose(mean.noise_variance_, location.noise_variance_, rtol=1e-12)
    np.testing.assert_allclose(mean.tau2_, location.prior_.variance_, rtol=1e-9)
    np.testing.assert_allclose(mean.predict(), location.predict(), rtol=1e-9)
    np.testing.assert_allclose(mean.gamma2_, 0.2, rtol=1e-12)
    np.testing.assert_allclose(mean.alpha2_, mean.noise_variance_ / 5, rtol=1e-12)
    # a server that is trusted with noisy means may publish no variance that they tell
    central = clone(mean).set_params(trust="server").fit(X, groups=groups, consent=choice)
    shown = eb.GaussianEB(mean.noise_variance_).fit(
        X[choice == "open"], groups=groups[choice == "open"]
    )
    np.testing.assert_allclose(central.tau2_, shown.prior_.variance_, rtol=1e-9)
    assert np.isnan(central.log_likelihood_)


def test_corner_cases():
    X, _, choice = federation(6, 4, 1.0, 0.5)
    fit = {"consent": choice}
    hushed = eb.OptOutMean(1.0, 0.5, 1e-14).fit(X, **fit)  # r -> 1
    np.testing.assert_allclose(hushed.ratio_, 1, rtol=1e-12)
    np.testing.assert_allclose(hushed.lambda_, 0.5, rtol=1e-9)
    everyone = eb.OptOutMean(1.0, 0.5, 0.3).fit(X)  # N_p -> N
    U, G = 1.0 / 0.5, 10 * 0.3 / 0.5
    np.testing.assert_allclose(everyone.lambda_, 10 / (U * 10 + G), rtol=1e-9)
    sure = eb.OptOutMean(1.0, 1e-12, 0.3).fit(X, **fit)  # alpha2 -> 0
    assert np.all(sure.lambda_ < 1e-11)
    np.testing.assert_allclose(sure.predict(), X[:, 0], rtol=1e-9)
    alike = eb.OptOutMean(0.0, 0.5, 0.3).fit(X, **fit)  # tau2 -> 0
    G = 6 * 0.3 / 0.5
    np.testing.assert_allclose(alike.lambda_[:6], (10 + G * 4) / G, rtol=1e-9)
    assert np.all(alike.lambda_[6:] > 1e12)
    np.testing.assert_allclose(alike.predict()[6:], alike.global_[0])


@pytest.mark.parametrize("trust", ["server", "none"])
def test_calibrated_noise_and_its_ledger(trust):
    X, _, choice = federation(40, 20, 1.0, 0.5, d=2)
    est = eb.OptOutMean(epsilon=1, delta=1e-5, range=(-3, 3), trust=trust, alpha2=0.5)
    est.fit(X, consent=choice)
    sigma = gaussian_sigma(1, 1e-5, 6 * np.sqrt(2))
    q = sigma**2 / (39 if trust == "server" else 1)
    np.testing.assert_allclose(40 * est.gamma2_, q, rtol=1e-9)
    ledger = est.privacy_.set_index("who")
    assert ledger.loc["private", "epsilon"] == 1
    assert ledger.loc["private", "delta"] == 1e-5
    assert ledger.loc["open", "epsilon"] == np.inf
    assert ledger["clients"].tolist() == [40, 20]
    trusted = "server is trusted" in ledger.loc["private", "assumptions"]
    assert trusted == (trust == "server")
    assert "epsilon = 1" in str(est.summary())
    assert ("readers of theta" in str(est.summary())) == (trust == "server")


def test_noise_without_a_range_promises_nothing():
    X, _, choice = federation(4, 2, 1.0, 0.5)
    ledger = eb.OptOutMean(1.0, 0.5, 10.0).fit(X, consent=choice).privacy_
    assert (ledger["epsilon"] == np.inf).all()


def test_equal_weights_under_central_privacy():
    """Noise on a sum covers all private clients alike: however many rows, one weight."""
    n = np.array([1, 2, 50, 7, 3, 9])
    X = RNG.normal(size=(6, 1))
    summary = eb.Summary(np.arange(6), n, X, np.zeros_like(X))
    choice = dict(enumerate(["private"] * 4 + ["open"] * 2))
    est = eb.OptOutMean(1.0, 0.5, epsilon=2, delta=1e-5, range=(-4, 4), random_state=0)
    est.fit(summary, consent=choice)
    share = est._learned.share(est.summaries_, est._learned.own_reports(est.summaries_).variance)[
        :, 0
    ]
    np.testing.assert_allclose(share[:4], share[0])
    assert share[5] > share[4]
    np.testing.assert_allclose(share.sum(), 1)
    sent = np.where(np.arange(6)[:, None] < 4, est._learned.memory["report"], X)
    np.testing.assert_allclose(est.global_, share @ sent)
    noise = share[0] ** 2 * 3 * 4 * est.gamma2_
    np.testing.assert_allclose(noise, (share[0] * gaussian_sigma(2, 1e-5, 8.0)) ** 2)


def test_noise_of_clients_that_fell_silent_is_made_up_for():
    """The promise is for a sum with everybody's noise, whoever answers."""
    X, _, choice = federation(4, 2, 1.0, 0.5, d=10_000)
    est = eb.OptOutMean(1.0, 0.5, epsilon=1, delta=1e-5, range=(-9, 9), random_state=0)
    summary, memory = est.protocol().prepare(X, consent=choice)
    key = np.array([1, 2], np.uint64)
    state = est.protocol().start(est.protocol().describe(summary, memory), key)
    sent = est.protocol().broadcast(state)
    message, _ = est.protocol().local(
        sent, memory | {"turn": state["turn"]}, summary, eb.streams.Stream(key, 0)
    )
    silent = {name: {k: x[1:] for k, x in message[name].items()} for name in ("private",)}
    state = est.protocol().update(state, message | silent)
    mean, theta = state["prior"]["mean_"], state["theta"]
    share = theta["fixed"]["private"] / theta["total"]
    noise = 4 * (share * sent["settings"]["private"]["sd"]) ** 2
    means = X[1:4].sum(axis=0) * share + X[4:].sum(axis=0) / (1.5 * theta["total"])
    observed = np.var(mean - means)
    # a variance on 10,000 draws is known to 1.4 %: 4 standard errors
    np.testing.assert_allclose(observed, noise[0], rtol=0.06)


def test_regressions_with_orthogonal_designs():
    rng = np.random.default_rng(8)
    m, n, d = 200, 8, 3
    design = np.tile(np.linalg.qr(rng.normal(size=(n, d)))[0] * np.sqrt(n), (m, 1))
    groups = np.repeat(np.arange(m), n)
    beta = rng.normal([1.0, -2.0, 0.0], 0.5, (m, d))
    y = (design * beta[groups]).sum(axis=1) + rng.normal(0, 1.5, m * n)
    summary = eb.Summary.from_regression(design, y, groups)
    expected = np.linalg.lstsq(design[:n], y[:n], rcond=None)[0]
    np.testing.assert_allclose(summary.mean[0], expected, rtol=1e-9)
    choice = dict(enumerate(np.where(np.arange(m) % 2, "open", "private")))
    est = eb.OptOutMean(gamma2=0.001, trust="none", random_state=0).fit(summary, consent=choice)
    np.testing.assert_allclose(est.global_, [1, -2, 0], atol=0.25)
    np.testing.assert_allclose(est.noise_variance_, 2.25, rtol=0.2)
    raw, shrunk = (((x - beta) ** 2).mean() for x in (summary.mean, est.predict()))
    assert shrunk < raw
    with pytest.raises(ValueError, match="not orthogonal"):
        eb.Summary.from_regression(design + 0.1, y, groups)
    with pytest.raises(ValueError, match="more are needed"):
        eb.Summary.from_regression(np.eye(3) * np.sqrt(3), [1, 2, 3], [0, 0, 0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "give gamma2, or epsilon"),
        ({"epsilon": 1, "delta": 1e-5}, "give gamma2, or epsilon"),
        ({"gamma2": 1, "epsilon": 1, "delta": 1e-5, "range": (0, 1)}, "not both"),
        ({"gamma2": -1}, "gamma2 must be a variance"),
        ({"gamma2": 1, "tau2": np.nan}, "tau2 must be a variance"),
        ({"gamma2": 1, "tau2": 0, "alpha2": 0}, "must not both be 0"),
        ({"gamma2": 1, "ratio": "best"}, "ratio must be"),
        ({"gamma2": 1, "ratio": -0.5}, "ratio must be"),
        ({"gamma2": 1, "personalize": "none"}, "personalize must be"),
        ({"gamma2": 1, "trust": "everyone"}, "trust must be"),
        ({"gamma2": 1, "tau2": 1}, "alpha2 must be given"),
        ({"gamma2": 1, "alpha2": 1}, "tau2 must be given"),
        ({"gamma2": 1, "alpha2": 1, "tau2": 1, "ratio": 0}, "no message has a weight"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        eb.OptOutMean(**arguments).fit(RNG.normal(size=6), consent=["private"] * 6)
