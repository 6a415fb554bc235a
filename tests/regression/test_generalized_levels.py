"""Counts and classes of groups within groups: lme4's figures, and all effects in one system."""

import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import expit, gammaln

import ebfed as eb
from ebfed.engines import Local
from ebfed.priors import IdentificationWarning
from ebfed.testing.nodes import fit_on_nodes

REFERENCE = Path(__file__).parents[1] / "reference"
LME4 = pd.read_csv(REFERENCE / "lme4_counts.csv", keep_default_na=False)
LME4["std_error"] = pd.to_numeric(LME4["std_error"])
GROUPS = ["nation", "region"]
CASES = {
    "mmmec_levels": (
        "deaths ~ uvb + offset(log(expected)) + (1 | nation/region)",
        "mmmec_nations.csv",
    ),
    "grouseticks_levels": (
        "TICKS ~ C(YEAR) + cHEIGHT + (1 | LOCATION/BROOD)",
        "grouseticks.csv",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_laplace_of_glmer(name):
    """The optimum of the same approximation: to what the two searches leave, 1e-4 of an error."""
    formula, data = CASES[name]
    fit = eb.from_formula(formula, pd.read_csv(REFERENCE / data), family="poisson")
    figures = LME4[LME4["case"] == name]
    fixed = figures[(figures["group"] == "") & (figures["term"] != "logLik")]
    tidy = fit.tidy("fixed")
    away = (tidy["estimate"].to_numpy() - fixed["estimate"]) / fixed["std_error"]
    assert np.abs(away).max() < 1e-4
    np.testing.assert_allclose(tidy["std.error"], fixed["std_error"], rtol=1e-3)
    spreads = figures[figures["group"] != ""]["estimate"].to_numpy()[::-1]  # lme4: inner first
    np.testing.assert_allclose(fit.tidy("ran_pars")["estimate"], spreads, rtol=1e-4)
    likelihood = figures[figures["term"] == "logLik"]["estimate"].item()
    # glmer() stops some 3e-6 below the maximum
    assert fit.log_likelihood_ == pytest.approx(likelihood, abs=1e-5)


def draw(m=8, seed=0, each=5):
    """Counts and classes of regions of m nations, of which some have one region or row."""
    rng = np.random.default_rng(seed)
    nation = np.repeat(np.arange(m), rng.integers(1, 6, m))
    region = np.repeat(np.arange(len(nation)), rng.integers(1, 2 * each, len(nation)))
    x = rng.normal(0.5, 1, len(region))
    spread = rng.normal(size=(m, 2)) * [0.7, 0.3]
    theta = spread[nation] + rng.normal(size=(len(nation), 2)) * [0.5, 0.4] + [0.4, 0.3]
    z = theta[region, 0] + theta[region, 1] * x
    table = {
        "nation": nation[region],
        "region": region,
        "x": x,
        "trials": rng.integers(1, 6, len(x)),
    }
    table |= {"y": rng.poisson(np.exp(z)), "won": rng.binomial(table["trials"], expit(z))}
    return pd.DataFrame(table)


VARYING = {
    "intercepts": ["intercept"],
    "slopes": {"nation": ["intercept"], "region": ["intercept", "x"]},
    "slopes of nations": {"nation": ["intercept", "x"], "region": ["intercept"]},
}


class Whole:
    """Laplace's approximation of all effects together, by dense matrices."""

    def __init__(self, rows, fit):
        self.rows, self.fit, self.X = rows, fit, np.column_stack([np.ones(len(rows)), rows["x"]])
        places = fit._columns().places_of_levels()
        self.blocks = []  # rows of each group, and its level
        for level, names in enumerate((["nation"], GROUPS)):
            for _, own in rows.groupby(names):
                self.blocks.append((own.index, level, places[level]))
        self.ends = np.cumsum([0, *(len(places) for *_, places in self.blocks)])

    def design(self, roots):
        Z = np.zeros((len(self.rows), self.ends[-1]))
        for (index, level, places), first in zip(self.blocks, self.ends, strict=False):
            Z[index, first : first + len(places)] = self.X[np.ix_(index, places)] @ roots[level]
        return Z

    def rows_at(self, z):
        """Log-likelihood of rows, its slope, and minus its second derivative."""
        if self.fit.family == "poisson":
            y = self.rows["y"].to_numpy()
            return y * z - np.exp(z) - gammaln(y + 1), y - np.exp(z), np.exp(z)
        n, y = self.rows["trials"].to_numpy(), self.rows["won"].to_numpy()
        ways = gammaln(n + 1) - gammaln(y + 1) - gammaln(n - y + 1)
        return (
            ways + y * z - n * np.logaddexp(0, z),
            y - n * expit(z),
            n * expit(z) * expit(-z),
        )

    def mode(self, mean, roots):
        Z, fixed = self.design(roots), self.X @ mean
        found = minimize(
            lambda e: 0.5 * e @ e - self.rows_at(fixed + Z @ e)[0].sum(),
            np.zeros(Z.shape[1]),
            jac=lambda e: e - Z.T @ self.rows_at(fixed + Z @ e)[1],
            hess=lambda e: np.eye(len(e)) + Z.T @ (self.rows_at(fixed + Z @ e)[2][:, None] * Z),
            method="trust-exact",
            options={"gtol": 1e-10},
        )
        e = found.x
        W = self.rows_at(fixed + Z @ e)[2]
        return e, np.eye(len(e)) + Z.T @ (W[:, None] * Z), Z, W, -found.fun

    def value(self, mean, roots):
        _, H, *_, height = self.mode(mean, roots)
        return height - np.linalg.slogdet(H)[1] / 2


def roots_of(fit):
    places = fit._columns().places_of_levels()
    found = [*fit.covariance_above_.values(), fit.covariance_]
    return [np.linalg.cholesky(G[np.ix_(j, j)]) for G, j in zip(found, places, strict=True)]


@pytest.fixture(scope="module", params=[("poisson", "full"), ("binomial", "diag")], ids=str)
def fitted(request):
    family, covariance = request.param
    rows = draw(20, seed=3)
    fit = eb.GeneralizedEB(family, covariance, varying=VARYING["slopes"])
    columns = {"poisson": ["y"], "binomial": ["won", "trials"]}[family]
    given = {"trials": "trials"} if family == "binomial" else {}
    fit.fit(rows[["nation", "region", "x", *columns]], columns[0], groups=GROUPS, **given)
    return rows, fit


def test_the_fit_is_the_maximum_of_all_effects_together(fitted):
    """No step in a parameter raises the likelihood; a fit elsewhere fails by its slope."""
    rows, fit = fitted
    whole, roots = Whole(rows, fit), roots_of(fit)
    best = whole.value(fit.mean_, roots)
    assert fit.log_likelihood_ == pytest.approx(best, abs=1e-7)
    errors = np.sqrt(np.diag(fit.mean_covariance_))
    for j, error in enumerate(errors):
        steps = 0.005 * error * np.eye(2)[j]
        ends = [whole.value(fit.mean_ + move, roots) for move in (steps, -steps)]
        assert abs(ends[0] - ends[1]) < 2e-5, "a slope of a 500th of a standard error"
    for level, root in enumerate(roots):
        for entry in zip(*np.tril_indices(len(root)), strict=True):
            if fit.covariance == "diag" and entry[0] != entry[1]:
                continue
            ends = []
            for step in (0.002, -0.002):
                moved = [each.copy() for each in roots]
                moved[level][entry] += step
                ends.append(whole.value(fit.mean_, moved))
            assert abs(ends[0] - ends[1]) < 1e-5, "a slope of .0025, where it bends by 20 or more"
            assert max(ends) < best


def test_posteriors_are_those_of_all_effects_together(fitted):
    """Mean and covariance of nations and regions, what not knowing the mean adds included."""
    rows, fit = fitted
    whole, roots = Whole(rows, fit), roots_of(fit)
    e, H, Z, W, _ = whole.mode(fit.mean_, roots)
    moved = -np.linalg.solve(H, Z.T @ (W[:, None] * whole.X))
    maps = {}
    for (index, level, places), first in zip(whole.blocks, whole.ends, strict=False):
        T = np.zeros((2, len(e)))
        T[places, first : first + len(places)] = roots[level]
        nation, region = rows.loc[index[0], GROUPS]
        if level:
            maps[nation, region] = maps[nation,] + T
        else:
            maps[(nation,)] = T
    found = fit._population().posteriors(fit.clients_, doubt=False)
    for (posterior, own), depth in zip(found, (1, 2), strict=True):
        for j, label in enumerate(own.ids):
            T = maps[(label,) if depth == 1 else label]
            away = np.eye(2) + T @ moved
            covariance = T @ np.linalg.solve(H, T.T) + away @ fit.mean_covariance_ @ away.T
            np.testing.assert_allclose(posterior.mean[j], fit.mean_ + T @ e, atol=1e-6)
            np.testing.assert_allclose(posterior.covariance[j], covariance, atol=1e-6)


def test_groups_that_are_asked_for_know_their_relatives(fitted):
    rows, fit = fitted
    whole, nations = fit.posterior(), fit.posterior(level="nation")
    one = fit.posterior(groups=[whole.ids[3]])
    np.testing.assert_allclose(one.mean[0], whole.mean[3], atol=1e-9)
    np.testing.assert_allclose(one.sd[0], whole.sd[3], atol=1e-9)
    nation = whole.ids[3][0]
    place = nations.ids.tolist().index(nation)
    with pytest.warns(eb.UnseenGroupWarning):
        new = fit.posterior(groups=[(nation, 9999), (9999, 1)])
    np.testing.assert_allclose(new.mean[0], nations.mean[place], atol=1e-9)
    np.testing.assert_allclose(new.mean[1], fit.mean_, atol=1e-9)
    assert new.sd[0, 0] < new.sd[1, 0], "the intercept of its nation is known"
    given = rows[rows["nation"] == nation].drop(columns=["y"])
    if fit.family == "poisson":
        given = rows[rows["nation"] == nation][[*GROUPS, "x", "y"]]
        again = fit.posterior(given)
        mine = [j for j, label in enumerate(whole.ids) if label[0] == nation]
        np.testing.assert_allclose(again.mean, whole.mean[mine], atol=1e-9)


def test_effects_and_predictions(fitted):
    rows, fit = fitted
    assert fit.ranef().columns.tolist() == [*GROUPS, "intercept", "x"]
    assert fit.ranef("nation").columns.tolist() == ["nation", "intercept"]
    assert fit.tidy("ran_pars")["group"].tolist()[:2] == ["nation", "region"]
    joined = fit.coef().merge(fit.ranef("nation"), on="nation", suffixes=("", "_nation"))
    joined = joined.merge(fit.ranef(), on=GROUPS, suffixes=("", "_region"))
    sums = fit.mean_[0] + joined["intercept_nation"] + joined["intercept_region"]
    np.testing.assert_allclose(sums, joined["intercept"])
    features = rows[[*GROUPS, "x"]]
    lower, upper = fit.predict_interval(features, kind="mean")
    predicted = fit.predict(features)
    assert np.all((lower < predicted) & (predicted < upper))
    fresh = fit.predict(features.assign(nation=999, region=999))
    np.testing.assert_allclose(fresh, fit.predict(features[["x"]]))
    assert "nation" in str(fit.summary())
    with pytest.raises(ValueError, match="level must be one of 'nation', 'region'"):
        fit.posterior(level="county")


def test_draws_have_the_moments_of_the_posterior(fitted):
    """Of 4,000 draws: five standard errors of a mean; regions of a nation move together."""
    _, fit = fitted
    posterior = fit.posterior()
    draws = posterior.sample(4000, random_state=0)
    np.testing.assert_allclose(draws.mean(axis=0), posterior.mean, atol=5 * posterior.sd.max() / 63)
    np.testing.assert_allclose(draws.std(axis=0), posterior.sd, rtol=0.1)
    nation = np.array([label[0] for label in posterior.ids])
    first, second = np.flatnonzero(nation == nation[2])[:2]
    other = np.flatnonzero(nation != nation[2])[0]
    together = np.corrcoef(draws[:, [first, second, other], 0].T)
    assert together[0, 1] > together[0, 2] + 0.02


def test_files_pickles_and_blocks(fitted, tmp_path):
    rows, fit = fitted
    features = rows[[*GROUPS, "x"]]
    for groups in (True, False):
        fit.save(tmp_path / "fit.json", groups=groups)
        loaded = eb.load_fit(tmp_path / "fit.json")
        for name, covariance in fit.covariance_above_.items():
            np.testing.assert_array_equal(loaded.covariance_above_[name], covariance)
        asked = features if groups else features[["x"]]
        np.testing.assert_allclose(loaded.predict(asked), fit.predict(asked))
    again = pickle.loads(pickle.dumps(fit))
    np.testing.assert_array_equal(again.predict(features), fit.predict(features))


def test_nations_are_not_cut():
    """Blocks and nodes have all regions of a nation; sums over them give the same fit."""
    rows = draw(12)[[*GROUPS, "x", "y"]]
    make = {"varying": ["intercept"]}
    whole = eb.GeneralizedEB("poisson", **make).fit(rows, "y", groups=GROUPS)
    blocks = eb.GeneralizedEB("poisson", **make, engine=Local(5))
    blocks.fit(rows, "y", groups=GROUPS)
    sums = eb.GeneralizedEB("poisson", **make, share="sums").fit(rows, "y", groups=GROUPS)
    parts = [rows[rows["nation"] < 5], rows[rows["nation"] >= 5]]
    given = [{"X": part, "y": "y", "groups": GROUPS} for part in parts]
    nodes, *_ = fit_on_nodes(eb.GeneralizedEB("poisson", **make), given)
    for other in (blocks, sums, *nodes):
        assert other.log_likelihood_ == pytest.approx(whole.log_likelihood_, abs=1e-8)
        np.testing.assert_allclose(other.mean_, whole.mean_, atol=1e-6)
        np.testing.assert_allclose(
            other.covariance_above_["nation"], whole.covariance_above_["nation"], atol=1e-6
        )
    means = np.concatenate([node.posterior().mean for node in nodes])
    np.testing.assert_allclose(means, whole.posterior().mean, atol=1e-6)
    half = rows["region"] % 2 == 0
    given = [{"X": part, "y": "y", "groups": GROUPS} for part in (rows[half], rows[~half])]
    with pytest.raises(ValueError, match="all groups of a nation must be with one node"):
        fit_on_nodes(eb.GeneralizedEB("poisson", **make), given)


def test_three_levels_and_effects_of_single_rows():
    """A parent for each two nations; and an effect of each count, whose noise is known."""
    rows = draw(12, seed=1).assign(continent=lambda t: t["nation"] // 2)
    three = eb.from_formula("y ~ x + (1 | continent/nation/region)", rows, family="poisson")
    assert three.tidy("ran_pars")["group"].tolist() == ["continent", "nation", "region"]
    two = eb.from_formula("y ~ x + (1 | nation/region)", rows, family="poisson")
    assert three.log_likelihood_ > two.log_likelihood_ - 1e-6
    rng = np.random.default_rng(2)
    nation = np.repeat(np.arange(60), 20)
    z = 1 + rng.normal(0, 0.5, 60)[nation] + rng.normal(0, 0.7, 1200)
    counts = pd.DataFrame({"nation": nation, "row": np.arange(1200), "y": rng.poisson(np.exp(z))})
    text = "y ~ 1 + (1 | nation/row)"
    fit = eb.from_formula(text, counts, family="poisson", prior="log-normal")
    spreads = fit.tidy("ran_pars")["estimate"].to_numpy()
    # errors of some .05 and .03; four of them, a false alarm in 8,000
    assert abs(spreads[0] - 0.5) < 0.2
    assert abs(spreads[1] - 0.7) < 0.12


def test_binomial_formulas_have_levels():
    rows = draw(15, seed=5)
    fit = eb.from_formula("cbind(won, trials - won) ~ x + (1 | nation/region)", rows)
    direct = eb.GeneralizedEB("binomial", varying=["intercept"])
    direct.fit(rows[[*GROUPS, "x", "won", "trials"]], "won", groups=GROUPS, trials="trials")
    assert fit.log_likelihood_ == pytest.approx(direct.log_likelihood_, abs=1e-8)
    once = rows.assign(won=(rows["won"] > 0).astype(int))
    one, other = (
        eb.from_formula("won ~ x + (1 | nation/region)", once, est)
        for est in (eb.LogisticEB(), eb.GeneralizedEB("binomial"))
    )
    assert one.log_likelihood_ == other.log_likelihood_
    for level in ("nation", "region"):
        np.testing.assert_array_equal(
            one.ranef(level=level)["intercept"], other.ranef(level=level)["intercept"]
        )


def test_what_numbers_of_groups_do_not_identify():
    rows = draw(12)[[*GROUPS, "x", "y"]]
    est = eb.GeneralizedEB("gamma", varying=["intercept"])
    alone = rows.assign(region=np.arange(len(rows)), y=rows["y"] + 0.5)
    with pytest.warns(IdentificationWarning, match="No group of level 'region' has two rows"):
        est.fit(alone, "y", groups=GROUPS)
    assert not est.covariance_.any()
    est = eb.GeneralizedEB("poisson", varying=["intercept"])
    with pytest.warns(IdentificationWarning, match="'nation' has one group with rows"):
        est.fit(rows.assign(nation=0), "y", groups=GROUPS)
    assert not est.covariance_above_["nation"].any()
    # the regions alone, by the same approximation
    assert est.covariance_[0, 0] > 0
