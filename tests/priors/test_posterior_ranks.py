"""Posterior ranks, against probabilities of pairs and against all orders written out."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.special import ndtr
from scipy.stats import rankdata

import ebfed as eb
from ebfed.likelihoods import Gaussian
from ebfed.priors import Normal
from ebfed.priors.discrete_posterior import DiscretePosterior
from ebfed.priors.posterior import NormalMarginals, _places

RNG = np.random.default_rng(0)
ERRORS = RNG.uniform(0.3, 1.5, 30)
VALUES = RNG.normal(0, 1, 30) + ERRORS * RNG.standard_normal(30)


@pytest.fixture(scope="module")
def thirty():
    return eb.posterior_from(
        VALUES, ERRORS, Normal(variance=1.0), labels=[f"s{i}" for i in range(30)]
    )


def test_expected_ranks_are_sums_of_probabilities_of_pairs(thirty):
    """Of 30 clients; a mean of 20,000 ranks is off by more than 5 errors once in 60,000 runs."""
    mean = thirty.mean[:, 0]
    joint = eb.posterior_from(VALUES, np.diag(ERRORS**2), Normal(variance=1.0)).covariance
    spread = np.diag(joint) + np.diag(joint)[:, None] - 2 * joint
    np.fill_diagonal(spread, 1.0)
    above = ndtr((mean - mean[:, None]) / np.sqrt(spread))  # j above i
    expected = 0.5 + above.sum(axis=1)  # of the 1/2 with itself, 1 is made
    ranks = thirty.ranks(n_draws=20_000)["rank"].to_numpy()
    error = 30 / np.sqrt(12) / np.sqrt(20_000)  # no rank among 30 varies more than a uniform one
    np.testing.assert_allclose(ranks, expected, atol=5 * error)
    assert ranks.sum() == pytest.approx(30 * 31 / 2)
    assert np.argmin(ranks) == np.argmax(mean)


def test_all_figures_are_those_of_the_draws(thirty):
    n_draws, rng = 777, np.random.default_rng(5)
    blocks = [thirty.sample(size, rng) for size in (250, 250, 250, 27)]
    draws = np.concatenate(blocks)[:, :, 0]
    place = rankdata(-draws, axis=1)
    out = thirty.ranks(4, level=0.9, n_draws=n_draws, random_state=5)
    assert out.columns.tolist() == ["group", "estimate", "rank", "lower", "upper", "prob_top"]
    assert out["group"].tolist() == [f"s{i}" for i in range(30)]
    np.testing.assert_array_equal(out["estimate"], thirty.mean[:, 0])
    np.testing.assert_allclose(out["rank"], place.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(out["prob_top"], (place <= 4).mean(axis=0), rtol=1e-12)
    for name, q in (("lower", 0.05), ("upper", 0.95)):
        # the 39th from either end
        kth = np.sort(place, axis=0)[38 if q < 0.5 else -39]
        np.testing.assert_array_equal(out[name], kth)
        near = np.quantile(place, q, axis=0, method="inverted_cdf")
        assert np.abs(out[name] - near).max() <= 1  # a neighbour among the sorted draws


@pytest.mark.parametrize("top", [1, 7, 30])
def test_places_at_the_top_are_as_many_as_there_are(top):
    for prior in (Normal(), "npmle"):
        posterior = eb.posterior_from(VALUES, ERRORS, prior)
        share = posterior.ranks(top, n_draws=300)["prob_top"]
        assert share.sum() == pytest.approx(top, rel=1e-12)
        assert share.between(0, 1 + 1e-12).all()


def test_ascending_ranks_count_from_the_other_end(thirty):
    down, up = thirty.ranks(30), thirty.ranks(30, ascending=True)
    np.testing.assert_allclose(up["rank"], 31 - down["rank"])
    np.testing.assert_array_equal(up["lower"], 31 - down["upper"])
    np.testing.assert_array_equal(up["upper"], 31 - down["lower"])


def test_equal_parameters_share_their_places():
    known = eb.posterior_from([1.0, 5.0, 5.0, 9.0], [0.0] * 4, Normal(0.0, 1.0))
    out = known.ranks(2, n_draws=3)
    assert out["rank"].tolist() == [4, 2.5, 2.5, 1]
    assert out["prob_top"].tolist() == [0, 0.5, 0.5, 1]
    assert out["lower"].tolist() == out["upper"].tolist() == [4, 2.5, 2.5, 1]
    draws = RNG.integers(0, 4, (50, 9)).astype(float)
    first, last = _places(draws)
    np.testing.assert_array_equal(first, rankdata(draws, "min", axis=1))
    np.testing.assert_array_equal(last, rankdata(draws, "max", axis=1))


def test_points_are_ranked_as_their_probabilities_say():
    """Two clients, two points: 2,000 draws of a fair share; 5 errors, once in 10**6 runs."""
    likelihood = Gaussian(np.array([[0.2], [0.9]]), np.full((2, 1), 0.5))
    posterior = DiscretePosterior(np.array([[0.0], [1.0]]), np.log([0.5, 0.5]), likelihood)
    a, b = posterior.mean[:, 0]  # P(theta = 1)
    out = posterior.ranks(1, n_draws=2000)
    expected = b * (1 - a) + 0.5 * (a * b + (1 - a) * (1 - b))
    assert out["prob_top"][1] == pytest.approx(expected, abs=5 * 0.5 / np.sqrt(2000))


class Known(NormalMarginals):
    """Three clients with two coefficients, all known."""

    mean = np.array([[1.0, 9.0], [2.0, 8.0], [3.0, 7.0]])
    sd = np.zeros((3, 2))

    def sample(self, size, random_state=None):
        return np.broadcast_to(self.mean, (size, 3, 2))


def test_columns_go_by_name_or_place():
    posterior = Known().labelled(np.array(["a", "b", "c"], object), {}, None, ("level", "slope"))
    for column in (1, "slope"):
        assert posterior.ranks(column=column, n_draws=2)["rank"].tolist() == [1, 2, 3]
    assert posterior.ranks(n_draws=2)["rank"].tolist() == [3, 2, 1]
    assert Known().ranks(column="x1", n_draws=2)["rank"].tolist() == [1, 2, 3]
    for column in (2, -1, "other", None):
        with pytest.raises(ValueError, match="column must be below 2 or one of 'level', 'slope'"):
            posterior.ranks(column=column)


def test_frames_are_in_the_style_of_the_posterior():
    labels = pl.Series("estimate", ["a", "b", "c"])
    posterior = eb.posterior_from([1.0, 2.0, 4.0], [1.0, 1.0, 1.0], labels=labels)
    out = posterior.ranks(n_draws=10)
    assert isinstance(out, pl.DataFrame)
    assert out.columns == ["estimate_group", "estimate", "rank", "lower", "upper"]
    assert isinstance(posterior.using("pandas").ranks(n_draws=10), pd.DataFrame)
    assert "group" not in eb.posterior_from([1.0, 2.0], [1.0, 1.0]).ranks(n_draws=10)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top": 0}, "top must be a whole number from 1 to 30"),
        ({"top": 31}, "top must be a whole number from 1 to 30"),
        ({"top": 2.5}, "top must be a whole number from 1 to 30"),
        ({"level": 1}, "level must lie between 0 and 1"),
        ({"level": "a"}, "level must lie between 0 and 1"),
        ({"n_draws": 0}, "n_draws must be a positive whole number"),
        ({"n_draws": 1.5}, "n_draws must be a positive whole number"),
    ],
)
def test_options_that_make_no_sense(options, message, thirty):
    with pytest.raises(ValueError, match=message):
        thirty.ranks(**options)


def test_nobody_and_one():
    with pytest.warns(eb.IdentificationWarning):
        assert len(eb.posterior_from([], []).ranks()) == 0
    one = eb.posterior_from([1.0], [1.0], Normal(0.0, 1.0)).ranks(1, n_draws=5)
    assert one[["rank", "lower", "upper", "prob_top"]].to_numpy().tolist() == [[1, 1, 1, 1]]


def test_ranks_repeat_and_vary_with_the_seed(thirty):
    first = thirty.ranks(n_draws=100)
    pd.testing.assert_frame_equal(first, thirty.ranks(n_draws=100))
    other = thirty.ranks(n_draws=100, random_state=1)
    assert not np.array_equal(first["rank"], other["rank"])


def test_mean_ranks_are_nearer_than_ranks_of_estimates():
    """Mean squared error of 40 populations of 50; its gain, 5 errors of it, is no luck of draws."""
    rng, gains = np.random.default_rng(3), []
    for _ in range(40):
        theta, errors = rng.standard_normal(50), rng.uniform(0.3, 2, 50)
        x = theta + errors * rng.standard_normal(50)
        truth = rankdata(-theta)
        ranks = eb.posterior_from(x, errors, Normal(0.0, 1.0)).ranks(n_draws=500)["rank"]
        gains.append(np.mean((rankdata(-x) - truth) ** 2 - (ranks - truth) ** 2))
    assert np.mean(gains) > 5 * np.std(gains) / np.sqrt(40)
