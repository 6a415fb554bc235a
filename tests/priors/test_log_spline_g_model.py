"""Penalised maximum likelihood of log-splines: derivatives, and the figures of deconvolveR."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ebfed.likelihoods import Binomial, Gaussian
from ebfed.priors import log_spline
from ebfed.priors.log_spline import GModel, natural_basis

FOLDER = Path(__file__).parents[1] / "reference"
SURGERY = pd.read_csv(FOLDER / "surg.csv")
GRID = pd.read_csv(FOLDER / "deconvolve.csv")
FIT = pd.read_csv(FOLDER / "deconvolve_fit.csv")


def model(**changes):
    """Estimates of a bimodal population on an uneven grid."""
    rng = np.random.default_rng(0)
    theta = rng.choice([-2.0, 1.0], 200) + rng.normal(0, 0.4, 200)
    errors = rng.uniform(0.3, 1.5, (200, 1))
    nodes = np.sort(rng.uniform(-4, 3, 300))
    rows = Gaussian(rng.normal(theta[:, None], errors), errors**2)
    arguments = {
        "rows": rows,
        "counts": rng.integers(1, 4, 200).astype(float),
        "nodes": nodes,
        "widths": np.gradient(nodes),
        "basis": natural_basis(np.linspace(0, 1, 6), (nodes + 4) / 7),
        "c0": 1.0,
    }
    return GModel(**(arguments | changes))


@pytest.mark.parametrize("p", [1, 2, 5, 9])
def test_the_basis_is_orthonormal_natural_and_begins_with_the_line(p):
    knots = np.linspace(0, 1, p + 1) ** 1.3
    nodes, weights = np.polynomial.legendre.leggauss(400)
    basis = natural_basis(knots, (nodes + 1) / 2)
    # Gauss-Legendre over kinks of the third derivative: good to about 1e-8
    np.testing.assert_allclose((basis.T * weights / 2) @ basis, np.eye(p), atol=1e-7)
    np.testing.assert_allclose(weights / 2 @ basis, 0, atol=1e-7)
    ends = natural_basis(knots, np.array([0.0, 1.0]))[:, 0]
    np.testing.assert_allclose(ends, [-(3**0.5), 3**0.5])
    h = 1e-4
    for end in (0.0, 1.0):
        three = natural_basis(knots, np.abs(end - np.array([0.0, h, 2 * h])))
        # a second derivative that is linear next to the end and 0 there is h at a distance of h
        third = np.abs(np.diff(three, 2, axis=0)) / h**2
        assert (third <= 100 * p**3 * h).all()


def test_the_density_of_coefficients_is_that_of_their_prior_and_the_likelihood():
    problem = model()
    at = np.array([[0.3, -1.0, 0.5, 0.2, -0.4], [0.0, 2.0, 0.1, -0.3, 0.0]])
    expected = []
    for a in at:
        masses = problem.widths * np.exp(problem.basis @ a)
        masses /= masses.sum()
        v = masses @ problem.nodes**2 - (masses @ problem.nodes) ** 2
        u = np.ptp(problem.nodes) ** 2 / 12
        expected.append(
            problem.figures(a).value - 3 * np.log1p(20 * a @ a) + 0.8 * np.log(v / (v + u))
        )
    np.testing.assert_allclose(np.diff(problem.log_posterior(at)), np.diff(expected), rtol=1e-9)


def test_derivatives_are_those_of_the_likelihood():
    problem, at, h = model(), np.array([0.3, -1.0, 0.5, 0.2, -0.4]), 1e-5
    here = problem.figures(at)
    for j, step in enumerate(h * np.eye(5)):
        up, down = problem.figures(at + step), problem.figures(at - step)
        # central differences: h**2 of truncation, rounding / h
        assert here.slope[j] == pytest.approx((up.value - down.value) / (2 * h), abs=1e-5)
        np.testing.assert_allclose(here.bend[j], (up.slope - down.slope) / (2 * h), atol=1e-5)


def test_the_maximum_is_one():
    problem = model()
    found = problem.maximise()
    a = found.coefficients
    slope = problem.figures(a).slope - a / np.linalg.norm(a)
    np.testing.assert_allclose(slope, 0, atol=1e-4)
    rng = np.random.default_rng(1)
    for size in (0.01, 0.1, 1, 5):
        for start in rng.normal(0, size, (10, 5)):
            assert problem._penalised(a + start, problem.figures(a + start)) <= found.value


def test_few_messages_that_say_little_leave_the_uniform_population():
    vague = Gaussian(np.array([[-1.0], [0.0], [1.0]]), np.full((3, 1), 25.0))
    found = model(rows=vague, counts=np.ones(3)).maximise()
    np.testing.assert_array_equal(found.coefficients, 0)


def test_many_messages_are_taken_in_blocks(monkeypatch):
    expected = model().maximise()
    monkeypatch.setattr(log_spline, "MOST_ENTRIES", 1000)
    monkeypatch.setattr(log_spline, "MANY", 100)
    found = model().maximise()
    # Newton stops where a step gains less than 1e-9
    np.testing.assert_allclose(found.coefficients, expected.coefficients, atol=1e-4)
    assert found.value == pytest.approx(expected.value, abs=1e-8)


@pytest.mark.parametrize("many", [5000, 100])
def test_another_basis_has_the_maximum_of_its_own(monkeypatch, many):
    monkeypatch.setattr(log_spline, "MANY", many)
    basis = natural_basis(np.linspace(0, 1, 9), (model().nodes + 4) / 7)
    found, expected = model().rebased(basis).maximise(), model(basis=basis).maximise()
    np.testing.assert_allclose(found.coefficients, expected.coefficients, atol=1e-4)
    criterion = model(basis=basis).figures(expected.coefficients).value
    criterion -= 4 * np.log(model().counts.sum())
    assert model().rebased(basis).criterion() == pytest.approx(criterion, abs=1e-4)


def test_surgery_as_by_deconvolve():
    """Rates of malignant nodes of 844 patients, on the grid and the basis of deconvolveR."""
    rows, counts = Binomial(
        SURGERY["malignant"].to_numpy()[:, None], SURGERY["removed"].to_numpy()
    ).compress()
    basis = GRID[[f"q{j}" for j in range(1, 6)]].to_numpy()
    problem = GModel(rows, counts, GRID["theta"].to_numpy(), np.ones(99), basis, 1.0)
    a = problem.maximise().coefficients
    covariance = problem.covariance(a)
    # nlm stops at a gradient of 1e-6 of the likelihood's size
    np.testing.assert_allclose(a, FIT["coefficient"], rtol=1e-6)
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), FIT["se"], rtol=1e-6)
    g = np.exp(basis @ a)
    g /= g.sum()
    away = basis - g @ basis
    np.testing.assert_allclose(g, GRID["g"], rtol=1e-6)
    errors = g * np.sqrt(((away @ covariance) * away).sum(axis=1))
    np.testing.assert_allclose(errors, GRID["se"], rtol=1e-6)
