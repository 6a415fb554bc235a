"""The view of a fit: what it holds, and that reports read nothing else."""

import ast
from dataclasses import FrozenInstanceError
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import ebfed as eb
from ebfed import report
from ebfed.families import Poisson
from ebfed.report import FitView, GroupView, LearnerView, LocationView, RegressionView, view_of
from ebfed.tables.frames import Style

RNG = np.random.default_rng(0)
ROWS = pd.DataFrame({"g": np.repeat(np.arange(20), 5), "x": RNG.normal(size=100)})
ROWS["y"] = RNG.normal(size=20)[ROWS["g"]] + RNG.normal(size=100)
ROWS["hit"] = (ROWS["y"] > 0) * 1
SOME = {"n_rounds": 2, "random_state": 0}

FITS = {
    "means": lambda: eb.GaussianEB().fit(ROWS[["y", "g"]], groups="g"),
    "rates": lambda: eb.BernoulliEB().fit(ROWS[["hit", "g"]], groups="g"),
    "counts": lambda: eb.PoissonEB().fit(ROWS[["hit", "g"]], groups="g"),
    "mixture": lambda: eb.MixtureEB(2, random_state=0).fit(ROWS[["y", "g"]], groups="g"),
    "regression": lambda: eb.LinearEB().fit(ROWS[["x", "y", "g"]], "y", groups="g"),
    "formula": lambda: eb.from_formula("y ~ x + (1 | g)", ROWS),
    "learner": lambda: eb.learning.FedAvg(**SOME).fit(ROWS[["x", "hit", "g"]], "hit", groups="g"),
}
KINDS = {"regression": RegressionView, "formula": RegressionView, "learner": LearnerView}


@pytest.fixture(scope="module", params=FITS)
def fit(request):
    return request.param, FITS[request.param]()


def foreign_private_names(text):
    """Private attributes of anything but `self`, and private names given to `getattr`."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute):
            own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if node.attr.startswith("_") and not node.attr.startswith("__") and not own:
                yield node.attr
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("getattr", "hasattr"):
            name = node.args[1]
            if isinstance(name, ast.Constant) and name.value.startswith("_"):
                yield name.value


def test_private_names_are_found():
    text = "fit._x; self._y; getattr(fit, '_z', 0); fit.__class__; fit.x"
    assert sorted(foreign_private_names(text)) == ["_x", "_z"]


def modules():
    package = Path(eb.__file__).parent
    return [path for part in ("report", "evaluation") for path in (package / part).rglob("*.py")]


@pytest.mark.parametrize("path", modules(), ids=lambda path: path.stem)
def test_reports_read_nothing_private(path):
    assert list(foreign_private_names(path.read_text(encoding="utf-8"))) == []


def test_every_fit_has_a_view(fit):
    name, fitted = fit
    view = view_of(fitted)
    assert isinstance(view, KINDS.get(name, LocationView))
    assert view.title == type(getattr(fitted, "estimator_", fitted)).__name__
    assert view.sizes.tolist() == [5] * 20
    assert view.style.group == "g"
    assert len(view.ledger) == len(fitted.privacy_)
    assert not view.is_server
    assert view_of(view) is view
    with pytest.raises(FrozenInstanceError):
        view.title = "another"


def test_what_is_read_is_what_the_estimator_says(fit):
    _, fitted = fit
    view = view_of(fitted)
    if not isinstance(view, GroupView):
        return
    np.testing.assert_array_equal(view.posterior().mean, fitted.posterior().mean)
    assert view.log_likelihood() == fitted.log_likelihood_
    assert view.n_parameters == fitted.n_parameters_
    assert view.notes == fitted.notes_
    assert view.expected().shape == (20, len(view.terms))
    # a population that is known leaves groups no less certain, on the whole
    known, own = view.posterior_given_population(), view.posterior()
    assert (known.sd**2).mean() <= (own.sd**2).mean() * (1 + 1e-9)


def test_a_formula_is_in_its_view():
    view = view_of(FITS["formula"]())
    assert view.formula == "y ~ x + (1 | g)"
    assert view.response == "y"
    assert view_of(FITS["means"]()).formula is None


def test_components_are_those_of_mixtures():
    fitted = FITS["mixture"]()
    view = view_of(fitted)
    np.testing.assert_array_equal(view.components.means, fitted.means_)
    assert view.refit is None
    assert view_of(FITS["means"]()).components is None


def test_a_fit_is_repeated_with_other_means():
    fitted = FITS["means"]()
    view = view_of(fitted)
    np.testing.assert_allclose(view.refit(view.summary), view.posterior().mean, rtol=1e-12)
    known = view.refit(view.summary, variances=1e-12)
    np.testing.assert_allclose(known, view.summary.mean, rtol=1e-6)


def test_tables_take_fits_and_views(fit):
    _, fitted = fit
    view = view_of(fitted)
    for table in (report.tidy, report.glance):
        first, second = table(fitted), table(view)
        assert first.keys() == second.keys()
        for key, values in first.items():
            np.testing.assert_array_equal(values, second[key])
    assert str(report.summary_table(fitted)) == str(report.summary_table(view))
    assert str(report.summary_table(view)) == str(fitted.summary())


def test_what_is_no_fit_has_no_view():
    for thing in (3, np.zeros(3), ROWS):
        with pytest.raises(TypeError, match="fit must be a fitted estimator or formula"):
            view_of(thing)


def test_views_are_documented():
    """Every field of a view is in the docstring of its class."""
    for kind in (FitView, GroupView, LocationView, RegressionView, LearnerView):
        for name in kind.__annotations__:
            assert name in kind.__doc__, (kind, name)


# --- a family that no estimator is needed for ----------------------------------------------------


def poisson(equal):
    """View of rates of events, whose population is known."""
    rng = np.random.default_rng(0)
    m = 80
    prior = eb.priors.Discrete.known(np.array([[0.5], [2.0]]), np.array([0.4, 0.6]))
    exposure = np.full(m, 4.0) if equal else rng.uniform(1, 9, m)
    rows = rng.poisson(exposure * prior.sample(m, rng)[:, 0])[:, None].astype(float)
    family = Poisson()
    summary = family.summarise(rows, np.arange(m), {"exposure": exposure})
    likelihood = family.likelihood(family.figures(summary))

    def posterior():
        return prior.posterior(likelihood).labelled(summary.ids, {"n": summary.n})

    return LocationView(
        title="Rates",
        style=Style(),
        is_server=False,
        sizes=summary.n,
        columns=["x0"],
        ledger=[],
        notes=[],
        terms=["value"],
        varies=np.ones(1, bool),
        method="known",
        n_parameters=0,
        posterior=posterior,
        posterior_given_population=posterior,
        expected=lambda: np.broadcast_to(prior.mean_, (m, 1)),
        log_likelihood=lambda: float(prior.log_marginal(likelihood).sum()),
        has_density=family.has_density,
        link=family.link,
        family=family,
        prior=prior,
        summary=summary,
        covariates=np.empty((m, 0)),
        covariate_names=([], []),
        noise_variance=None,
        guess=None,
        reports=np.ones(m, bool),
        all_exact=True,
        channels=list,
        weight=lambda: None,
    )


@pytest.mark.parametrize("equal", [True, False])
@pytest.mark.parametrize(
    "plot",
    [
        report.plot_marginal,
        report.plot_calibration,
        report.plot_shrinkage,
        report.plot_arrows,
        report.plot_caterpillar,
    ],
)
def test_a_view_is_enough_for_plots(plot, equal, ax):
    assert plot(poisson(equal), ax=ax) is ax


def test_a_view_is_enough_for_tables():
    view = poisson(equal=True)
    assert report.tidy(view)["estimate"].tolist() == [1.4, pytest.approx(np.sqrt(0.54))]
    assert report.glance(view)["logLik"].item() == view.log_likelihood()
    assert "Rates" in report.summary_table(view)
    assert eb.compare(rates=view)["risk"].notna().all()


def test_expected_rates_are_those_of_the_population(ax):
    """Of equal exposures each bar is a number of events, a mixture of Poisson probabilities."""
    view = poisson(equal=True)
    report.plot_marginal(view, ax=ax)
    (line,) = (each for each in ax.lines if each.get_label() == "own data alone, by the fit")
    rate, density = line.get_data()
    events = np.rint(rate * 4)
    expected = 0.4 * stats.poisson(2).pmf(events) + 0.6 * stats.poisson(8).pmf(events)
    np.testing.assert_allclose(density / 4, expected, rtol=1e-9)


def test_expected_rates_of_unequal_exposures_add_up(ax):
    view = poisson(equal=False)
    report.plot_marginal(view, ax=ax)
    (line,) = (each for each in ax.lines if each.get_label() == "own data alone, by the fit")
    rate, density = line.get_data()
    high = view.summary.mean.max()
    exposure = view.summary.size
    below = np.mean(
        [
            0.4 * stats.poisson(0.5 * e).cdf(high * e) + 0.6 * stats.poisson(2 * e).cdf(high * e)
            for e in exposure
        ]
    )
    assert density.sum() * (rate[1] - rate[0]) == pytest.approx(below, abs=1e-6)
