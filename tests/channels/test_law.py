"""Laws of reports at their edges: tiny and huge epsilon, narrow errors, far tails, odd ranges."""

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, stats

from ebfed import Summary, channels, families
from ebfed.channels.levels import average_levels, hats, normal_hats
from ebfed.privacy import discrete_gaussian_delta, gaussian_delta
from ebfed.streams import Stream, make_key

UNIT = (-1.0, 1.0)
PURE = {
    "Hybrid": lambda epsilon: channels.Hybrid(epsilon, UNIT),
    "Laplace": lambda epsilon: channels.Laplace(epsilon, UNIT),
    "OneBit": lambda epsilon: channels.OneBit(epsilon, UNIT),
    "Piecewise": lambda epsilon: channels.Piecewise(epsilon, UNIT),
    "RandomizedResponse": lambda epsilon: channels.RandomizedResponse(epsilon, UNIT, levels=5),
    "TwoBit": lambda epsilon: channels.TwoBit(epsilon, 0.3, UNIT),
    "TwoBit, steps": lambda epsilon: channels.TwoBit(
        epsilon, 0.6, UNIT, location=1e-3, spread=(0.4, 0.4)
    ),
    "UnaryEncoding": lambda epsilon: channels.UnaryEncoding(epsilon, UNIT, levels=5),
}
SMOOTH = PURE | {
    "Gaussian": lambda epsilon: channels.Gaussian(epsilon, 1e-5, UNIT),
    "DiscreteGaussian": lambda epsilon: channels.DiscreteGaussian(epsilon, 1e-5, UNIT, levels=9),
    "Quantizer": lambda epsilon: channels.Quantizer(4, UNIT),
}


def some_outcomes(law, count=60):
    reports, _ = law.outcomes(0)
    return reports[np.unique(np.linspace(0, len(reports) - 1, count).astype(int))]


def at(law, reports, values):
    return law.density(reports, np.asarray(values, float), np.zeros(len(reports), int))


def averaged(law, reports, means, sd):
    variances = np.full(len(reports), sd**2)
    return law.average(reports, np.asarray(means, float), variances, np.zeros(len(reports), int))


# Privacy --------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 0.61, 1.0, 5.0, 20.0, 50.0])
@pytest.mark.parametrize("name", PURE)
def test_epsilon_is_kept_and_used_up(name, epsilon):
    law = PURE[name](epsilon)._law(1)
    ends = np.repeat([-1.0, 1.0], 50)[:, None]
    drawn = law.draw(ends, np.zeros(100, int), Stream(make_key(0), 0))[:, 0]
    reports = np.concatenate((some_outcomes(law, 2000), drawn))  # a needle is between outcomes
    density = at(law, reports, np.linspace(-1, 1, 81))
    loss = np.log(density.max(axis=1) / density.min(axis=1)).max()
    assert loss <= epsilon * (1 + 1e-9)
    assert loss >= epsilon * (1 - 1e-6)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 4.0, 20.0])
@pytest.mark.parametrize("delta", [1e-10, 1e-5, 0.1])
def test_gaussian_noise_keeps_delta(epsilon, delta):
    for d in (1, 3):
        sigma = channels.Gaussian(epsilon, delta, UNIT)._law(d).sigma
        assert gaussian_delta(sigma, epsilon, 2 * d**0.5) == pytest.approx(delta, rel=1e-9)
        ball = channels.Clip(radius=2.0) | channels.Gaussian(epsilon, delta)
        assert gaussian_delta(ball._law(d).sigma, epsilon, 2.0) == pytest.approx(delta, rel=1e-9)


@pytest.mark.parametrize("levels", [2, 3, 9, 65])
@pytest.mark.parametrize("epsilon", [0.5, 4.0, 12.0])
def test_discrete_gaussian_keeps_delta_between_any_levels(epsilon, levels):
    delta = 1e-5
    law = channels.DiscreteGaussian(epsilon, delta, UNIT, levels=levels)._law(1)
    worst = max(discrete_gaussian_delta(law.sigma, epsilon, k) for k in range(1, levels))
    assert worst <= delta
    reports = np.arange(-law._masses[0], levels + law._masses[0])
    density = at(law, reports, np.linspace(-1, 1, 7))
    for p, q in itertools.permutations(density.T, 2):
        assert np.maximum(p - np.exp(epsilon) * q, 0).sum() <= delta * (1 + 1e-6)


def test_discrete_gaussian_of_vectors_keeps_delta():
    law = channels.DiscreteGaussian(1.0, 1e-5, UNIT, levels=2)._law(2)
    reports = np.arange(-60, 62)
    one = at(law, reports, [-1.0, 1.0])
    p, q = (np.multiply.outer(mass, mass) for mass in one.T)
    assert np.maximum(p - np.exp(1.0) * q, 0).sum() <= 1e-5


def test_paper_calibration_says_what_it_keeps():
    channel = channels.Gaussian(1.0, 1e-6, UNIT, calibration="paper")
    epsilon, delta = channel.guarantee(1)
    assert gaussian_delta(channel._law(1).sigma, epsilon, 2.0) <= delta <= 1e-6
    with pytest.warns(channels.gaussian.PrivacyWarning):
        epsilon, delta = channel.guarantee(50)
    assert gaussian_delta(channel._law(50).sigma, epsilon, 2 * 50**0.5) == pytest.approx(delta)


# Densities ------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.3, 4.0])
def test_continuous_densities_integrate_to_one(epsilon):
    gaussian, laplace = (SMOOTH[name](epsilon)._law(1) for name in ("Gaussian", "Laplace"))
    window = SMOOTH["Piecewise"](epsilon)._law(1)
    for u in (-1.0, -0.3, 0.0, 0.77, 1.0):
        for law, spread in ((gaussian, gaussian.sigma), (laplace, laplace.scale)):
            total = sum(
                integrate.quad(lambda y, law=law, u=u: at(law, np.array([y]), [u])[0, 0], *ends)[0]
                for ends in ((u - 40 * spread, u), (u, u + 40 * spread))
            )
            assert total == pytest.approx(1, abs=1e-6)
        start = window._start(np.array(u))
        edges = np.array([-window.reach, start, start + window.width, window.reach])
        middles = (edges[1:] + edges[:-1]) / 2
        assert at(window, middles, [u])[:, 0] @ np.diff(edges) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 4.0, 50.0])
@pytest.mark.parametrize("name", SMOOTH)
def test_far_means_are_clipped(name, epsilon):
    law = SMOOTH[name](epsilon)._law(1)
    reports = some_outcomes(law)
    ends = at(law, reports, [-1.0, 1.0])
    np.testing.assert_array_equal(at(law, reports, [-1e100, 1e100]), ends)
    for sd, far in itertools.product((1e-9, 0.1, 3.0), (1e6, 1e18, 1e90)):
        average = averaged(law, reports, [-far, far], sd)
        np.testing.assert_allclose(average, ends, rtol=1e-9, atol=1e-300)


@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 4.0, 50.0])
@pytest.mark.parametrize("name", SMOOTH)
def test_averages_are_never_lost(name, epsilon):
    """Whatever the error of a local mean, no report is impossible and none is NaN."""
    law = SMOOTH[name](epsilon)._law(1)
    reports = some_outcomes(law)
    for sd in (1e-9, 1e-4, 1.0, 1e6, 1e30):
        average = averaged(law, reports, [-1.0, 0.0, 0.3, 1.0], sd)
        assert np.all(np.isfinite(average))
        assert np.all(average >= 0)
        if sd == 1e30:  # half of the local means lie beyond either end
            ends = at(law, reports, [-1.0, 1.0]).mean(axis=1)
            np.testing.assert_allclose(average, np.tile(ends, (4, 1)).T, rtol=1e-6, atol=1e-20)


@pytest.mark.parametrize("epsilon", [1e-3, 50.0])
@pytest.mark.parametrize("name", PURE)
def test_extreme_epsilon_is_decoded_without_bias(name, epsilon):
    channel = PURE[name](epsilon)
    n = 20_000
    # 0.5 is a level; narrow questions about the location are without bias near the centre only
    value = 4e-4 if name == "TwoBit, steps" else 0.5
    many = Summary(np.arange(n), np.ones(n, int), np.full((n, 1), value), np.zeros((n, 1)))
    decoded = channel.decode(channel.encode(many, 3))
    error = np.sqrt(channel.variance(many)[0, 0] / n)
    assert abs(decoded.mean() - value) <= 5 * error + 1e-9
    assert np.all(np.isfinite(decoded))


def test_large_epsilon_hides_nothing():
    values = np.linspace(-1, 1, 9)[:, None]
    clients = Summary(np.arange(9), np.full(9, 4), values, np.zeros((9, 1)))
    for channel in (
        channels.Laplace(1e9, UNIT),
        channels.Piecewise(60.0, UNIT),
        channels.Hybrid(60.0, UNIT),
        channels.RandomizedResponse(60.0, UNIT, levels=9),
    ):
        np.testing.assert_allclose(channel.decode(channel.encode(clients, 0)), values, atol=1e-6)


def test_outcomes_of_a_needle_fit_in_memory():
    for epsilon in (40.0, 100.0):
        assert len(channels.Piecewise(epsilon, UNIT)._law(1).outcomes(0)[0]) <= 100_000


# Hats -----------------------------------------------------------------------------------------


def integral(function, mean, sd, points):
    """Integral of function times a normal density, by Gauss-Legendre between the points."""
    x, w = np.polynomial.legendre.leggauss(40)
    total = 0.0
    for low, high in itertools.pairwise(points):
        u = (low + high) / 2 + (high - low) / 2 * x
        total += (high - low) / 2 * (w @ (function(u) * stats.norm.pdf(u, mean, sd)))
    return total


@pytest.mark.parametrize("sd", [0.05, 0.3, 2.0, 70.0, 90.0, 1e4])
def test_hats_keep_their_digits_in_the_tails(sd):
    """On either side of where Taylor's formula takes over, and eight errors from the mean."""
    knots = np.array([-1.0, -0.75, -0.2, 0.1, 0.35, 1.0])
    for mean in (0.0, 0.2, -8 * sd, 8 * sd, 1 + 5 * sd):
        found = normal_hats(np.array([mean]), sd, knots)[0]
        for j in range(1, len(knots) - 1):
            points = np.unique(
                np.concatenate([np.linspace(*ends, 30) for ends in itertools.pairwise(knots)])
            )
            points = points[(points >= knots[j - 1]) & (points <= knots[j + 1])]
            true = integral(lambda u, j=j: hats(u, knots)[:, j], mean, sd, points)
            assert found[j] == pytest.approx(true, rel=1e-7, abs=1e-300)
        assert found.sum() == pytest.approx(1, abs=1e-12)


def test_hats_of_no_error_are_the_hats():
    knots = np.linspace(-1, 1, 6)
    u = np.array([-2.0, -1.0, -0.33, 0.2, 0.99, 1.0, 7.0])
    np.testing.assert_allclose(normal_hats(u, 0.0, knots), hats(u, knots), atol=1e-15)
    np.testing.assert_allclose(normal_hats(u, 1e-9, knots), hats(u, knots), atol=1e-8)


def test_hats_of_many_levels():
    """2**24 levels, none of which is tabulated with the others."""
    law = channels.Quantizer(24, UNIT)._law(1)
    reports = np.random.default_rng(0).integers(0, 2**24, 500)
    means = np.linspace(-1, 1, 50)
    step = 2 / (2**24 - 1)
    density = averaged(law, reports, means, 0.4)
    inner = (reports > 0) & (reports < 2**24 - 1)
    true = stats.norm.pdf((reports * step - 1)[:, None], means, 0.4) * step
    np.testing.assert_allclose(density[inner], true[inner], rtol=1e-9)
    np.testing.assert_array_equal(
        at(law, reports, reports * step - 1).argmax(axis=1), np.arange(500)
    )


@pytest.mark.parametrize("bits", [1, 2, 5])
@pytest.mark.parametrize("sd", [1e-9, 1e-3, 0.1, 3.0])
def test_levels_one_by_one_are_the_table(bits, sd):
    law = channels.Quantizer(bits, UNIT)._law(1)
    reports, means = np.arange(2**bits), np.linspace(-1.5, 1.5, 31)
    knots, table = np.linspace(-1, 1, 2**bits), np.eye(2**bits)
    variances = np.full(2**bits, sd**2)
    expected = average_levels(table, knots, means, variances)
    np.testing.assert_allclose(averaged(law, reports, means, sd), expected, rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(at(law, reports, means), hats(means, knots).T, atol=1e-12)


def test_ramps_that_end_almost_together():
    """Ends of ramps that differ by rounding: 0.1 + 0.2 is not 0.3."""
    means = np.linspace(-1.2, 1.2, 49)
    tables = [
        averaged(
            channels.TwoBit(2.0, 0.5, UNIT, location=location, spread=(0.1 + 0.2, 0.6))._law(1),
            np.arange(4),
            means,
            0.1,
        )
        for location in (0.3, 0.1 + 0.2, 0.3 - 1e-12)
    ]
    np.testing.assert_allclose(tables[0], tables[1], atol=1e-9)
    np.testing.assert_allclose(tables[0], tables[2], atol=1e-9)


# Ranges ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-50, 1e-20, 1e20, 1e50])
@pytest.mark.parametrize("name", SMOOTH)
def test_units_do_not_matter(name, scale):
    """A range of any width sends the reports of the unit range, and reads them alike."""
    values = np.linspace(-1.2, 1.2, 25)[:, None]
    clients, scaled = (
        Summary(np.arange(25), np.full(25, 3), factor * values, np.zeros((25, 1)))
        for factor in (1.0, scale)
    )
    channel = SMOOTH[name](1.0)
    wide = SMOOTH[name](1.0).set_params(range=(-scale, scale))
    message, other = channel.encode(clients, 1), wide.encode(scaled, 1)
    np.testing.assert_allclose(message["report"], other["report"], rtol=1e-12)
    np.testing.assert_allclose(wide.decode(other), scale * channel.decode(message), rtol=1e-12)
    np.testing.assert_allclose(
        wide.variance(scaled) / scale**2, channel.variance(clients), rtol=1e-9, atol=1e-12
    )
    np.testing.assert_array_equal(wide.clipped(scaled), channel.clipped(clients))

    def family(unit):
        # of a row; clients have three. One that was learned may be of any size
        return families.Gaussian(0.12 * unit**2, learned=True)

    theta = np.linspace(-1.5, 1.5, 7)[:, None]
    one = channel.likelihood(message, family(1.0)).logpdf(theta)
    two = wide.likelihood(other, family(scale)).logpdf(scale * theta)
    np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-9)


def test_clipped_is_counted():
    values = np.array([[-1.0], [0.0], [1.0], [1.0 + 1e-15], [1.01], [-7.0]])
    clients = Summary(np.arange(6), np.ones(6, int), values, np.zeros((6, 1)))
    channel = channels.Laplace(1.0, UNIT)
    assert channel.clipped(clients).tolist() == [False, False, False, False, True, True]
    plane = Summary(
        np.arange(3), np.ones(3, int), 0.8 * np.eye(3)[:, :2] + [[0, 0.7]], np.zeros((3, 2))
    )
    ball = channels.Clip(radius=1.0)
    assert ball.clipped(plane).tolist() == [True, True, False]
    decoded = ball.decode(ball.encode(plane))
    np.testing.assert_allclose(np.hypot(*decoded.T), [1, 1, 0.7])


# Blocks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SMOOTH)
def test_large_blocks_are_cut_inside(name):
    """Pieces that `encode` cuts for itself: as many draws for each client, wherever it stands."""
    n, first = 2**16 + 1000, 2**16 - 50
    rng = np.random.default_rng(0)
    clients = Summary(np.arange(n), np.full(n, 2), rng.uniform(-1, 1, (n, 2)), np.zeros((n, 2)))
    channel = SMOOTH[name](1.0)
    whole = channel.encode(clients, Stream(make_key(1), 0))
    part = channel.encode(
        clients.take(slice(first, first + 100)), Stream(make_key(1), 0, first=first)
    )
    for key, values in part.items():
        np.testing.assert_array_equal(values, whole[key][first : first + 100])


@pytest.mark.parametrize("make", [channels.RandomizedResponse, channels.UnaryEncoding])
def test_numbers_of_rows_of_others_do_not_matter(make):
    channel = make(2.0, (0.0, 1.0))
    clients = Summary.from_counts([3, 0, 5, 2], [4, 2, 40, 3])
    whole = channel.encode(clients, Stream(make_key(1), 0))["report"]
    few = channel.encode(clients.take(slice(0, 2)), Stream(make_key(1), 0))["report"]
    np.testing.assert_array_equal(whole[:2], few)


# Bits -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("channel", "bits"),
    [
        (channels.Exact(), 128),
        (channels.Clip(UNIT), 64),
        (channels.Gaussian(1.0, 1e-5, UNIT), 64),
        (channels.Laplace(1.0, UNIT), 64),
        (channels.Piecewise(1.0, UNIT), 64),
        (channels.Hybrid(1.0, UNIT), 64),
        (channels.Hybrid(0.5, UNIT), 1),
        (channels.OneBit(1.0, UNIT), 1),
        (channels.TwoBit(1.0, 0.5, UNIT), 2),
        (channels.Quantizer(5, UNIT), 5),
        (channels.RandomizedResponse(1.0, UNIT, levels=5), 3),
        (channels.RandomizedResponse(1.0, UNIT), math.nan),
        (channels.UnaryEncoding(1.0, UNIT, levels=5), 5),
        (channels.UnaryEncoding(1.0, UNIT), math.nan),
    ],
    ids=repr,
)
def test_bits(channel, bits):
    assert channel.bits == pytest.approx(bits, nan_ok=True)
    three = Summary(np.arange(2), np.array([4, 9]), np.zeros((2, 3)), np.zeros((2, 3)))
    if math.isnan(bits):
        bits = {channels.RandomizedResponse: [3, 4], channels.UnaryEncoding: [5, 10]}[type(channel)]
    whole = getattr(channel, "whole", True)
    expected = np.multiply(bits, 3) if whole else np.add(bits, 2)  # two bits name the coordinate
    np.testing.assert_array_equal(channel.message_bits(three), np.broadcast_to(expected, 2))
