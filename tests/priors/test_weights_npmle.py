"""Where several populations are likeliest, the answer is their centre, whatever finds it."""

import numpy as np
import pytest
from scipy.optimize import linprog

import ebfed as eb
from ebfed.likelihoods import Binomial, Gaussian, Poisson, StudentT
from ebfed.priors import Discrete
from ebfed.priors.weights import Maximiser, _centre, _likeliest, _Problem, _start, npmle

TOL = 1e-8


def counts_of(trials, m, seed):
    rng = np.random.default_rng(seed)
    trials = np.broadcast_to(trials, m)
    return Binomial(rng.binomial(trials, rng.beta(2, 3, m))[:, None], trials)


FLAT = {
    "one trial": counts_of(1, 60, 0),
    "two trials": counts_of(2, 900, 1),
    "five trials": counts_of(5, 20_000, 2),
    "six trials": counts_of(6, 20_000, 3),
    "up to four trials": counts_of(np.arange(3000) % 4 + 1, 3000, 4),
}
flat = pytest.mark.parametrize("likelihood", FLAT.values(), ids=FLAT)


def posterior_means(found, rows):
    return Discrete.known(found.atoms[:, None], found.weights).posterior(rows).mean[:, 0]


def extremes(rows, nodes, marginals, i):
    """Populations on a grid with these marginals and the least and largest posterior mean of i."""
    system = rows.relative(nodes[:, None]) / marginals[:, None]
    ones = np.ones(len(rows))
    return [
        linprog(sign * system[i] * nodes, A_eq=system, b_eq=ones, method="highs")
        for sign in (1, -1)
    ]


@flat
def test_centre_is_in_the_middle_of_what_maximisers_allow(likelihood):
    rows, counts = likelihood.distinct()
    found = npmle(rows, counts, 400, TOL * counts.sum())
    assert found.gap <= TOL * counts.sum()
    marginals = rows.relative(found.atoms[:, None]) @ found.weights
    means = posterior_means(found, rows)
    for i, mean in enumerate(means):
        low, high = (end.fun for end in extremes(rows, rows.nodes(400), marginals, i))
        assert mean == pytest.approx((low - high) / 2, abs=1e-5)


def test_one_trial():
    """Of a mean p, second moments between p**2 and p are possible."""
    likelihood = Binomial(np.array([[0]] * 3 + [[1]] * 2), np.ones(5, int))
    means = Discrete().fit(likelihood).posterior(likelihood).mean[:, 0]
    np.testing.assert_allclose(means, [0.2] * 3 + [0.7] * 2, rtol=1e-8)


@flat
def test_any_maximiser_leads_to_the_same_centre(likelihood):
    rows, counts = likelihood.distinct()
    tol = TOL * counts.sum()
    found = _likeliest(rows, counts, 400, tol)
    nodes = rows.nodes(400)
    marginals = rows.relative(found.atoms[:, None]) @ found.weights
    expected = posterior_means(_centre(rows, counts, 400, found, tol), rows)
    for end in extremes(rows, nodes, marginals, len(rows) - 1):
        used = end.x > 0
        other = Maximiser(nodes[used], end.x[used], 0.0, 0.0)
        again = posterior_means(_centre(rows, counts, 400, other, tol), rows)
        np.testing.assert_allclose(again, expected, rtol=1e-7)


@flat
def test_rounding_and_order_do_not_matter(likelihood):
    class Rounded(Binomial):
        def relative(self, theta):
            exact = super().relative(theta)
            noise = np.random.default_rng(len(theta)).uniform(-1, 1, exact.shape)
            return exact * (1 + 1e-12 * noise)

    posterior = Discrete().fit(likelihood).posterior(likelihood)
    order = np.random.default_rng(0).permutation(len(likelihood))
    other = Rounded(likelihood.successes[order], likelihood.trials[order])
    again = Discrete().fit(other).posterior(likelihood)
    np.testing.assert_allclose(again.mean, posterior.mean, rtol=1e-9)
    np.testing.assert_allclose(again.sd, posterior.sd, rtol=1e-9)


@flat
def test_success_and_failure_may_change_names(likelihood):
    failures = Binomial(likelihood.trials[:, None] - likelihood.successes, likelihood.trials)
    means = Discrete().fit(likelihood).posterior(likelihood).mean
    np.testing.assert_allclose(1 - Discrete().fit(failures).posterior(failures).mean, means)


def test_centre_meets_the_edge():
    """One rate explains the frequencies of 0, 1 and 2 wins, or nearly: little choice is left."""
    for counts in ([2500, 5000, 2500], [2501, 4998, 2501]):
        likelihood = Binomial(np.repeat([0, 1, 2], counts)[:, None], np.full(10_000, 2))
        posterior = Discrete().fit(likelihood).posterior(likelihood)
        np.testing.assert_allclose(posterior.mean, 0.5, atol=2e-3)


@pytest.mark.parametrize("trials", [14, 30])
def test_a_unique_maximiser_is_left_as_found(trials):
    rng = np.random.default_rng(trials)
    estimates = Gaussian(rng.normal(size=(100, 1)), np.full((100, 1), 0.3))
    for likelihood in (counts_of(trials, 900, 5), estimates):
        rows, counts = likelihood.distinct()
        tol = TOL * counts.sum()
        found, first = (find(rows, counts, 400, tol) for find in (npmle, _likeliest))
        assert found.lowest < -1e-3 * counts.sum()
        np.testing.assert_array_equal(found.atoms, first.atoms)
        np.testing.assert_array_equal(found.weights, first.weights)


def unequal(m):
    """Estimates whose errors differ, a few of them much preciser than the others."""
    rng = np.random.default_rng(m)
    errors = np.where(rng.random(m) < 1e-3, 1e-3, rng.uniform(0.3, 1, m))
    theta = np.where(rng.random(m) < 0.6, 0.0, rng.normal(0, 2, m))
    values = theta + errors * rng.normal(size=m)
    return Gaussian(values[:, None], errors[:, None] ** 2)


def test_rows_that_stand_for_others_keep_their_moments():
    rows = unequal(60_000)
    few, times = rows.condensed(np.ones(len(rows)))
    assert len(few) < len(rows) / 10
    assert times.sum() == pytest.approx(len(rows))
    for power in (1, 2):
        assert times @ few.values[:, 0] ** power == pytest.approx((rows.values**power).sum())
    assert times @ few.variances[:, 0] == pytest.approx(rows.variances.sum())
    again, same = few.condensed(times)
    assert again is few
    assert same is times


def test_of_many_rows_the_gap_is_that_of_all():
    rows, counts = unequal(60_000).distinct()
    found = _likeliest(rows, counts, 400, TOL * counts.sum())
    assert found.weights.sum() == pytest.approx(1, abs=1e-12)
    mixture = rows.relative(found.atoms[:, None]) @ found.weights
    around = found.atoms[:, None] + np.geomspace(1e-4, 1e-1, 7) * np.array([[[-1.0]], [[1.0]]])
    places = np.unique(np.append(around, rows.nodes(400)))
    rises = rows.tally(counts / mixture, places) - counts.sum()
    assert rises.max() <= 2 * TOL * counts.sum()
    # and the rows themselves lead to the same likelihood
    nodes = rows.nodes(400)
    problem = _Problem.of(rows, counts, nodes)
    slow = problem.climb(*_start(rows, counts, nodes), TOL * counts.sum())
    other = rows.relative(slow.atoms[:, None]) @ slow.weights
    assert counts @ np.log(mixture / other) > -TOL * counts.sum()


def test_a_linear_term_is_interpolated():
    nodes = np.sort(np.append(np.linspace(-1, 1, 60), [0.201, 0.2015]))
    problem = _Problem(None, None, nodes, np.sin(3 * nodes))
    at = np.linspace(-1, 1, 333)
    np.testing.assert_allclose(problem.tilted(at), np.sin(3 * at), atol=1e-7)
    few = _Problem(None, None, nodes[:3], nodes[:3] ** 2)
    np.testing.assert_allclose(few.tilted(nodes[:3]), nodes[:3] ** 2, atol=1e-15)


# The gap, whatever the errors ---------------------------------------------------------------------


def brute_gap(prior, rows, places):
    """sup of D over places of increasing order, and between those of its highest peaks."""
    inverse = np.exp(-prior.log_marginal(rows) + rows.log_peak())

    def rise(at):
        parts = np.array_split(at, 1 + len(at) * len(rows) // 4_000_000)
        return np.concatenate([inverse @ rows.relative(some[:, None]) for some in parts]) - len(
            rows
        )

    found = rise(places)
    top = np.argsort(-found)[:100]
    low, high = places[np.maximum(top - 1, 0)], places[np.minimum(top + 1, len(places) - 1)]
    for _ in range(6):  # each time a quarter as wide
        at = low + (high - low) * np.linspace(0, 1, 9)[:, None]
        heights = rise(at.ravel()).reshape(at.shape)
        best = heights.argmax(axis=0)
        low, high = (np.take_along_axis(at, np.clip(best + d, 0, 8)[None], 0)[0] for d in (-1, 1))
    return max(found.max(), heights.max())


def around(centres, widths):
    """Values a fifth of a width apart, around each centre."""
    return np.unique(centres[:, None] + widths[:, None] * np.arange(-3, 3.1, 0.2))


def of_six_decades(seed, m):
    """Estimates of populations of five kinds, and their errors, log-uniform over six decades."""
    rng = np.random.default_rng(seed)
    theta = [
        rng.normal(size=m),
        rng.choice([0.0, 0.0, 1.0, -2.0], m),
        rng.standard_t(2, m),
        np.where(rng.random(m) < 0.7, 0.0, rng.normal(0, 3, m)),
        rng.uniform(-1, 1, m),
    ][seed % 5]
    errors = 3 * 10 ** rng.uniform(-6, 0, m)
    return theta + errors * rng.normal(size=m), errors


SIZES = [*np.geomspace(10, 700, 48).astype(int), 1500, 3000]


@pytest.mark.parametrize(("seed", "m"), list(enumerate(SIZES)))
def test_the_gap_is_small_for_errors_over_six_decades(seed, m):
    x, s = of_six_decades(seed, m)
    rows = Gaussian(x[:, None], s[:, None] ** 2)
    prior = Discrete().fit(rows)
    assert prior.gap_ <= 1e-8 * m
    # peaks are located to within a share of the tolerance
    assert brute_gap(prior, rows, around(x, s)) <= min(1e-3, 2 * prior.gap_ + max(1e-6, 1e-8 * m))


@pytest.mark.parametrize("df", [1.0, 3.0, 30.0])
def test_under_t_errors_the_npmle_is_the_maximiser(df):
    x, s = of_six_decades(3, 150)
    for errors in (s, np.ones(150)):
        rows = StudentT(x[:, None], errors[:, None] ** 2, np.full(150, df))
        prior = Discrete().fit(rows)
        assert brute_gap(prior, rows, around(x, errors)) <= 1e-3
        assert len(prior.atoms_) < 100


@pytest.mark.parametrize("kind", [Binomial, Poisson])
def test_the_gap_is_small_for_counts_of_very_unequal_sizes(kind):
    rng = np.random.default_rng(4)
    sizes = np.rint(10 ** rng.uniform(0, 11, 200)).astype(np.int64)
    rates = rng.beta(2, 3, 200)
    if kind is Binomial:
        rows = kind(rng.binomial(sizes, rates)[:, None], sizes)
        angles = around(np.arcsin(np.sqrt(rows.local[:, 0])), 0.5 / np.sqrt(sizes))
        places = np.sin(np.clip(angles, 0, np.pi / 2)) ** 2
    else:
        rows = kind(rng.poisson(sizes * rates)[:, None], sizes.astype(float))
        places = np.maximum(around(np.sqrt(rows.local[:, 0]), 0.5 / np.sqrt(sizes)), 0) ** 2
    prior = Discrete().fit(rows)
    places = np.unique(np.clip(places, 1e-12, 1 - 1e-12 if kind is Binomial else np.inf))
    assert brute_gap(prior, rows, places) <= 1e-3


@pytest.mark.parametrize("df", [None, 4.0])
@pytest.mark.parametrize(
    ("scale", "shift"), [(-1, 0), (3.7, 0), (-12.3, -7), (1e-3, 5), (1e6, 1e3)]
)
def test_ends_of_intervals_move_with_the_data(scale, shift, df):
    rng = np.random.default_rng(0)
    errors = rng.uniform(0.3, 2, 400)
    theta = np.where(rng.random(400) < 0.5, 0, rng.normal(1, 2, 400))
    x = theta + errors * rng.normal(size=400)
    given = eb.posterior_from(x, errors, prior="npmle", df=df)
    moved = eb.posterior_from(scale * x + shift, abs(scale) * errors, prior="npmle", df=df)
    ends = moved.interval()[:: 1 if scale > 0 else -1]
    for end, before in zip(ends, given.interval(), strict=True):
        np.testing.assert_allclose((end - shift) / scale, before, atol=1e-6)
    np.testing.assert_allclose((moved.mean - shift) / scale, given.mean, atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_rates_of_failures_are_one_less_those_of_successes(seed):
    """To the last digits, intervals included; the draws of the population are mirrored too."""
    rng = np.random.default_rng(seed)
    n = rng.integers(1, 40, 80)
    won = rng.binomial(n, rng.beta(2, 5, 80))
    ours, theirs = (
        eb.BernoulliEB(prior="npmle").fit(eb.Summary.from_counts(k, n)).posterior()
        for k in (won, n - won)
    )
    np.testing.assert_allclose(1 - theirs.mean, ours.mean, atol=1e-9)
    for end, other in zip(ours.interval(), theirs.interval()[::-1], strict=True):
        np.testing.assert_allclose(1 - other, end, atol=1e-9)
