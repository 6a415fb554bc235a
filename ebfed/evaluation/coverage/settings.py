"""Settings of the study of coverage: populations, priors, rows, channels and cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, gammainccinv, gammaincinv, ndtr, ndtri, stdtrit
from sklearn.base import BaseEstimator

from ebfed.channels import (
    Gaussian,
    Guess,
    Hybrid,
    Laplace,
    OneBit,
    RandomizedResponse,
    TwoBit,
    UnaryEncoding,
)
from ebfed.evaluation.study import Cell
from ebfed.families import NegativeBinomial
from ebfed.likelihoods import Binomial, Likelihood, StudentT
from ebfed.location import (
    BernoulliEB,
    CategoricalEB,
    DurationEB,
    GaussianEB,
    NegativeBinomialEB,
    PoissonEB,
    VarianceEB,
    posterior_from,
)
from ebfed.priors import Discrete, GaussianMixture, LocationScale, Posterior
from ebfed.tables.clients import Summary

__all__ = [
    "CHANNELS",
    "EQUAL",
    "EXACT",
    "INFORMATIVE",
    "MODELLED",
    "NONPARAMETRIC",
    "ROW_VARIANCE",
    "SETTINGS",
    "Setting",
    "TruePopulation",
    "draw_means",
    "known_dispersion",
    "list_cells",
    "list_parts",
    "student_t",
]

# Variance of a row, so that an average number of rows has a standard error near 1.
ROW_VARIANCE = 4.0
# Time at which durations are censored.
LONGEST = 1.0
DISPERSION = 0.5
# Parameters of the categories but the first, of a Dirichlet population.
OTHERS = (3.0, 2.0)


def draw_means(theta: NDArray, sizes: NDArray, rng: np.random.Generator) -> Summary:
    """Draw means of normal rows of a known variance."""
    errors = np.sqrt(ROW_VARIANCE / sizes) * rng.standard_normal(len(theta))
    return _with_means(theta + errors, sizes)


def draw_rates(theta: NDArray, sizes: NDArray, rng: np.random.Generator) -> Summary:
    """Draw numbers of successes."""
    return Summary.from_counts(rng.binomial(sizes, theta), sizes)


def draw_events(theta: NDArray, sizes: NDArray, rng: np.random.Generator) -> Summary:
    """Draw numbers of events in rows of exposure 1."""
    return _with_means(rng.poisson(sizes * theta) / sizes, sizes)


def draw_scatters(theta: NDArray, sizes: NDArray, rng: np.random.Generator) -> Summary:
    """Draw sums of squares of normal rows of variance ``exp(theta)``."""
    scatter = np.exp(theta) * rng.chisquare(sizes - 1)
    return Summary(np.arange(len(theta)), sizes, np.zeros((len(theta), 1)), scatter[:, None])


def draw_durations(theta: NDArray, sizes: NDArray, rng: np.random.Generator) -> Summary:
    """Draw exponential durations, of which the longest are censored."""
    owner = np.repeat(np.arange(len(theta)), sizes)
    lengths = rng.exponential(1 / theta[owner])
    events = np.bincount(owner, lengths < LONGEST, len(theta))
    time = np.bincount(owner, np.minimum(lengths, LONGEST), len(theta)).astype(float)
    rate, nothing = (events / time)[:, None], np.zeros((len(theta), 1))
    return Summary(np.arange(len(theta)), sizes, rate, nothing, weight=time)


def draw_answers(theta: NDArray, sizes: NDArray, rng: np.random.Generator) -> Summary:
    """Draw answers of three categories; theta is the share of the first."""
    others = (1 - theta[:, None]) * rng.dirichlet(OTHERS, len(theta))
    counts = rng.multinomial(sizes, np.column_stack([theta, others]))
    shares = counts / sizes[:, None]
    return Summary(np.arange(len(theta)), sizes, shares, sizes[:, None] * shares * (1 - shares))


def draw_scattered_events(theta: NDArray, sizes: NDArray, rng: np.random.Generator) -> Summary:
    """Draw negative binomial counts, row by row."""
    owner = np.repeat(np.arange(len(theta)), sizes)
    rate = theta[owner] * rng.gamma(1 / DISPERSION, DISPERSION, len(owner))
    return NegativeBinomial().summarise(rng.poisson(rate).astype(float)[:, None], owner)


def draw_estimates(theta: NDArray, sizes: NDArray, rng: np.random.Generator) -> Summary:
    """Draw estimates whose errors over their standard errors have t distributions."""
    scale = np.sqrt(ROW_VARIANCE / sizes)
    mean = theta + scale * rng.standard_t(sizes - 1)
    scatter = scale**2 * sizes * (sizes - 1)
    return Summary(np.arange(len(theta)), sizes, mean[:, None], scatter[:, None])


def _with_means(mean: NDArray, sizes: NDArray) -> Summary:
    return Summary(np.arange(len(mean)), sizes, mean[:, None], np.zeros((len(mean), 1)))


def one_category(summary: Summary) -> Likelihood:
    """Likelihood of the share of the first category: others say nothing of it."""
    counts = np.rint(summary.mean[:, :1] * summary.n[:, None]).astype(np.int64)
    return Binomial(counts, summary.n)


def known_dispersion(summary: Summary) -> Likelihood:
    """Likelihood of rates, where the dispersion is known."""
    family = NegativeBinomial(DISPERSION)
    return family.likelihood(family.figures(summary))


def student_t(summary: Summary) -> StudentT:
    """Likelihood of means with standard errors from the scatter of their rows."""
    degrees = (summary.n - 1).astype(float)
    return StudentT(summary.mean, summary.scatter / (summary.n * degrees)[:, None], degrees)


class EstimatesEB(BaseEstimator):
    """`posterior_from`, with a standard error and degrees of freedom from each group's rows.

    Parameters
    ----------
    prior : str or Prior
    channel, random_state : ignored
    """

    def __init__(self, prior: Any = "normal", *, channel: Any = None, random_state: Any = None):
        self.prior = prior
        self.channel = channel
        self.random_state = random_state

    def fit(self, summary: Summary) -> Self:
        """Fit the population to the means of groups."""
        self.groups_, self._messages = summary.ids, student_t(summary)
        errors = np.sqrt(self._messages.variances[:, 0])
        degrees = self._messages.degrees
        self.prior_ = posterior_from(summary.mean[:, 0], errors, self.prior, df=degrees).prior
        return self

    def posterior(self, groups: NDArray) -> Posterior:
        """Posterior of some groups, of which those that were not in the fit have no data."""
        known, at = groups < len(self.groups_), np.minimum(groups, len(self.groups_) - 1)
        given = self._messages
        variances = np.where(known[:, None], given.variances[at], np.inf)
        return self.prior_.posterior(StudentT(given.values[at], variances, given.degrees[at]))

    def confint(self, level: float) -> list[Any]:
        """Return no intervals: `posterior_from` has none of the population's mean."""
        return []


GROUPS = (6, 15, 40, 200, 2000)
# Share of the study's fits, by number of groups.
EFFORT = {6: 1.0, 15: 0.6, 40: 0.4, 200: 0.25, 2000: 0.2}
EQUAL, UNEQUAL, INFORMATIVE = "equal", "unequal", "informative"
SHAPELESS = ("log_spline", "npmle")
# Scale mixtures of normals are every symmetric shape with one peak that has heavier tails.
NONPARAMETRIC = ("scale_mixture", *SHAPELESS, "npmle_bootstrap", "npmle, modelled")
# The NPMLE has intervals of two kinds.
BOOTSTRAP = {"npmle_bootstrap": Discrete("npmle", uncertainty="bootstrap")}
# Populations whose location and spread depend on the logarithm of the number of rows.
MODELLED = {
    "normal, modelled": LocationScale(),
    "npmle, modelled": LocationScale(Discrete("npmle")),
}
# Populations to which all priors are fitted.
FOR_ALL = ("normal", "bimodal", "t(3)", "skewed", "spikes")
EXACT = "exact"
DELTA = 1e-6
QUICK: dict[str, Sequence[Any]] = {
    "channel": (EXACT, "OneBit(4)"),
    "population": ("normal", "beta", "gamma", "skewed"),
    "spread": ("large",),
    "n": (EQUAL,),
    "m": (6,),
    "priors": ("normal", "beta", "gamma", "npmle"),
}

Quantile = Callable[[NDArray], NDArray]


@dataclass(frozen=True)
class TruePopulation:
    """Population that parameters are drawn from: a mixture.

    Parameters
    ----------
    *parts : (float, callable or float)
        Weight and quantile function of each part; a number is a spike.

    Examples
    --------
    >>> spike_and_slab = TruePopulation((0.5, 0.0), (0.5, ndtri))
    >>> nodes, masses = spike_and_slab.nodes()
    >>> round(float(masses @ nodes**2), 6)
    0.5
    """

    parts: tuple[tuple[float, Quantile | float], ...]

    def __init__(self, *parts: tuple[float, Quantile | float]):
        object.__setattr__(self, "parts", parts)

    def draw(self, size: int, rng: np.random.Generator) -> NDArray:
        """Draw parameters, shape (size,)."""
        below = np.cumsum([weight for weight, _ in self.parts])
        which, rank = np.searchsorted(below[:-1], rng.random(size), side="right"), rng.random(size)
        theta = np.empty(size)
        for k, (_, part) in enumerate(self.parts):
            chosen = which == k
            theta[chosen] = part(rank[chosen]) if callable(part) else part
        return theta

    def nodes(self, k: int = 2000) -> tuple[NDArray, NDArray]:
        """Return nodes, sorted, and masses of a quadrature over the population."""
        z = np.linspace(-7.5, 7.5, k)
        shares = np.exp(-0.5 * z**2)
        nodes, masses = [], []
        for weight, part in self.parts:
            nodes.append(part(ndtr(z)) if callable(part) else np.array([part]))
            masses.append(weight * (shares / shares.sum() if callable(part) else np.ones(1)))
        places, at = np.unique(np.concatenate(nodes), return_inverse=True)
        return places, np.bincount(at, np.concatenate(masses))

    def ranks(self, theta: NDArray) -> NDArray:
        """Probability of a smaller parameter, plus half of that of an equal one."""
        nodes, masses = self.nodes()
        return np.interp(theta, nodes, np.cumsum(masses) - masses / 2)

    def sizes(
        self,
        theta: NDArray,
        rows: tuple[int, int],
        informative: bool,
        rng: np.random.Generator,
    ) -> NDArray[np.int64]:
        """Draw numbers of rows: few or many, with a probability of many of 1/2 or the rank."""
        few, many = rows
        return np.where(
            rng.random(len(theta)) < (self.ranks(theta) if informative else 0.5), many, few
        )


def _gaussian(sd: float) -> dict[str, TruePopulation]:
    """Return populations with mean 0 and this standard deviation."""

    def laplace(rank: NDArray, scale: float = sd) -> NDArray:
        tail = np.minimum(rank, 1 - rank)
        return np.sign(rank - 0.5) * -np.log(2 * tail) * scale / np.sqrt(2)

    def hump(centre: float) -> Quantile:
        return lambda rank: sd * (centre + np.sqrt(1 - 0.9**2) * ndtri(rank))

    twice = np.sqrt(2) * sd
    return {
        "normal": TruePopulation((1.0, lambda rank: sd * ndtri(rank))),
        "laplace": TruePopulation((1.0, laplace)),
        "point_normal": TruePopulation((0.5, 0.0), (0.5, lambda rank: twice * ndtri(rank))),
        "point_laplace": TruePopulation((0.5, 0.0), (0.5, lambda rank: laplace(rank, twice))),
        "bimodal": TruePopulation((0.5, hump(-0.9)), (0.5, hump(0.9))),
        "t(3)": TruePopulation((1.0, lambda rank: sd * stdtrit(3, rank) / np.sqrt(3))),
        "skewed": TruePopulation((1.0, lambda rank: sd * (gammaincinv(2, rank) - 2) / np.sqrt(2))),
        "spikes": TruePopulation((0.8, -0.5 * sd), (0.2, 2.0 * sd)),
    }


def _beta(alpha: float, beta: float) -> Quantile:
    return lambda rank: betaincinv(alpha, beta, rank)


def _gamma(mean: float, shape: float) -> Quantile:
    return lambda rank: mean / shape * gammaincinv(shape, rank)


def _inverse_gamma(df: float, scale: float) -> Quantile:
    """Quantiles of the logarithm of a variance."""
    return lambda rank: np.log(df * scale / 2) - np.log(gammainccinv(df / 2, rank))


def _normal(mean: float, sd: float) -> Quantile:
    return lambda rank: mean + sd * ndtri(rank)


@dataclass(frozen=True)
class Setting:
    """Likelihood of the study: its populations, priors, rows and channels.

    Parameters
    ----------
    estimator : estimator
    draw : callable
        ``draw(theta, sizes, rng)`` returns the summary of groups with these parameters and numbers
        of rows.
    populations : mapping of spread to mapping of name to TruePopulation
    priors : mapping of name to str or Prior
    inside : mapping of population to priors whose family it is of
    rows : mapping of n to (few, many)
        Numbers of rows that groups may have.
    channels : tuple of str
        Channels of `CHANNELS`, each with its epsilon.
    likelihood : callable, optional
        Function from a summary to what it says of the parameters, where that is not what the family
        of the estimator says.
    parameter : callable
        Function from what posteriors show to the parameters of the populations.
    """

    estimator: Any
    draw: Callable[[NDArray, NDArray, np.random.Generator], Summary]
    populations: Mapping[str, Mapping[str, TruePopulation]]
    priors: Mapping[str, Any]
    inside: Mapping[str, tuple[str, ...]]
    rows: Mapping[str, tuple[int, int]]
    channels: tuple[str, ...]
    likelihood: Callable[[Summary], Likelihood] | None = None
    parameter: Callable[[NDArray], NDArray] = np.asarray

    @property
    def family(self) -> str:
        """Population that is in the family of the first prior."""
        return next(iter(self.inside))

    def tried(self, population: str, channel: str, n: str) -> tuple[str, ...]:
        """Priors that are fitted: to a population of one family, those whose family it is in.

        If numbers of rows differ, those that depend on them too.
        """
        first = next(iter(self.priors))
        if channel.startswith("TwoBit"):
            return (first, *SHAPELESS)
        if channel != EXACT:
            return (first,)
        return tuple(
            name
            for name in self.priors
            if population in FOR_ALL or self.holds(name, population)
            if name not in MODELLED or n in (UNEQUAL, INFORMATIVE)
        )

    def holds(self, prior: str, population: str) -> bool:
        """Whether this population is in the family of the prior."""
        own = prior.removesuffix("_bootstrap").removesuffix(", modelled")
        return own in self.inside[population]


SETTINGS = {
    "gaussian": Setting(
        estimator=GaussianEB(ROW_VARIANCE, guess=Guess(mean=(-3, 3), spread=2)),
        draw=draw_means,
        populations={"small": _gaussian(0.3), "large": _gaussian(2.0)},
        priors={
            **{name: name for name in ("normal", "laplace", "point_normal", "point_laplace")},
            "scale_mixture": "scale_mixture",
            "mixture": GaussianMixture(2, random_state=0),
            **{name: name for name in SHAPELESS},
            **BOOTSTRAP,
            **MODELLED,
        },
        inside={
            "normal": ("normal", "point_normal", "scale_mixture", "mixture", *SHAPELESS),
            "laplace": ("laplace", "point_laplace", "scale_mixture", *SHAPELESS),
            "point_normal": ("point_normal", "scale_mixture", "npmle"),
            "point_laplace": ("point_laplace", "scale_mixture", "npmle"),
            "bimodal": ("mixture", *SHAPELESS),
            "t(3)": ("scale_mixture", *SHAPELESS),
            "skewed": SHAPELESS,
            "spikes": ("npmle",),
        },
        rows={EQUAL: (4, 4), UNEQUAL: (1, 16), INFORMATIVE: (1, 16)},
        channels=(
            *("TwoBit(0.5)", "TwoBit(4)", "OneBit(0.5)", "OneBit(4)", "Hybrid(4)"),
            *("Gaussian(0.5)", "Gaussian(4)", "Laplace(0.5)", "Laplace(4)"),
        ),
    ),
    "binomial": Setting(
        estimator=BernoulliEB(),
        draw=draw_rates,
        populations={
            "small": {
                "beta": TruePopulation((1.0, _beta(20, 50))),
                "rare": TruePopulation((1.0, _beta(5, 95))),
                "bimodal": TruePopulation((0.5, _beta(20, 80)), (0.5, _beta(35, 65))),
                "spikes": TruePopulation((0.8, 0.1), (0.2, 0.2)),
            },
            "large": {
                "beta": TruePopulation((1.0, _beta(2, 5))),
                "pole": TruePopulation((1.0, _beta(0.5, 9.5))),
                "bimodal": TruePopulation((0.5, _beta(3, 17)), (0.5, _beta(14, 6))),
                "spikes": TruePopulation((0.8, 0.1), (0.2, 0.6)),
            },
        },
        priors={**{name: name for name in ("beta", *SHAPELESS)}, **BOOTSTRAP},
        inside={
            "beta": ("beta", *SHAPELESS),
            "rare": ("beta", *SHAPELESS),
            "pole": ("beta", "npmle"),  # a spline is finite at 0
            "bimodal": SHAPELESS,
            "spikes": ("npmle",),
        },
        rows={EQUAL: (10, 10), "equal, 40": (40, 40), UNEQUAL: (10, 40), INFORMATIVE: (10, 40)},
        channels=(
            *("TwoBit(0.5)", "TwoBit(4)", "UnaryEncoding(0.5)", "UnaryEncoding(4)"),
            *("RandomizedResponse(0.5)", "RandomizedResponse(4)", "Hybrid(4)"),
            *("Gaussian(0.5)", "Gaussian(4)"),
        ),
    ),
    "poisson": Setting(
        estimator=PoissonEB(guess=Guess(mean=(1, 8), spread=3)),
        draw=draw_events,
        populations={
            "small": {
                "gamma": TruePopulation((1.0, _gamma(4, 44))),
                "rare": TruePopulation((1.0, _gamma(0.4, 4.4))),
                "bimodal": TruePopulation((0.5, _gamma(3, 30)), (0.5, _gamma(5, 50))),
                "spikes": TruePopulation((0.8, 3.5), (0.2, 6.0)),
            },
            "large": {
                "gamma": TruePopulation((1.0, _gamma(4, 1))),
                "pole": TruePopulation((1.0, _gamma(0.4, 0.5))),
                "bimodal": TruePopulation((0.5, _gamma(2, 8)), (0.5, _gamma(10, 20))),
                "spikes": TruePopulation((0.8, 2.0), (0.2, 12.0)),
            },
        },
        priors={**{name: name for name in ("gamma", *SHAPELESS)}, **BOOTSTRAP},
        inside={
            "gamma": ("gamma", *SHAPELESS),
            "rare": ("gamma", *SHAPELESS),
            "pole": ("gamma", "npmle"),
            "bimodal": SHAPELESS,
            "spikes": ("npmle",),
        },
        rows={EQUAL: (1, 1), UNEQUAL: (1, 8), INFORMATIVE: (1, 8)},
        channels=("TwoBit(0.5)", "TwoBit(4)", "Gaussian(0.5)", "Gaussian(4)"),
    ),
    "variance": Setting(
        estimator=VarianceEB(guess=Guess(mean=(-1, 1), spread=1)),
        draw=draw_scatters,
        populations={
            "small": {
                "inverse_gamma": TruePopulation((1.0, _inverse_gamma(40, 1))),
                "bimodal": TruePopulation((0.5, _normal(-0.3, 0.1)), (0.5, _normal(0.3, 0.1))),
            },
            "large": {
                "inverse_gamma": TruePopulation((1.0, _inverse_gamma(4, 1))),
                "bimodal": TruePopulation((0.5, _normal(-1, 0.3)), (0.5, _normal(1, 0.3))),
            },
        },
        priors={name: name for name in ("inverse_gamma", *SHAPELESS)},
        inside={"inverse_gamma": ("inverse_gamma", *SHAPELESS), "bimodal": SHAPELESS},
        rows={EQUAL: (6, 6), UNEQUAL: (3, 12), INFORMATIVE: (3, 12)},
        channels=("TwoBit(4)", "Gaussian(4)"),
        parameter=np.log,
    ),
    "duration": Setting(
        estimator=DurationEB(),
        draw=draw_durations,
        populations={
            "small": {
                "gamma": TruePopulation((1.0, _gamma(1, 20))),
                "bimodal": TruePopulation((0.5, _gamma(0.7, 100)), (0.5, _gamma(1.3, 100))),
            },
            "large": {
                "gamma": TruePopulation((1.0, _gamma(1, 2))),
                "bimodal": TruePopulation((0.5, _gamma(0.4, 10)), (0.5, _gamma(2.5, 20))),
            },
        },
        priors={name: name for name in ("gamma", *SHAPELESS)},
        inside={"gamma": ("gamma", *SHAPELESS), "bimodal": SHAPELESS},
        rows={EQUAL: (8, 8), UNEQUAL: (2, 16), INFORMATIVE: (2, 16)},
        channels=(),
    ),
    "negative_binomial": Setting(
        estimator=NegativeBinomialEB(),
        draw=draw_scattered_events,
        populations={
            "small": {
                "gamma": TruePopulation((1.0, _gamma(4, 44))),
                "bimodal": TruePopulation((0.5, _gamma(3, 30)), (0.5, _gamma(5, 50))),
            },
            "large": {
                "gamma": TruePopulation((1.0, _gamma(4, 2))),
                "bimodal": TruePopulation((0.5, _gamma(2, 8)), (0.5, _gamma(10, 20))),
            },
        },
        priors={name: name for name in ("gamma", *SHAPELESS)},
        inside={"gamma": ("gamma", *SHAPELESS), "bimodal": SHAPELESS},
        rows={EQUAL: (6, 6), UNEQUAL: (2, 12), INFORMATIVE: (2, 12)},
        channels=(),
        likelihood=known_dispersion,
    ),
    "categorical": Setting(
        estimator=CategoricalEB(),
        draw=draw_answers,
        populations={
            # beside it, the other two categories have parameters of a Dirichlet's
            "large": {
                "dirichlet": TruePopulation((1.0, _beta(2, 5))),
                "bimodal": TruePopulation((0.5, _beta(3, 17)), (0.5, _beta(14, 6))),
            },
        },
        priors={"dirichlet": "dirichlet"},
        inside={"dirichlet": ("dirichlet",), "bimodal": ()},
        rows={EQUAL: (10, 10), UNEQUAL: (10, 40), INFORMATIVE: (10, 40)},
        channels=(),
        likelihood=one_category,
    ),
    "student_t": Setting(
        estimator=EstimatesEB(),
        draw=draw_estimates,
        populations={"small": _gaussian(0.3), "large": _gaussian(2.0)},
        priors={name: name for name in ("normal", "laplace", "scale_mixture", *SHAPELESS)},
        inside={
            "normal": ("normal", "scale_mixture", *SHAPELESS),
            "laplace": ("laplace", "scale_mixture", *SHAPELESS),
            "point_normal": ("scale_mixture", "npmle"),
            "point_laplace": ("scale_mixture", "npmle"),
            "bimodal": SHAPELESS,
            "t(3)": ("scale_mixture", *SHAPELESS),
            "skewed": SHAPELESS,
            "spikes": ("npmle",),
        },
        rows={EQUAL: (5, 5), UNEQUAL: (3, 16), INFORMATIVE: (3, 16)},
        channels=(),
        likelihood=student_t,
    ),
}
CHANNELS: dict[str, Callable[[float], Any]] = {
    "TwoBit": TwoBit,
    "OneBit": OneBit,
    "UnaryEncoding": UnaryEncoding,
    "RandomizedResponse": RandomizedResponse,
    "Hybrid": Hybrid,
    "Laplace": Laplace,
    "Gaussian": lambda epsilon: Gaussian(epsilon, DELTA),
}


def list_cells(quick: bool, **chosen: Sequence[Any]) -> list[dict[str, Any]]:
    """List cells, those with chosen values alone; the quick version has a few.

    `chosen` has the values of ``likelihood``, ``channel``, ``population``, ``spread``, ``n``, ``m``
    or ``priors`` that are wanted.
    """
    cells: list[dict[str, Any]] = []
    for likelihood, setting in SETTINGS.items():
        for spread, populations in setting.populations.items():
            places = [
                (EXACT, population, n)
                for population in populations
                for n in setting.rows
                if n == EQUAL or population == setting.family
            ]
            if spread == "large":
                places += [(channel, setting.family, EQUAL) for channel in setting.channels]
            cells += [
                {
                    "likelihood": likelihood,
                    "channel": channel,
                    "population": population,
                    "spread": spread,
                    "n": n,
                    "m": m,
                    "priors": setting.tried(population, channel, n),
                }
                for channel, population, n in places
                for m in GROUPS
            ]
    if quick:
        chosen = QUICK | chosen
    wanted = chosen.pop("priors", None)
    for key, values in chosen.items():
        cells = [cell for cell in cells if cell.get(key) in values]
        if not cells:
            raise ValueError(f"no cell has {key}={values!r}.")
    if wanted is not None:
        for cell in cells:
            cell["priors"] = tuple(name for name in cell["priors"] if name in wanted)
    return [cell for cell in cells if cell["priors"]]


def list_parts(cells: Sequence[Cell], reps: int) -> list[tuple[Sequence[Cell], int]]:
    """Fewer fits of many groups."""
    parts = [
        ([cell for cell in cells if cell["m"] == m], max(2, round(effort * reps)))
        for m, effort in EFFORT.items()
    ]
    return [part for part in parts if part[0]]
