"""Equations of crossed factors in matrices of few entries are those in dense ones."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import ebfed as eb
from ebfed.regression.families import Responses, family_named
from ebfed.regression.numerics import crossed_patterns
from ebfed.regression.numerics.crossed_laplace import CrossedLaplace
from ebfed.regression.numerics.crossed_model import CrossedEquations, CrossedSystem
from ebfed.regression.numerics.crossed_patterns import DensePattern, SparsePattern
from ebfed.regression.numerics.crossed_search import CrossedBlocks
from ebfed.regression.numerics.crossed_sums import CrossedDesign

SIZES, WIDTHS = (60, 24, 8), [(1, 1, 1), (2, 2, 1), (1, 3, 2)]


def nearly_nested(widths, seed=0, n=400):
    """Pupils in classes of schools, of whom some change their class; rows have weights."""
    rng = np.random.default_rng(seed)
    pupil = rng.integers(0, SIZES[0], n)
    group = np.where(rng.random(n) < 0.9, pupil * SIZES[1] // SIZES[0], rng.integers(0, 24, n))
    codes = [pupil, group, group // 3]
    bases = [np.column_stack([np.ones(n), rng.normal(size=(n, p - 1))]) for p in widths]
    return CrossedDesign(codes, np.array(SIZES), bases), rng


@pytest.fixture
def few_entries(monkeypatch):
    """Make all patterns sparse."""
    monkeypatch.setattr(crossed_patterns, "LEAST_SPARSE", 1)
    monkeypatch.setattr(crossed_patterns, "SHARE", np.inf)
    monkeypatch.setattr(crossed_patterns, "DENSITY", 1.0)


def roots_of(widths, rng):
    return [np.tril(rng.uniform(-0.5, 0.5, (p, p))) + 0.6 * np.eye(p) for p in widths]


def both(sums):
    """The same sums in both kinds of pattern."""
    dense = DensePattern(SIZES[1:], sums.widths[1:])
    assert isinstance(sums.pattern, SparsePattern)
    return sums, replace(sums, among=sums.pattern.whole(sums.among).toarray(), pattern=dense)


@pytest.mark.parametrize("widths", WIDTHS)
@pytest.mark.parametrize("restricted", [True, False])
@pytest.mark.parametrize("singular", [False, True])
def test_linear_models(few_entries, widths, restricted, singular):
    design, rng = nearly_nested(widths)
    n = len(design.codes[0])
    columns = np.column_stack([np.ones(n), rng.normal(size=(n, 2))])
    roots = roots_of(widths, rng)
    if singular:
        roots[1][:, -1] = 0.0
    systems = [
        CrossedSystem(each, roots, restricted)
        for each in both(design.sums(rng.uniform(0.5, 2, n), columns))
    ]
    few, dense = systems
    assert few.deviance == pytest.approx(dense.deviance, rel=1e-12)
    entries = [(k, a, b) for k, p in enumerate(widths) for a in range(p) for b in range(p)]
    for one, other in [
        *zip(few.slope(), dense.slope(), strict=True),
        *zip(few.solution, dense.solution, strict=True),
        (few.information(entries), dense.information(entries)),
        (few.whole_inverse(), dense.inverse(0).values),
        (few.column_covariance(2), dense.column_covariance(2)),
        *zip(
            few.solve(*(each.copy() for each in few.solution[:2])),
            dense.solve(*(each.copy() for each in few.solution[:2])),
            strict=True,
        ),
    ]:
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-9)
    for factor in range(3):
        one, other = (each.covariances(factor, each.inverse(2)) for each in systems)
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("widths", WIDTHS)
def test_variances_of_rows_that_no_row_of_the_fit_is_like(few_entries, widths):
    """Levels that did not meet there, and levels that were not there."""
    design, rng = nearly_nested(widths)
    n = len(design.codes[0])
    columns = np.column_stack([np.ones(n), rng.normal(size=n)])
    roots = roots_of(widths, rng)
    few, dense = (CrossedEquations(each, roots) for each in both(design.sums(np.ones(n), columns)))
    codes = [rng.integers(-1, size, 50) for size in SIZES]
    new = CrossedDesign(codes, design.sizes, [rng.normal(size=(50, p)) for p in widths])
    for own in (None, rng.normal(size=(50, 2))):
        p = 0 if own is None else 2
        found, expected = (each.variances(new, own, each.inverse(p)) for each in (few, dense))
        np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("widths", WIDTHS)
def test_draws_have_the_covariance_of_the_equations(few_entries, widths):
    """Averages of 4,000 squares of normal numbers have an error of .022; five of these."""
    design, rng = nearly_nested(widths)
    n = len(design.codes[0])
    sums = design.sums(np.ones(n), rng.normal(size=(n, 2)))
    equations = CrossedEquations(sums, roots_of(widths, rng))
    inverse, draws = equations.inverse(2), [equations.sample(2, rng) for _ in range(4_000)]
    others = np.array([equations.natural(each) for _, each, _ in draws])
    variances = np.mean(others**2, axis=0) / sums.pattern.diagonal(inverse.values)
    np.testing.assert_allclose(variances, 1, atol=5 * 0.022)
    of_columns = np.mean([each**2 for *_, each in draws], axis=0)
    np.testing.assert_allclose(of_columns, np.diag(inverse.corner), rtol=5 * 0.022)


@pytest.mark.parametrize("family", ["poisson", "binomial", "ordinal"])
@pytest.mark.parametrize("widths", WIDTHS[:2])
def test_slopes_of_laplace_are_those_of_differences(few_entries, family, widths):
    design, rng = nearly_nested(widths)
    n = len(design.codes[0])
    y = rng.integers(0, 2, n) + float(family == "ordinal")
    blocks = CrossedBlocks([[(0, p)] for p in widths], widths)
    rows = Responses(y.astype(float), np.ones(n), np.zeros(n))
    model = CrossedLaplace(design, np.ones((n, 1)), family_named(family), rows, blocks)
    assert isinstance(design.pattern, SparsePattern)
    point = model.start()
    point[: model.n_entries] = rng.uniform(0.2, 0.7, model.n_entries)
    slope = model.slope(point, model.mode(point))
    for j, step in enumerate(1e-5 * np.eye(len(point))):
        up, down = (model.mode(point + s * step).criterion for s in (1, -1))
        assert slope[j] == pytest.approx((up - down) / 2e-5, rel=1e-4, abs=2e-3)


def school_rows(seed=1, schools=60, n=6_000):
    """Pupils of classes of schools: some change classes, a few change schools."""
    rng = np.random.default_rng(seed)
    pupil = rng.integers(0, schools * 25, n)
    school = np.where(rng.random(n) < 0.99, pupil // 25, rng.integers(0, schools, n))
    teacher = school * 8 + rng.integers(0, 8, n)
    x = rng.normal(size=n)
    y = rng.normal(size=schools * 25)[pupil] + 0.7 * rng.normal(size=schools * 8)[teacher] + x
    return pd.DataFrame(
        {"y": y + rng.normal(size=n), "x": x, "pupil": pupil, "teacher": teacher, "school": school}
    )


@pytest.mark.parametrize(
    "formula",
    ["y ~ x + (1 | pupil) + (1 | teacher)", "y ~ x + (1 | pupil) + (1 + x | teacher)"],
)
def test_a_fit_of_few_entries_is_that_of_a_dense_matrix(formula, monkeypatch, tmp_path):
    rows = school_rows()
    fit = eb.from_formula(formula, rows)
    new = rows.sample(50, random_state=0).assign(teacher=rows["teacher"].to_numpy()[:50])
    fit.save(tmp_path / "fit.json")
    again = eb.load_fit(tmp_path / "fit.json")
    monkeypatch.setattr(crossed_patterns, "LEAST_SPARSE", np.inf)
    dense = eb.from_formula(formula, rows)
    sums = [each.estimator_._fit.equations.sums for each in (fit, again, dense)]
    assert [type(each.pattern) for each in sums] == [SparsePattern] * 2 + [DensePattern]
    assert fit.log_likelihood_ == pytest.approx(dense.log_likelihood_, rel=1e-12)
    for each in (fit, again):
        np.testing.assert_allclose(each.predict(new), dense.predict(new), rtol=1e-4, atol=1e-4)
        for one, other in zip(each.predict_interval(new), dense.predict_interval(new), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
    pd.testing.assert_frame_equal(fit.ranef(), dense.ranef(), rtol=1e-3, atol=1e-5)


def test_more_coefficients_than_a_dense_matrix_may_have(monkeypatch):
    """Of nearly nested factors they are fitted; of others the refusal says when they would be."""
    monkeypatch.setattr(crossed_patterns, "MOST_DENSE", 400)
    rows = school_rows()
    formula = "y ~ x + (1 | pupil) + (1 | teacher)"
    assert eb.from_formula(formula, rows).converged_
    mixed = rows.assign(teacher=np.random.default_rng(0).permutation(rows["teacher"]))
    with pytest.raises(ValueError, match="have 480 coefficients of levels together; more than 400"):
        eb.from_formula(formula, mixed)
