"""What mixed models say of single effects: their errors and reliability, against dense matrices."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import ebfed as eb
from ebfed.report.view import view_of

ORTHODONT = pd.read_csv(Path(__file__).parents[1] / "reference" / "orthodont.csv")


def rows():
    rng = np.random.default_rng(0)
    a, b = np.repeat(np.arange(6), 20), np.repeat(np.arange(30), 4)
    x = rng.normal(size=120)
    y = 1 + x + rng.normal(size=6)[a] + 0.8 * rng.normal(size=30)[b] + rng.normal(size=120)
    return pd.DataFrame({"y": y, "x": x, "a": a, "b": b}).drop(index=range(3)).reset_index()


def conditional(frame, spread, noise, mean):
    """Mean and covariance of effects of a and of b, given the population."""
    Z = np.column_stack([np.eye(6)[frame["a"]], np.eye(30)[frame["b"]]])
    G = np.diag(np.repeat(spread, [6, 30]))
    gain = np.linalg.solve(Z @ G @ Z.T + noise * np.eye(len(Z)), Z @ G).T
    return gain @ (frame["y"] - mean), G - gain @ Z @ G


@pytest.mark.parametrize("origin", [0, 11])
def test_reliability_is_by_the_conditional_variance(origin):
    """As lme4's condVar: 0.476 of the intercept at 0, and 0.295 of the slope at any origin."""
    frame = ORTHODONT.assign(age=ORTHODONT["age"] - origin)
    fit = eb.from_formula("distance ~ age * sex + (age | subject)", frame)
    found = fit.reliability()
    Z = np.column_stack([np.ones(4), np.unique(frame["age"])])
    T, noise = fit.covariance_[:2, :2], fit.noise_variance_
    left = np.diag(T - T @ Z.T @ np.linalg.solve(Z @ T @ Z.T + noise * np.eye(4), Z @ T))
    np.testing.assert_allclose(found[["intercept", "age"]], [1 - left / np.diag(T)] * 27)
    np.testing.assert_allclose(found["age"], 0.295, atol=5e-4)
    if origin == 0:
        np.testing.assert_allclose(found["intercept"], 0.476, atol=5e-4)
        assert "its own rows): intercept 0.48, age 0.29" in " ".join(fit.summary().split())


def test_a_group_whose_rows_say_nothing_has_no_reliability():
    frame = rows().assign(
        x=lambda f: np.where(f["b"] < 3, 0.0, f["x"]), y=lambda f: f["y"] + f["b"] * f["x"]
    )
    found = eb.from_formula("y ~ x + (1 + x || b)", frame).reliability()
    assert (found["x"][:3] == 0).all()
    assert (found["x"][3:] > 0).all()


@pytest.mark.parametrize("family", ["binomial", "poisson"])
def test_reliability_of_counts_does_not_depend_on_errors_of_the_mean(family):
    """Of a mean that few groups tell, the posterior has the error too; the effects do not."""
    frame = rows()
    frame["y"] = frame["y"].gt(1).astype(int) if family == "binomial" else frame["b"] % 3
    frame["x"] = np.where(frame["b"] > 22, frame["x"], 0.0)
    fit = eb.from_formula("y ~ x + (1 | b)", frame, family=family)
    view = view_of(fit)
    known = fit.estimator_._population().posterior_given_population(fit.estimator_.clients_)
    tau2 = fit.covariance_[0, 0]
    assert fit.posterior().sd[29, 0] ** 2 > known.sd[29, 0] ** 2
    np.testing.assert_allclose(view.reliability()["intercept"], 1 - known.sd[:, 0] ** 2 / tau2)


@pytest.mark.parametrize("fixed", ["x", "1"])
def test_effects_of_groups_within_groups_are_differences_from_the_parent(fixed):
    """Estimates were such differences, and errors those of the sum of both effects."""
    frame = rows()
    fit = eb.from_formula(f"y ~ {fixed} + (1 | a / b)", frame)
    figures = fit.tidy()
    sd = figures["estimate"][figures["effect"] == "ran_pars"].to_numpy()
    mean = figures["estimate"][0] + (fit.mean_[1] * frame["x"] if fixed == "x" else 0.0)
    effects, covariance = conditional(frame, sd[:2] ** 2, sd[2] ** 2, mean)
    found, errors = fit.tidy("ran_vals"), np.sqrt(np.diag(covariance)[6:])
    np.testing.assert_allclose(found["estimate"], effects[6:], atol=1e-9)
    np.testing.assert_allclose(found["std.error"], errors, rtol=1e-9)
    if fixed == "x":
        share = 1 - errors**2 / sd[1] ** 2
        np.testing.assert_allclose(fit.reliability()["intercept"], share, rtol=1e-9)


def test_reliability_of_crossed_factors():
    frame = rows()
    fit = eb.CrossedEB().fit(frame[["x", "y", "a", "b"]], "y", groups=["a", "b"])
    spread = [fit.variances_[name] for name in "ab"]
    mean = fit.mean_[0] + fit.mean_[1] * frame["x"]
    left = np.diag(conditional(frame, spread, fit.noise_variance_, mean)[1])
    share = 1 - left / np.repeat(spread, [6, 30])
    np.testing.assert_allclose(fit.reliability()["intercept"], share[:6], rtol=1e-6)
    np.testing.assert_allclose(fit.reliability("b")["intercept"], share[6:], rtol=1e-6)
    assert "Reliability of a (variance" in fit.summary()
