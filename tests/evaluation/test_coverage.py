"""The study of coverage: what it measures, and the coverage that intervals are to have."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from ebfed.evaluation import coverage
from ebfed.evaluation.coverage.page import Oracle
from ebfed.evaluation.coverage.settings import NONPARAMETRIC, SETTINGS, list_cells, list_parts

REFERENCE = Path(__file__).parents[1] / "reference"
POPULATIONS = [
    pytest.param(population, id=f"{likelihood}-{spread}-{name}")
    for likelihood, setting in SETTINGS.items()
    for spread, populations in setting.populations.items()
    for name, population in populations.items()
]


@pytest.mark.parametrize("population", POPULATIONS)
def test_nodes_have_the_moments_of_the_draws(population):
    """False alarms: 2 in 10,000 for all populations, by normal approximation."""
    nodes, masses = population.nodes()
    assert masses.sum() == pytest.approx(1)
    drawn = population.draw(100_000, np.random.default_rng(0))
    for figure in (lambda x: x, np.abs, lambda x: x > 0.3, lambda x: x > 2):
        values = figure(drawn) * 1.0
        error = values.std() / np.sqrt(len(drawn))
        assert masses @ figure(nodes) == pytest.approx(values.mean(), abs=5 * error + 1e-3)


@pytest.mark.parametrize("spread", [0.3, 2.0])
def test_gaussian_populations_have_one_mean_and_spread(spread):
    for name, population in (
        SETTINGS["gaussian"].populations[{0.3: "small", 2.0: "large"}[spread]].items()
    ):
        nodes, masses = population.nodes()
        assert masses @ nodes == pytest.approx(0, abs=1e-6 * spread), name
        assert masses @ nodes**2 == pytest.approx(spread**2, rel=1e-3), name


def test_oracle_of_a_normal_population():
    """Posterior ``N(x/2, 1/2)`` of a standard normal population and standard errors of one."""
    nodes, masses = coverage.TruePopulation((1.0, norm.ppf)).nodes()
    x = np.array([-1.0, 0.0, 3.0])
    oracle = Oracle(nodes, masses * norm.pdf(x[:, None], nodes))
    lower, upper = x / 2 - 1.0, x / 2 + 0.5
    exact = norm.cdf(0.5 * np.sqrt(2)) - norm.cdf(-np.sqrt(2))
    assert oracle.coverage(lower, upper) == pytest.approx(np.full(3, exact), abs=0.002)
    assert oracle.width() == pytest.approx(2 * norm.ppf(0.975) / np.sqrt(2), abs=0.01)


@pytest.mark.parametrize("likelihood", SETTINGS)
def test_the_oracle_reads_what_was_drawn(likelihood):
    """Its own intervals hold 95 % of 2,000 parameters, up to 3.5 standard errors."""
    setting, rng = SETTINGS[likelihood], np.random.default_rng(4)
    truth = setting.populations["large"][setting.family]
    theta = truth.draw(2000, rng)
    sizes = truth.sizes(theta, setting.rows["unequal"], False, rng)
    summary, family = setting.draw(theta, sizes, rng), setting.estimator
    if setting.likelihood is None:
        family = family.protocol().family
        read = family.likelihood(family.figures(family.converted(summary)))
    else:
        read = setting.likelihood(summary)
    nodes, masses = truth.nodes()
    logs = read.logpdf(nodes[:, None])
    below = np.cumsum(
        Oracle(nodes, masses * np.exp(logs - logs.max(axis=1, keepdims=True))).masses, 1
    )
    rank = below[np.arange(2000), np.searchsorted(nodes, theta).clip(max=len(nodes) - 1)]
    held = ((rank > 0.025) & (rank < 0.975)).mean()
    assert held == pytest.approx(0.95, abs=3.5 * np.sqrt(0.95 * 0.05 / 2000))


@pytest.mark.parametrize(
    ("likelihood", "prior"),
    [
        ("variance", "inverse_gamma"),
        ("duration", "gamma"),
        ("negative_binomial", "gamma"),
        ("categorical", "dirichlet"),
        ("student_t", "normal"),
    ],
)
def test_every_kind_of_rows(likelihood, prior):
    """The sd of the mean coverage of so few fits is about .01."""
    chosen = {"spread": ("large",), "channel": ("exact",), "n": ("equal",), "m": (40,)}
    population = (SETTINGS[likelihood].family,)
    study = coverage.run(
        8, likelihood=(likelihood,), population=population, priors=(prior,), n_jobs=1, **chosen
    )
    (row,) = study.table.itertuples()
    assert row.inside
    assert 0.9 < row.coverage < 0.985
    assert 0.85 < row.relative_width < 1.2
    assert row.zero_width == 0
    assert 0.85 < row.new_coverage <= 1
    assert np.isnan(row.mean_coverage) == (likelihood == "student_t")


def test_the_record_has_every_cell():
    """No parametric prior is below .93 inside its family by more than four standard errors."""
    record = pd.read_csv(REFERENCE / "coverage_table.csv")
    place = ["likelihood", "channel", "population", "spread", "n", "m"]
    cells = list_cells(False, m=(6, 15, 40, 200))
    expected = {
        (*(cell[name] for name in place), prior) for cell in cells for prior in cell["priors"]
    }
    assert set(record[[*place, "prior"]].itertuples(index=False, name=None)) == expected
    assert record["width"].notna().all()
    some = record[record["inside"] & ~record["prior"].isin(NONPARAMETRIC)]
    assert (some["coverage"] + 4 * some["coverage_se"]).min() > 0.93
    # the bootstrap finds no spread in some fits
    points = record[record["prior"] != "npmle_bootstrap"]
    assert points["zero_width"].max() == 0
    assert coverage.CoverageStudy(record, pd.DataFrame(), reps=16, seed=0).to_text()


def test_variances_of_few_groups():
    """Under a prior of spreads that is not flat, they held .905; the standard error is .006."""
    chosen = {"likelihood": ("variance",), "population": ("inverse_gamma",), "spread": ("large",)}
    chosen |= {"channel": ("exact",), "n": ("equal",), "m": (6,)}
    (row,) = coverage.run(40, priors=("inverse_gamma",), n_jobs=1, **chosen).table.itertuples()
    assert 0.925 < row.coverage < 0.985
    assert 0.925 < row.new_coverage < 0.995


def test_an_interval_of_one_point_holds_a_spike_there():
    oracle = Oracle(np.array([0.0, 0.5]), np.array([[3.0, 1.0], [1.0, 3.0]]))
    point = np.array([0.5, 0.5])
    assert oracle.coverage(point, point).tolist() == [0.25, 0.75]
    assert oracle.width() == 0.5


def test_larger_parameters_have_more_rows_if_rows_are_informative():
    population = SETTINGS["gaussian"].populations["large"]["spikes"]
    rng = np.random.default_rng(0)
    theta = population.draw(4000, rng)
    means = {}
    for n in ("unequal", "informative"):
        sizes = population.sizes(theta, (1, 16), n == "informative", rng)
        assert set(sizes) == {1, 16}
        means[n] = [sizes[theta == spike].mean() for spike in np.unique(theta)]
    assert means["unequal"] == pytest.approx([8.5, 8.5], abs=0.8)
    # mid-ranks of spikes of 80 and 20 % are .4 and .9
    assert means["informative"] == pytest.approx([1 + 15 * 0.4, 1 + 15 * 0.9], abs=0.8)


def test_cells():
    cells = list_cells(False)
    assert {cell["m"] for cell in cells} == {6, 15, 40, 200, 2000}
    tried = {(cell["likelihood"], prior) for cell in cells for prior in cell["priors"]}
    assert tried == {(name, prior) for name, x in SETTINGS.items() for prior in x.priors}
    some = list_cells(False, likelihood=("poisson",), m=(6, 15), priors=("gamma",))
    assert {(cell["likelihood"], cell["priors"]) for cell in some} == {("poisson", ("gamma",))}
    parts = list_parts(some, 40)
    assert [len(part) for part, _ in parts] == [len(some) // 2] * 2
    assert [fits for _, fits in parts] == [40, 24]
    with pytest.raises(ValueError, match=r"no cell has populations=\('normal',\)"):
        list_cells(False, populations=("normal",))


@pytest.fixture(scope="module")
def study():
    return coverage.run(2, 3, quick=True)


def test_table(study):
    table = study.table
    assert (table["fits"] == 2).all()
    assert table["coverage"].between(0.5, 1).all()
    assert table.loc[table["prior"] == "npmle", "inside"].all()
    row = table[(table["population"] == "beta") & (table["prior"] == "beta")].iloc[0]
    runs = study.runs[(study.runs["population"] == "beta") & (study.runs["prior"] == "beta")]
    assert row["coverage"] == pytest.approx(runs["coverage"].mean())
    assert row["coverage_se"] == pytest.approx(runs["coverage"].std() / np.sqrt(2))
    assert row["relative_width"] == pytest.approx(runs["width"].sum() / runs["oracle_width"].sum())
    assert row["robust_width"] >= row["width"]


def test_violations(study):
    table = study.table
    first = table.index[(table["prior"] == "normal") & table["inside"]][0]
    shapeless = table.index[table["prior"] == "npmle"][0]
    table = table.assign(coverage=0.95, coverage_se=0.01, zero_width=0.0)

    def marked(**changes):
        changed = table.copy()
        for name, (row, value) in changes.items():
            changed.loc[row, name] = value
        return coverage.CoverageStudy(changed, study.runs, 2, 3)

    assert marked().violations().empty
    for value in (0.92, 0.99):
        found = marked(coverage=(first, value))
        assert found.violations().index.tolist() == [first]
        assert found.violations(errors=2).empty
        assert f"{100 * value:.1f}!" in found.to_text()
    assert marked(coverage=(shapeless, 0.89)).violations().empty  # of 6 groups
    assert len(marked(coverage=(shapeless, 0.89), m=(shapeless, 40)).violations()) == 1
    assert len(marked(zero_width=(shapeless, 0.5)).violations(errors=9)) == 1


def test_normal_population():
    """The sd of the mean coverage is below .004: false alarms below 1 in 1,000."""
    chosen = {"likelihood": ("gaussian",), "channel": ("exact",)}
    chosen |= {"population": ("normal",), "n": ("equal",), "m": (200,)}
    table = coverage.run(30, priors=("normal",), n_jobs=1, **chosen).table
    assert table["coverage"].between(0.93, 0.985).all()
    assert (table["zero_width"] == 0).all()
    assert (table["relative_width"] > 0.95).all()


@pytest.fixture(scope="module")
def whole():
    return coverage.run(20, channel=("exact",), n=("equal",), m=(6, 15, 40, 200))


@pytest.mark.slow
def test_intervals_cover_inside_the_family(whole):
    """A cell fails if it is beyond its limits by 4 standard errors, from 5 to 20 fits.

    With t distributions of 4 degrees of freedom or more, false alarms are below 1 in 100 for each
    cell that lies at a limit, and rarer for others.
    """
    violations = whole.violations(errors=4)
    assert violations.empty, violations.to_string()


@pytest.mark.slow
def test_robust_intervals_cover_outside_the_family(whole):
    """From 15 groups on, whatever the shape; on average over cells, of which some are below."""
    outside = whole.table[~whole.table["inside"] & (whole.table["m"] >= 15)]
    assert outside["robust_coverage"].mean() >= 0.95
