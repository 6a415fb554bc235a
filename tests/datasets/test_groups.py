import numpy as np
import pytest

from ebfed.datasets import make_bernoulli_groups, make_gaussian_groups


@pytest.mark.parametrize("n_rows", [3, [3, 0, 5, 1], np.array([0, 0, 0, 0])])
@pytest.mark.parametrize("n_features", [1, 2])
def test_gaussian_groups_have_the_rows_asked_for(n_rows, n_features):
    X, groups, theta = make_gaussian_groups(4, n_rows, n_features=n_features)
    rows = np.broadcast_to(n_rows, 4)
    assert np.bincount(groups, minlength=4).tolist() == rows.tolist()
    assert np.all(np.diff(groups) >= 0)
    features = () if n_features == 1 else (n_features,)
    assert X.shape == (rows.sum(), *features)
    assert theta.shape == (4, *features)


@pytest.mark.parametrize("n_features", [1, 3])
def test_gaussian_groups_have_the_moments_asked_for(n_features):
    X, groups, theta = make_gaussian_groups(
        20_000,
        4,
        n_features=n_features,
        mean=3.0,
        group_variance=4.0,
        noise_variance=0.25,
        random_state=1,
    )
    # five standard errors of a mean and of a variance from that many independent draws
    assert theta.mean() == pytest.approx(3.0, abs=5 * np.sqrt(4.0 / theta.size))
    assert theta.var() == pytest.approx(4.0, rel=5 * np.sqrt(2 / theta.size))
    noise = X - theta[groups]
    assert noise.mean() == pytest.approx(0.0, abs=5 * np.sqrt(0.25 / noise.size))
    assert noise.var() == pytest.approx(0.25, rel=5 * np.sqrt(2 / noise.size))


def test_zero_variances_are_allowed():
    X, groups, theta = make_gaussian_groups(5, 2, mean=1.5, group_variance=0, noise_variance=0)
    assert np.all(theta == 1.5)
    np.testing.assert_array_equal(X, theta[groups])


# mean, variance: of the normal on [0, 1] up to truncation (its tails weigh .0009), others exactly
@pytest.mark.parametrize(
    ("population", "mean", "variance"),
    [
        ("normal", 0.5, 0.15**2),
        ("uniform", 0.5, 1 / 12),
        ("spikes", 0.5, 1 / 24),
        ("beta", 0.5, 1 / 36),
        (lambda size, rng: rng.beta(1, 3, size), 0.25, 3 / 80),
    ],
)
def test_bernoulli_groups_come_from_the_population(population, mean, variance):
    y, groups, p = make_bernoulli_groups(40_000, 3, population=population, random_state=2)
    assert p.shape == (40_000,)
    assert y.shape == groups.shape == (120_000,)
    assert np.all((p >= 0) & (p <= 1))
    assert set(np.unique(y)) == {0, 1}
    assert p.mean() == pytest.approx(mean, abs=5 * np.sqrt(variance / p.size))
    assert p.var() == pytest.approx(variance, rel=0.04)
    residual = y - p[groups]
    assert residual.mean() == pytest.approx(0, abs=5 * 0.5 / np.sqrt(y.size))
    # rows of one group share nothing but p
    centred = residual.reshape(-1, 3)
    assert np.mean(centred[:, 0] * centred[:, 1]) == pytest.approx(
        0, abs=5 * 0.25 / np.sqrt(40_000)
    )


def test_spikes_are_three_rates():
    p = make_bernoulli_groups(3000, 1, population="spikes", random_state=0)[2]
    values, counts = np.unique(p, return_counts=True)
    assert values.tolist() == [0.25, 0.5, 0.75]
    assert counts.min() > 850  # 1000 expected, sd 26


def test_bernoulli_groups_may_differ_in_size():
    y, groups, p = make_bernoulli_groups(3, [0, 4, 1], random_state=0)
    assert groups.tolist() == [1, 1, 1, 1, 2]
    assert y.shape == (5,)
    assert p.shape == (3,)


@pytest.mark.parametrize("make", [make_gaussian_groups, make_bernoulli_groups])
def test_a_seed_fixes_the_draw(make):
    first, again = make(random_state=7), make(random_state=np.random.default_rng(7))
    other = make(random_state=8)
    for one, two, three in zip(first, again, other, strict=True):
        np.testing.assert_array_equal(one, two)
        assert one.shape == three.shape
    assert np.any(first[2] != other[2])


@pytest.mark.parametrize("make", [make_gaussian_groups, make_bernoulli_groups])
@pytest.mark.parametrize("n_groups", [0, -1, 2.0, True, "3"])
def test_bad_numbers_of_groups_are_refused(make, n_groups):
    with pytest.raises(ValueError, match="n_groups must be a positive integer"):
        make(n_groups)


@pytest.mark.parametrize("make", [make_gaussian_groups, make_bernoulli_groups])
@pytest.mark.parametrize("n_rows", [-1, 2.5, [1, 2], [1, 2, -3], [1.0, 2.0, 3.0], [[1], [2], [3]]])
def test_bad_numbers_of_rows_are_refused(make, n_rows):
    with pytest.raises(ValueError, match="n_rows must be an integer or 3 integers"):
        make(3, n_rows)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("n_features", 0),
        ("n_features", 1.5),
        ("mean", np.inf),
        ("group_variance", -0.1),
        ("noise_variance", np.nan),
        ("noise_variance", np.inf),
    ],
)
def test_bad_gaussian_arguments_are_refused(argument, value):
    with pytest.raises(ValueError, match=argument):
        make_gaussian_groups(3, **{argument: value})


@pytest.mark.parametrize(
    "population",
    [
        "cauchy",
        lambda size, rng: rng.normal(size=size) + 5,
        lambda size, rng: np.full(size, np.nan),
        lambda size, rng: rng.random(size + 1),
        lambda size, rng: 0.5,
    ],
)
def test_bad_populations_are_refused(population):
    with pytest.raises(ValueError, match="population must"):
        make_bernoulli_groups(3, population=population)
