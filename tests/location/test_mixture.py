"""MixtureEB: accuracy, clustering in rounds, channels, central privacy and what is said of it."""

import numpy as np
import pytest
from scipy.special import softmax

import ebfed as eb
from ebfed import channels as ch
from ebfed.location import noisy_em as module
from ebfed.location.mixture_rounds import DRIFTS
from ebfed.location.noisy_em import noisy_em, spread_out
from ebfed.privacy import gaussian_delta, gaussian_sigma
from ebfed.privacy.audit import audit
from ozkara2023.mixture import simulate

LOCAL = 0.2


def error(estimator, summary, theta):
    return float(np.mean((estimator.fit(summary).predict() - theta) ** 2)) / LOCAL


def case(seed, m=500):
    return simulate(m, np.random.default_rng([seed, 7]))


# --- accuracy -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_em_is_near_theorem_6():
    """Exact risk with known centres .2564; 40 runs of 500 clients have a standard error of .01."""
    errors, known = [], []
    for seed in range(40):
        summary, theta = case(seed)
        errors.append(error(eb.MixtureEB(3, variances=1.0, random_state=0), summary, theta))
        shares = softmax(-2.5 * (summary.mean - [-2.0, 0.0, 2.0]) ** 2, axis=1)
        known.append(np.mean((shares @ [-2.0, 0.0, 2.0] - theta) ** 2) / LOCAL)
    assert np.mean(known) == pytest.approx(0.2564, abs=0.04)
    assert np.mean(errors) < 1.06 * np.mean(known)
    assert np.mean(errors) <= 0.275


def test_too_few_components_are_a_disaster_and_too_many_cheap():
    summary, theta = case(1)
    few, right, many = (
        error(eb.MixtureEB(k, variances=1.0, random_state=0), summary, theta) for k in (2, 3, 6)
    )
    assert few > 1
    assert right < many < 1.25 * right


def test_components_with_spread():
    rng = np.random.default_rng(0)
    kind = rng.integers(2, size=400)
    theta = rng.normal(np.where(kind, 3.0, -3.0)[:, None], [0.7, 1.0], (400, 2))
    X, groups = rng.normal(np.repeat(theta, 4, axis=0)), np.repeat(np.arange(400), 4)
    fitted = eb.MixtureEB(components="diag", max_components=4, random_state=0).fit(X, groups=groups)
    assert fitted.n_components_ == 2
    np.testing.assert_allclose(fitted.variances_, [[0.49, 1.0]] * 2, atol=0.4)
    estimates = fitted.predict()
    points = eb.MixtureEB(2, random_state=0).fit(X, groups=groups).predict()
    assert ((estimates - theta) ** 2).mean() < 0.8 * ((points - theta) ** 2).mean()
    picked = fitted.responsibilities()
    assert (picked["component_1"].round() == kind).mean() > 0.99
    low, high = fitted.posterior().interval()
    assert 0.92 < ((low <= theta) & (theta <= high)).mean() < 0.98  # six standard errors


# --- clustering ---------------------------------------------------------------------------------


def test_one_round_of_clustering_is_k_means_and_theorem_6():
    summary, _ = case(2)
    fitted = eb.MixtureEB(3, solver="clustering", n_rounds=1, variances=1.0, random_state=0)
    fitted.fit(summary)
    centres = fitted.means_[:, 0]
    nearest = np.argmin(np.abs(summary.mean - centres), axis=1)
    for j in range(3):
        assert centres[j] == pytest.approx(summary.mean[nearest == j].mean())
        assert fitted.weights_[j] == pytest.approx((nearest == j).mean())
    shares = softmax(np.log(fitted.weights_) - 2.5 * (summary.mean - centres) ** 2, axis=1)
    np.testing.assert_allclose(fitted.predict(), shares @ centres)
    np.testing.assert_allclose(fitted.responsibilities().iloc[:, 1:], shares)


def test_clustering_drifts_and_says_so():
    summary, theta = case(3)
    learner = eb.MixtureEB(3, solver="clustering", variances=1.0, random_state=0)
    errors = {r: error(learner.set_params(n_rounds=r), summary, theta) for r in (2, 30)}
    assert errors[30] > 2 * errors[2]
    notes = " ".join(learner.notes_)
    assert DRIFTS in notes
    assert "lost" in notes
    history = learner.history_
    assert history["round"].tolist() == list(range(1, 31))
    assert history["message_log_likelihood"].iloc[-1] < history["message_log_likelihood"].max() - 10


def test_clustering_sends_estimates_in_every_round():
    summary, _ = case(4)
    fitted = eb.MixtureEB(3, solver="clustering", n_rounds=4, variances=1.0, random_state=0)
    ledger = fitted.fit(summary).privacy_
    assert ledger["times"].tolist() == [4]
    assert ledger["epsilon"].tolist() == [np.inf]
    assert ledger["bits"].tolist() == [4 * 500 * 128]


def test_clustering_with_noise_unknown_and_some_clients_silent():
    rng = np.random.default_rng(0)
    theta = rng.choice([-3.0, 3.0], 60)
    X, groups = rng.normal(np.repeat(theta, 4)), np.repeat(np.arange(60), 4)
    asked = np.arange(60) % 3 > 0
    fitted = eb.MixtureEB(2, solver="clustering", participation=asked, random_state=0)
    fitted.fit(X, groups=groups)
    assert fitted.noise_variance_[0] == pytest.approx(1.0, abs=0.35)
    assert fitted.privacy_["clients"].tolist() == [40, 20]
    assert np.abs(fitted.predict() - theta).mean() < 0.5


# --- channels -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "channel",
    [
        ch.Quantizer(4, range=(-4.5, 4.5)),
        ch.AddNoise(0.3),
    ],
    ids=repr,
)
def test_em_through_channels(channel):
    summary, theta = case(5, 2000)
    learner = eb.MixtureEB(3, variances=1.0, channel=channel, n_init=3, random_state=0)
    assert error(learner, summary, theta) < 0.45
    np.testing.assert_allclose(learner.means_[:, 0], [-2, 0, 2], atol=0.6)


def test_vectors_through_a_channel():
    rng = np.random.default_rng(0)
    centres = np.array([[-3.0, 0.0], [3.0, 2.0]])
    theta = centres[rng.integers(2, size=1000)]
    mean = rng.normal(theta, np.sqrt(LOCAL))
    summary = eb.Summary(np.arange(1000), np.full(1000, 5), mean, np.zeros((1000, 2)))
    radius = float(eb.theory.reporting_radius(np.sqrt(13), 1.0, 5, 1000, 2))
    channel = ch.Clip(radius=radius) | ch.Gaussian(20.0, 1e-5)
    fitted = eb.MixtureEB(2, variances=1.0, channel=channel, n_init=2, random_state=0).fit(summary)
    np.testing.assert_allclose(fitted.means_, centres, atol=0.5)
    assert fitted.privacy_["epsilon"].tolist() == [20.0]


def test_reports_too_noisy_for_components_are_said_to_be():
    summary, _ = case(5, 1000)
    channel = ch.Clip(radius=4.2) | ch.Gaussian(8.0, 1e-4)
    learner = eb.MixtureEB(1, variances=1.0, channel=channel, random_state=0)
    assert any("hard to distinguish" in note for note in learner.fit(summary).notes_)
    exact = eb.MixtureEB(3, variances=1.0, random_state=0).fit(summary)
    assert not any("hard to distinguish" in note for note in exact.notes_)


def test_gaussian_components_through_noise():
    summary, _ = case(6, 2000)
    noisy = eb.MixtureEB(
        3, components="spherical", variances=1.0, channel=ch.AddNoise(0.4), random_state=0
    ).fit(summary)
    np.testing.assert_allclose(noisy.means_[:, 0], [-2, 0, 2], atol=0.25)


# --- central privacy ----------------------------------------------------------------------------


def central(epsilon=4.0, **more):
    arguments = {"variances": 1.0, "channel": ch.Clip(radius=4.2), "random_state": 0}
    promise = {"trust": "server", "epsilon": epsilon, "delta": 1e-5}
    return eb.MixtureEB(3, **(arguments | promise | more))


def test_noise_is_calibrated_to_all_rounds():
    for rounds in (1, 5, 30):
        sigma = central(2.0, n_rounds=rounds).protocol().sigma
        whole = gaussian_delta(sigma / np.sqrt(rounds), 2.0, 2.0)
        assert whole == pytest.approx(1e-5, rel=1e-6)
        assert sigma == pytest.approx(gaussian_sigma(2.0, 1e-5, 2 * np.sqrt(rounds)))


def test_private_em_estimates_well():
    summary, theta = case(8, 5000)
    learner = central(1.0)
    assert error(learner, summary, theta) < 0.35
    ledger = learner.privacy_
    assert ledger["epsilon"].tolist() == [1.0]
    assert ledger["delta"].tolist() == [1e-5]
    assert "releases only sums and counts of 3 components with noise, 5 times" in (
        ledger["assumptions"].item()
    )
    text = " ".join(learner.summary().split())
    assert "epsilon = 1, delta = 1e-05 for each client (central differential privacy" in text
    assert np.isnan(learner.log_likelihood_)
    assert len(learner.history_) == 5


@pytest.mark.parametrize("d", [1, 2, 5])
def test_sensitivity_is_two(d):
    """No two clients move sums and counts by more; two of them do by as much."""
    rng = np.random.default_rng(d)

    def contribution(u, r):
        return np.append(np.outer(r, u), r)

    largest = 0.0
    for _ in range(5000):
        u = rng.standard_normal((2, d))
        u *= rng.choice([0.5, 1.0], (2, 1)) / np.linalg.norm(u, axis=1, keepdims=True)
        r = rng.dirichlet(np.full(3, rng.choice([0.05, 1.0])), 2)
        if rng.random() < 0.3:  # opposite, or of one component
            u[1] = -u[0]
        if rng.random() < 0.3:
            r[1] = r[0]
        largest = max(largest, np.linalg.norm(contribution(u[0], r[0]) - contribution(u[1], r[1])))
    assert largest <= 2 + 1e-12
    end, first = np.eye(d)[0], np.eye(3)[0]
    gap = np.linalg.norm(contribution(end, first) - contribution(-end, first))
    assert gap == pytest.approx(2)


class Released:
    """All that four rounds release, where one of three clients is a canary."""

    def __init__(self, monkeypatch, epsilon, shrink=1.0):
        self.epsilon = epsilon
        self.sigma = shrink * gaussian_sigma(epsilon, 1e-5, 2 * np.sqrt(4))
        self.seen, honest = [], module.release

        def spy(*arguments):
            self.seen.append(honest(*arguments))
            return self.seen[-1]

        monkeypatch.setattr(module, "release", spy)

    def guarantee(self, n_features=1):
        return self.epsilon, 1e-5

    def encode(self, summary, rng=None):
        start, heard = spread_out(2, 1, np.random.default_rng(0)), []
        for canary in summary.mean[:, 0]:
            self.seen.clear()
            u = np.array([[0.4], [-0.5], [canary]])
            noisy_em(u, np.full((3, 1), 0.01), np.ones(3), start, 4, self.sigma, rng)
            heard.append(np.ravel(self.seen))
        return {"n": summary.n, "released": np.array(heard)}


CANARIES = eb.Summary(
    np.array(["low", "high"]), np.ones(2, int), np.array([[-1.0], [1.0]]), np.zeros((2, 1))
)


@pytest.mark.slow
def test_the_promise_is_not_refuted(monkeypatch):
    """A sound release fails once in a million."""
    found = audit(Released(monkeypatch, 4.0), CANARIES, simulations=8000, error=1e-6)
    assert found.passed
    assert found.lower > 0.5  # clients are told apart: it is not for want of looking


@pytest.mark.slow
def test_too_little_noise_is_caught(monkeypatch):
    """As if each of the four rounds had all the budget, and replacing a client moved it by 1."""
    found = audit(Released(monkeypatch, 1.0, 0.25), CANARIES, simulations=8000, error=1e-6)
    assert not found.passed


def test_what_is_released_depends_on_clipped_vectors_only():
    start = spread_out(2, 1, np.random.default_rng(0))

    def fit(far):
        u = np.array([[0.4], [-0.5], [far]])
        rng = np.random.default_rng(1)
        return noisy_em(u, np.full((3, 1), 0.01), np.ones(3), start, 3, 1.0, rng)[0]

    np.testing.assert_array_equal(fit(1.0), fit(50.0))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"components": "full"}, "components must be 'points', 'spherical', 'diag'"),
        ({"solver": "lloyd"}, "solver must be"),
        ({"trust": "me"}, "trust must be"),
        ({"n_components": 0}, "n_components must be"),
        ({"n_components": "aic"}, "n_components must be"),
        ({"max_components": 0}, "max_components must be"),
        ({"n_init": 0}, "n_init must be"),
        ({"n_rounds": 0}, "n_rounds must be"),
        ({"components": "diag", "channel": ch.Quantizer(3, (0, 1))}, "fit components='points'"),
        ({"solver": "clustering", "channel": ch.AddNoise(1.0)}, "leave channel None"),
        ({"solver": "clustering"}, "n_components must be a whole number, except"),
        (
            {"solver": "clustering", "n_components": 2, "components": "diag"},
            "components must be 'points'",
        ),
        ({"epsilon": 1.0}, "epsilon and delta are for trust='server'"),
    ],
)
def test_arguments(arguments, message):
    arguments = {"variances": 1.0, "random_state": 0} | arguments
    with pytest.raises(ValueError, match=message):
        eb.MixtureEB(**arguments).fit([0.0, 1.0, 5.0, 6.0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_components": "bic"}, "n_components must be a whole number, except"),
        ({"components": "spherical", "channel": None}, "components must be 'points'"),
        ({"solver": "clustering"}, "leave channel None"),
        ({"channel": None}, "needs channel=Clip"),
        ({"channel": ch.Clip((-1, 1))}, "needs channel=Clip"),
        ({"variances": None}, "variances must be given"),
        ({"epsilon": None}, "epsilon must be"),
        ({"delta": 0.0}, "delta must lie"),
    ],
)
def test_arguments_of_central_privacy(arguments, message):
    learner = central().set_params(**arguments)
    with pytest.raises((TypeError, ValueError), match=message):
        learner.fit([0.0, 1.0, 5.0, 6.0])


def test_partial_fit_releases_nothing_twice():
    fitted = central().partial_fit([0.0, 1.0, 5.0, 6.0])
    with pytest.raises(ValueError, match="twice the privacy"):
        fitted.partial_fit([2.0])


# --- reports ------------------------------------------------------------------------------------


def test_a_summary_lists_the_components():
    rng = np.random.default_rng(0)
    X, groups = rng.normal(np.repeat([[-4.0, 0], [4.0, 1]] * 40, 5, axis=0)), np.arange(400) // 5
    fitted = eb.MixtureEB(components="spherical", random_state=0).fit(X, groups=groups)
    tidy = fitted.tidy()
    assert tidy["term"].tolist().count("weight") == fitted.n_components_ == 2
    weights = tidy.query("term == 'weight'")
    assert weights["group"].tolist() == ["component 0", "component 1"]
    assert set(weights["effect"]) == {"component"}
    np.testing.assert_allclose(weights["estimate"].astype(float), 0.5)
    text = fitted.summary()
    assert "GaussianMixture" in text
    assert "mean      component 1     x1" in text
    assert fitted.history_.columns.tolist() == ["step", "message_log_likelihood"]
    assert (np.diff(fitted.history_["message_log_likelihood"]) > -1e-6).all()


def test_responsibilities_of_rows_and_of_strangers():
    summary, _ = case(9)
    fitted = eb.MixtureEB(3, variances=1.0, random_state=0).fit(summary)
    table = fitted.responsibilities([-2.0, -2.1, 2.0], groups=["a", "a", "b"])
    assert table.columns.tolist() == ["group", "component_0", "component_1", "component_2"]
    assert table["group"].tolist() == ["a", "b"]
    assert table.iloc[:, 1:].to_numpy(float).argmax(axis=1).tolist() == [0, 2]
    new = fitted.responsibilities(groups=[10**6]).iloc[0, 1:].astype(float)
    np.testing.assert_allclose(new, fitted.weights_)


@pytest.mark.parametrize("solver", ["em", "clustering"])
def test_components_are_no_more_than_groups(solver):
    estimator = eb.MixtureEB(4, solver=solver, variances=1.0)
    estimator.fit([1.0, 2.0, 3.0], groups=[0, 1, 2])
    assert estimator.n_components_ <= 3
    assert any("of 4 components" in note for note in estimator.notes_)
