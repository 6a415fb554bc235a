"""Groups that explain their rows without noise: the limit of a fit as the noise goes to zero."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

import ebfed as eb
from ebfed.priors import IdentificationWarning
from ebfed.regression.numerics import nested_model

M = 12


def rows(noise=0.0):
    """Columns y0 to y3 have an intercept of groups, slopes, parents, and a covariate of groups."""
    rng = np.random.default_rng(3)
    g, h = np.repeat(np.arange(M), 5), np.repeat(np.arange(M) // 3, 5)
    x, z, w = *rng.normal(size=(2, 60)), rng.normal(size=M)
    u, v, p = rng.normal(0, 1.5, M), rng.normal(0, 0.8, M), rng.normal(0, 1.2, 4)
    y0 = 1 + 2 * x + u[g] + noise * rng.normal(size=60)
    frame = pd.DataFrame({"x": x, "z": z, "g": g, "h": h, "w": w[g], "y0": y0})
    return frame.assign(y1=y0 + v[g] * x, y2=y0 + p[h], y3=y0 + w[g])


def of_groups(frame, name):
    """Intercept of each group, without its rows' slope."""
    return (frame[name] - 2 * frame["x"]).groupby(frame["g"]).mean().to_numpy()


@pytest.mark.parametrize("method", ["reml", "ml"])
@pytest.mark.parametrize("noise", [0.0, 1e-9, 1e-7, 3e-6, 1e-5])
def test_an_intercept(noise, method):
    """The standard deviation was 0.679 for 1.559, and that of the noise 7e-8 for 0."""
    fit = eb.from_formula("y0 ~ x + (1 | g)", rows(noise), method=method)
    effects = of_groups(rows(), "y0")
    spread = np.var(effects, ddof=method == "reml")
    # to noise / spread of the values, and its square of the variances
    np.testing.assert_allclose(fit.covariance_[0, 0], spread, rtol=10 * noise + 1e-9)
    np.testing.assert_allclose(fit.mean_, [effects.mean(), 2.0], atol=noise + 1e-9)
    error = np.sqrt(np.diag(fit.mean_covariance_))
    np.testing.assert_allclose(error[0], np.sqrt(spread / M), rtol=10 * noise + 1e-9)
    assert error[1] <= noise
    np.testing.assert_allclose(fit.ranef()["intercept"], effects - effects.mean(), atol=1e-4)
    if noise < 1e-6:
        assert fit.noise_variance_ == 0
        assert np.isnan(fit.log_likelihood_)
        assert any("explain their rows without noise" in note for note in fit.notes_)
        with pytest.raises(ValueError, match="tests need noise"):
            fit.tests()
    else:
        np.testing.assert_allclose(fit.noise_variance_ / noise**2, 1, rtol=0.5)
        assert np.isfinite(fit.log_likelihood_)


def test_a_covariate_of_groups_is_regressed_on():
    fit = eb.from_formula("y3 ~ x + z + w + (1 | g)", rows())
    design = np.column_stack([np.ones(M), rows()["w"].to_numpy()[::5]])
    effects = of_groups(rows(), "y3")
    least, squares = np.linalg.lstsq(design, effects)[:2]
    np.testing.assert_allclose(fit.mean_, [least[0], 2, 0, least[1]], atol=1e-9)
    np.testing.assert_allclose(fit.covariance_[0, 0], squares[0] / (M - 2))
    expected = np.linalg.inv(design.T @ design) * squares[0] / (M - 2)
    found = fit.mean_covariance_[np.ix_([0, 3], [0, 3])]
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert np.sqrt(np.diag(fit.mean_covariance_)[1:3]).max() < 1e-9


@pytest.mark.parametrize("method", ["reml", "ml"])
@pytest.mark.parametrize("covariance", ["full", "diag", "spherical"])
@pytest.mark.parametrize("noise", [0.0, 1e-6, 1e-5])
def test_slopes(noise, covariance, method):
    """Coefficients of groups are known: their mean and moments are the fit. Order is no matter."""
    frame = rows(noise)
    for columns in (["x", "z"], ["z", "x"]):
        fit = eb.LinearEB(covariance, varying=["intercept", "x"], method=method)
        fit.fit(frame[columns], frame["y1"], groups=frame["g"])
        places = [0, 1 + columns.index("x")]
        theta = np.array(
            [np.polynomial.polynomial.polyfit(a["x"], a["y1"], 1) for _, a in rows().groupby("g")]
        )
        moments = np.cov(theta.T, ddof=method == "reml")
        if covariance == "diag":
            moments = np.diag(np.diag(moments))
        if covariance == "spherical":
            moments = np.trace(moments) / 2 * np.eye(2)
        found = fit.covariance_[np.ix_(places, places)]
        np.testing.assert_allclose(found, moments, atol=1e-8 + 5 * noise)
        np.testing.assert_allclose(fit.mean_[places], theta.mean(axis=0), atol=1e-8 + noise)
        errors = np.diag(fit.mean_covariance_)[places]
        np.testing.assert_allclose(errors, np.diag(moments) / M, rtol=1e-7 + 10 * noise)


@pytest.mark.parametrize("covariance", ["full", "diag"])
def test_groups_of_one_row_know_a_combination_alone(covariance):
    """Against the likelihood of what the rows say, maximised by another search."""
    frame = rows()
    frame = frame[(frame["g"] > 3) | (frame.index % 5 == 0)]
    fit = eb.LinearEB(covariance, method="ml").fit(frame[["x"]], frame["y1"], groups=frame["g"])
    groups = [each[["x", "y1"]].to_numpy() for _, each in frame.groupby("g")]

    def deviance(point):
        root = np.array([[point[2], 0], [point[4] if covariance == "full" else 0, point[3]]])
        total = 0.0
        for each in groups:
            Z = np.column_stack([np.ones(len(each)), each[:, 0]])[:2]
            V = Z @ root @ root.T @ Z.T
            left = each[:2, 1] - Z @ point[:2]
            total += np.linalg.slogdet(V)[1] + left @ np.linalg.solve(V, left)
        return total

    start = [1.5, 2.1, 1.5, 0.8, 0.1]
    options = {"xatol": 1e-9, "fatol": 1e-12, "maxiter": 20_000, "maxfev": 20_000}
    best = minimize(deviance, start, method="Nelder-Mead", options=options)
    L = np.linalg.cholesky(fit.covariance_)
    here = deviance([*fit.mean_, L[0, 0], L[1, 1], L[1, 0]])
    assert here <= best.fun + 1e-7
    np.testing.assert_allclose(fit.mean_, best.x[:2], atol=1e-4)


@pytest.mark.parametrize("noise", [0.0, 1e-9, 3e-6, 1e-5])
@pytest.mark.parametrize("method", ["reml", "ml"])
def test_groups_within_groups(method, noise):
    """Groups are the rows of their parents: their spread is the noise of the level above."""
    fit = eb.from_formula("y2 ~ x + (1 | h / g)", rows(noise), method=method)
    known = pd.DataFrame({"y": of_groups(rows(), "y2"), "h": np.arange(M) // 3, "one": 1.0})
    less = eb.LinearEB(varying=["one"], fit_intercept=False, method=method)
    less.fit(known[["one"]], known["y"], groups=known["h"])
    found = [fit.covariance_above_["h"][0, 0], fit.covariance_[0, 0]]
    np.testing.assert_allclose(
        found, [less.covariance_[0, 0], less.noise_variance_], rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(fit.mean_[0], less.mean_[0], rtol=1e-5)
    errors = fit.mean_covariance_[0, 0], less.mean_covariance_[0, 0]
    np.testing.assert_allclose(*errors, rtol=1e-4)
    np.testing.assert_allclose(
        fit.ranef("h")["intercept"], less.ranef()["one"], rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(fit.predict(rows()), rows()["y2"], atol=1e-5)


@pytest.mark.parametrize("method", ["reml", "ml"])
@pytest.mark.parametrize("kind", ["full", "diag", "spherical"])
@pytest.mark.parametrize("noise", [0.0, 1e-8, 1e-5])
def test_slopes_of_groups_within_groups(noise, kind, method):
    """Coefficients of groups are known: against the likelihood of these, dense, searched alone.

    Variances were wrong by any factor: .0027 for 4.6.
    """
    frame, h = rows(noise), np.arange(M) // 3
    frame["y"] = frame["y2"] + np.random.default_rng(1).normal(size=M)[frame["g"]] * frame["x"]
    settings = {"varying": ["intercept", "x"], "method": method}
    fit = eb.LinearEB(kind, **settings).fit(frame[["x"]], frame["y"], groups=frame[["h", "g"]])
    clean = frame.assign(y=frame["y"] - frame["y2"] + rows()["y2"]).groupby("g")
    theta = np.array([np.polynomial.polynomial.polyfit(a["x"], a["y"], 1) for _, a in clean])
    X = np.tile(np.eye(2), (M, 1))

    def deviance(upper, lower):
        V = np.kron(h[:, None] == h, upper) + np.kron(np.eye(M), lower)
        H = X.T @ np.linalg.solve(V, X)
        beta = np.linalg.solve(H, X.T @ np.linalg.solve(V, theta.ravel()))
        left = theta.ravel() - X @ beta
        value = np.linalg.slogdet(V)[1] + left @ np.linalg.solve(V, left)
        return value + (method == "reml") * np.linalg.slogdet(H)[1], beta, np.linalg.inv(H)

    def covariances(free):
        if kind != "full":
            return [np.diag(each**2) for each in np.broadcast_to(free.reshape(2, -1), (2, 2))]
        roots = [np.array([[a, 0], [b, c]]) for a, b, c in free.reshape(2, 3)]
        return [root @ root.T for root in roots]

    start = np.ones({"full": 6, "diag": 4, "spherical": 2}[kind])
    options = {"xatol": 1e-8, "fatol": 1e-11, "maxiter": 20_000, "maxfev": 20_000}
    best = minimize(
        lambda x: deviance(*covariances(x))[0], start, method="Nelder-Mead", options=options
    )
    here, beta, error = deviance(fit.covariance_above_["h"], fit.covariance_)
    assert here <= best.fun + 1e-6
    np.testing.assert_allclose(fit.mean_, beta, atol=1e-8 + noise)
    np.testing.assert_allclose(fit.mean_covariance_, error, atol=1e-8 + 10 * noise)
    np.testing.assert_allclose(fit.noise_variance_, noise**2 * (noise > 1e-6), rtol=0.5)


def test_variances_of_groups_within_groups_have_errors():
    """The limit's sampling errors are those of rows with little noise."""
    found = [
        eb.from_formula("y2 ~ x + (1 | h / g)", rows(noise)).posterior(level="h").sd[:, 0]
        for noise in (0.0, 1e-3)
    ]
    # it was 5 % larger; rows with noise take the mean as known, which is 0.3 % here
    np.testing.assert_allclose(*found, rtol=1e-2)


def crossed_rows(noise, slopes=0.0):
    rng = np.random.default_rng(6)
    a = np.concatenate([np.arange(10), rng.integers(10, size=80)])
    b = np.concatenate([np.arange(7), rng.integers(7, size=83)])
    x, w = rng.normal(size=90), rng.normal(size=7)[b]
    y = 1 + 2 * x + 0.5 * w + rng.normal(0, 1.5, 10)[a] + rng.normal(0, 0.8, 7)[b]
    y = y + slopes * rng.normal(size=10)[a] * x + noise * rng.normal(size=90)
    return pd.DataFrame({"x": x, "w": w, "a": a, "b": b, "y": y})


def dense(frame, blocks):
    """Likelihood of rows in the span of effects Z, as a function of their covariance D."""
    Z = np.hstack(
        [
            (frame[name].to_numpy()[:, None] == np.arange(m)) * column[:, None]
            for name, m, column in blocks
        ]
    )
    U, sizes, _ = np.linalg.svd(Z, full_matrices=False)
    U = U[:, sizes > 1e-9 * sizes[0]]
    X = np.column_stack([np.ones(len(frame)), frame[["x", "w"]]])
    within = X - U @ (U.T @ X)
    _, size, turn = np.linalg.svd(within)
    free, known = turn[size < 1e-9].T, turn[size >= 1e-9].T
    exact = known @ np.linalg.lstsq(within @ known, frame["y"] - U @ (U.T @ frame["y"]))[0]
    w, W, C = U.T @ (frame["y"] - X @ exact), U.T @ X @ free, U.T @ Z

    def of(D):
        V = C @ D @ C.T
        H = W.T @ np.linalg.solve(V, W)
        c = np.linalg.solve(H, W.T @ np.linalg.solve(V, w))
        left = w - W @ c
        value = np.linalg.slogdet(V)[1] + left @ np.linalg.solve(V, left)
        errors = free @ np.linalg.inv(H) @ free.T
        return value, value + np.linalg.slogdet(H)[1], exact + free @ c, errors

    return of


@pytest.mark.parametrize("method", ["reml", "ml"])
@pytest.mark.parametrize("noise", [0.0, 1e-9, 1e-7, 1e-5])
def test_crossed_intercepts(noise, method):
    """It was a ValueError; before that, an OverflowError."""
    frame, ones = crossed_rows(noise), np.ones(90)
    fit = eb.from_formula("y ~ x + w + (1 | a) + (1 | b)", frame, method=method)
    of = dense(crossed_rows(0.0), [("a", 10, ones), ("b", 7, ones)])

    def deviance(x):
        return of(np.diag(np.repeat(np.square(x), [10, 7])))

    options = {"xatol": 1e-9, "fatol": 1e-12, "maxiter": 5_000}
    k = int(method == "reml")
    best = minimize(lambda x: deviance(x)[k], [1.0, 1.0], method="Nelder-Mead", options=options)
    found = [fit.variances_["a"], fit.variances_["b"]]
    np.testing.assert_allclose(found, best.x**2, rtol=1e-5 + 10 * noise)
    mean, errors = deviance(np.sqrt(found))[2:]
    np.testing.assert_allclose(fit.mean_, mean, atol=1e-8 + noise)
    np.testing.assert_allclose(fit.mean_covariance_, errors, atol=1e-8 + noise)
    np.testing.assert_allclose(fit.predict(frame), frame["y"], atol=1e-12 + 5 * noise)
    effects = [fit.posterior(level=name).mean[:, 0] for name in ("a", "b")]
    known = frame["y"] - fit.mean_[0] - 2 * frame["x"] - fit.mean_[2] * frame["w"]
    np.testing.assert_allclose(
        effects[0][frame["a"]] + effects[1][frame["b"]], known, atol=1e-12 + 5 * noise
    )
    np.testing.assert_allclose(fit.noise_variance_, noise**2 * (noise > 1e-6), rtol=0.5)
    assert any("without noise" in note for note in fit.notes_) == (noise < 1e-6)
    assert "without noise" in str(fit.summary()) or noise > 1e-6
    with pytest.raises(ValueError, match="tests need noise"):
        fit.tests()


@pytest.mark.parametrize("noise", [0.0, 1e-8, 1e-5])
def test_crossed_slopes(noise):
    frame, ones = crossed_rows(noise, 0.5), np.ones(90)
    fit = eb.from_formula("y ~ x + w + (1 + x | a) + (1 | b)", frame)
    clean = crossed_rows(0.0, 0.5)
    of = dense(clean, [("a", 10, ones), ("a", 10, clean["x"].to_numpy()), ("b", 7, ones)])

    def deviance(T, b):
        D = np.zeros((27, 27))
        D[:20, :20], D[20:, 20:] = np.kron(T, np.eye(10)), b * np.eye(7)
        return of(D)

    def at(x):
        root = np.array([[x[0], 0.0], [x[1], x[2]]])
        return deviance(root @ root.T, x[3] ** 2)[1]

    options = {"xatol": 1e-8, "fatol": 1e-10, "maxiter": 20_000, "maxfev": 20_000}
    best = minimize(at, [1.0, 0.1, 1.0, 1.0], method="Nelder-Mead", options=options)
    _, here, mean, errors = deviance(fit.covariances_["a"], fit.variances_["b"])
    assert here <= best.fun + 1e-6
    np.testing.assert_allclose(fit.mean_, mean, atol=1e-8 + noise)
    np.testing.assert_allclose(fit.mean_covariance_, errors, atol=1e-8 + noise)
    # equations beyond 1e4 times the noise lose digits of effects
    np.testing.assert_allclose(fit.predict(frame), frame["y"], atol=2e-6 + 50 * noise)


@pytest.mark.parametrize("noise", [0.0, 1e-5])
def test_a_crossed_factor_without_spread(noise):
    """A slope that no level differs in keeps no more than the noise."""
    fit = eb.from_formula("y ~ x + w + (1 + x | a) + (1 | b)", crossed_rows(noise))
    less = eb.from_formula("y ~ x + w + (1 | a) + (1 | b)", crossed_rows(noise))
    assert fit.covariances_["a"][1, 1] <= 10 * noise**2
    np.testing.assert_allclose(fit.covariances_["a"][0, 0], less.variances_["a"], rtol=1e-4)
    np.testing.assert_allclose(fit.variances_["b"], less.variances_["b"], rtol=1e-4)


def test_a_crossed_limit_survives_a_file(tmp_path):
    fit = eb.from_formula("y ~ x + w + (1 | a) + (1 | b)", crossed_rows(0.0)).estimator_
    fit.save(tmp_path / "fit.json", groups=True)
    again = eb.load_fit(tmp_path / "fit.json")
    assert again.noise_variance_ == 0
    np.testing.assert_allclose(again.posterior("a").mean, fit.posterior("a").mean)
    np.testing.assert_allclose(again.posterior("a").sd, fit.posterior("a").sd)


@pytest.mark.filterwarnings("ignore:the variances did not converge")
def test_too_many_groups_of_one_parent_are_said(monkeypatch):
    monkeypatch.setattr(nested_model, "MOST_EFFECTS", 3)
    match = "one parent has too many of them for the limit"
    with pytest.warns(IdentificationWarning, match=match):
        eb.from_formula("y2 ~ x + (1 | h / g)", rows())


def test_a_coefficient_without_spread_has_none():
    for formula in ("y0 ~ x + (1 + x | g)", "y0 ~ x + (1 + x || g)"):
        fit = eb.from_formula(formula, rows())
        spread = np.var(of_groups(rows(), "y0"), ddof=1)
        np.testing.assert_allclose(np.diag(fit.covariance_), [spread, 0.0], rtol=1e-9)


@pytest.mark.filterwarnings("ignore:the variances did not converge")
def test_what_has_no_digits_is_said():
    frame = rows()
    fit = eb.LinearEB(varying=["intercept"], share="sums")
    with pytest.warns(IdentificationWarning, match="sums over groups have too few digits"):
        fit.fit(frame[["x"]], frame["y0"], groups=frame["g"])
