"""What passes between clients and server of a regression: the keys of each dict, with types.

`ebfed.engines.protocol` says who makes which dict, and when. Arrays of clients have an entry for
each of n_clients; p is the number of coefficients, k that of components or of coordinates.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

from ebfed.engines.protocol import Facts, Sent, State
from ebfed.regression.numerics.mixed_model_sums import Question

__all__ = [
    "Candidate",
    "EvidenceMessage",
    "GeneralizedMemory",
    "GeneralizedMessage",
    "GeneralizedPhase",
    "GeneralizedResult",
    "GeneralizedSent",
    "GeneralizedState",
    "LinearMessage",
    "LinearResult",
    "LinearSent",
    "LinearState",
    "MixtureMemory",
    "MixtureParameters",
    "MixturePhase",
    "MixtureResult",
    "MixtureSent",
    "MixtureState",
    "RegressionFacts",
    "RegressionMemory",
    "RegressionSent",
    "RegressionState",
    "SizesMessage",
]

GeneralizedPhase = Literal["centre", "size", "coarse", "fine", "gradient"]
MixturePhase = Literal["sizes", "pool", "climb", "parameters"]


class RegressionFacts(Facts):
    """What clients of a regression state."""

    covariates: NotRequired[NDArray[np.str_]]
    """Names of the covariates of groups, one to a line, shape (1,)."""
    log_weight: NotRequired[NDArray[np.float64]]
    """Sum of the logarithms of the weights of each client's rows, where these have some."""
    levels: NotRequired[NDArray[np.str_]]
    """Names of the levels of groups, one to a line, shape (1,), where there are several."""
    parents: NotRequired[NDArray[np.float64]]
    """Number of the parent of each client at each level above; see `keys_of_parents`."""
    dispersion: NotRequired[NDArray[np.str_]]
    """Names of the levels of rows that have a noise of their own, one to a line, shape (1,)."""
    classes: NotRequired[NDArray]
    """Labels of the response, sorted, where it is a class."""
    n_tops: NotRequired[NDArray[np.int64]]
    """Number of groups of the outermost level, shape (1,)."""
    offset: NotRequired[NDArray[np.bool_]]
    """Whether rows have offsets, shape (1,)."""
    alone: NotRequired[NDArray[np.bool_]]
    """Whether the spread between groups is identified by groups of one row, shape (1,)."""


class RegressionSent(Sent):
    """What the server of a regression broadcasts."""

    n_clients: NotRequired[int]
    n_rows: NotRequired[int]
    """Number of rows of all clients, in the last broadcast."""
    history: NotRequired[list[dict[str, float]]]
    """Rows of the history, in the last broadcast."""
    log_likelihood: NotRequired[float]
    converged: NotRequired[bool | None]
    classes: NotRequired[NDArray]
    """Labels of the response, where it is a class."""
    result: NotRequired[Any]
    """What was learned, in the last broadcast; as in `RegressionState`."""


class RegressionState(State):
    """What the server of a regression keeps."""

    history: list[dict[str, float]]
    """Rows of the history."""
    n_clients: NotRequired[int]
    """Number of clients, where `n` does not have them all."""
    converged: bool | None
    """Whether the fit reached its goal; None where it has a fixed number of steps."""
    log_likelihood: NotRequired[float]
    notes: NotRequired[list[str]]
    """Remarks on the fit."""
    classes: NotRequired[NDArray]
    """Labels of the response, where it is a class."""
    result: NotRequired[Any]
    """What was learned: `LinearResult`, `GeneralizedResult` or `MixtureResult`."""


class RegressionMemory(TypedDict):
    """What clients of a regression keep."""

    turn: NotRequired[NDArray[np.int8]]
    """The round in which the client is to answer, -1 for never."""
    sent: NotRequired[NDArray[np.int64]]
    """Number of rows that a client had here, where those of other nodes were merged with them."""


class NormalResult(TypedDict):
    """What a normal population of p coefficients is learned as."""

    mean: NDArray[np.float64]
    """Mean of the population, shape (p,)."""
    mean_covariance: NDArray[np.float64]
    """Sampling covariance of the mean, shape (p, p)."""
    null: NDArray[np.float64]
    """Combinations of columns that are zero in all rows, shape (p, p - rank)."""
    covariance: NDArray[np.float64]
    """Covariance of the population, shape (p, p); of a family, zero at its lower bound."""
    levels: NotRequired[str]
    """Names of the levels of groups, one to a line, where there are several."""
    notes: list[str]


class LinearResult(NormalResult):
    """What a linear regression learns; p coefficients, those of covariates last."""

    covariance_error: NDArray[np.float64]
    """Sampling error of the covariance, shape (p, p); see `Fit`."""
    noise_variance: float
    criterion: float
    """-2 log-likelihood, restricted for REML."""
    n_parameters: int
    covariates: str
    """Names of the covariates of groups, one to a line."""
    n_sums: int
    """Number of sums that a block of clients sent in all rounds, with ``share="sums"``."""
    above: NotRequired[NDArray[np.float64]]
    """Covariance of each level above the groups, from the top, shape (n_above, p, p)."""
    above_error: NotRequired[NDArray[np.float64]]
    """Sampling error of each, shape (n_above, p, p)."""
    n_parents: NotRequired[NDArray[np.int64]]
    """Number of groups of each level above, shape (n_above,)."""
    dispersion: NotRequired[str]
    """Names of the levels of rows that have a noise of their own, one to a line."""
    ratios: NotRequired[NDArray[np.float64]]
    """Standard deviation of the noise of each, over that of the first, shape (n_levels,)."""


class LinearSent(RegressionSent):
    """What the server of a linear regression broadcasts."""

    size: NotRequired[int]
    """Number of rows of a factor."""
    dispersion: NotRequired[str]
    """Names of the levels of rows that have a noise of their own, at any node, one to a line."""
    question: NotRequired[Question]
    """What sums are asked for, with ``share="sums"``."""


class LinearState(RegressionState):
    """What the server of a linear regression keeps."""

    size: int
    """Number of rows of a factor."""
    covariates: str
    """Names of the covariates of groups, one to a line."""
    log_weight: float
    """Sum of the logarithms of the weights of rows."""
    dispersion: NotRequired[str]
    """Names of the levels of rows that have a noise of their own, one to a line."""
    levels: NotRequired[str]
    """Names of the levels of groups, one to a line, where there are several."""
    parents: NotRequired[NDArray[np.float64]]
    """Number of the parent of each client at each level above."""
    question: NotRequired[Question]
    """What sums are asked for, with ``share="sums"``."""
    answers: NotRequired[list[tuple[Question, dict[str, NDArray[np.float64]]]]]
    """Questions so far, with sums over all clients."""


class LinearMessage(TypedDict):
    """What clients of a linear regression send; or sums, named by `shapes_of` their question."""

    n: NDArray[np.int64]
    factor: NDArray[np.float64]
    """Triangular factors of the rows, shape (n_clients, size, p + 1); or (n_clients, n_levels,
    size, p + 1), where the noise of rows has levels."""
    counts: NotRequired[NDArray[np.int64]]
    """Number of rows of each level of noise, shape (n_clients, n_levels)."""


class GeneralizedResult(NormalResult):
    """What a generalized linear model learns."""

    root: NDArray[np.float64]
    """Root of the covariance, shape (p, k): it has digits that a square loses."""
    above: NotRequired[list[NDArray[np.float64]]]
    """Covariance of each level above the groups, from the top, shape (p, p)."""
    roots_above: NotRequired[list[NDArray[np.float64]]]
    """Roots of these, shape (p, k)."""
    sizes: NotRequired[NDArray[np.int64]]
    """Number of coefficients that differ between groups of each level, from the top."""
    blocks: NotRequired[NDArray[np.int64]]
    """Block of each of these, shape (q,)."""
    shapes: NDArray[np.float64]
    """Parameters of the family besides those of predictors, shape (t,)."""
    shape_covariance: NDArray[np.float64]
    """Sampling covariance of mean and shapes, shape (p + t, p + t)."""
    node_weights: NotRequired[NDArray[np.float64]]
    """Weights of populations near the fitted one, shape (k,); see `spread_nodes`."""
    node_parameters: NotRequired[NDArray[np.int64]]
    """Parameter of the root along which each is, shape (k,)."""
    node_means: NotRequired[NDArray[np.float64]]
    """Their means, shape (k, p)."""
    node_mean_covariances: NotRequired[NDArray[np.float64]]
    """Sampling covariances of the mean there, shape (k, p, p)."""
    node_roots: NotRequired[list[NDArray[np.float64]]]
    """Roots of their covariances, of each level from the top, shape (k, p, q)."""
    method: str
    """Method of the fit: what ``"auto"`` stands for."""
    classes: NotRequired[NDArray]
    """Labels of the response, where it is a class."""
    has_offset: NotRequired[bool]
    """Whether rows of the fit had offsets."""


class Coordinates(TypedDict):
    """What server and clients of a generalized linear model know of coordinates."""

    centre: NotRequired[NDArray[np.float64]]
    """Mean of all rows of X, about which products are taken, with ``share="sums"``."""
    places: NotRequired[NDArray[np.int64]]
    """Entries of c that differ between groups, of each level from the top, shape (q,)."""
    sizes: NotRequired[NDArray[np.int64]]
    """Numbers of these, of each level."""
    blocks: NotRequired[NDArray[np.int64]]
    """Block of each, whose coefficients are independent of those of others, shape (q,)."""
    frame: NotRequired[NDArray[np.float64]]
    """Coefficients are ``frame c``, shape (p, r), where mean and root are those of c."""
    mean: NotRequired[NDArray[np.float64]]
    variance: NotRequired[float]
    """Variance of the coefficients, of gradient descent, whose mean is of these."""


class GeneralizedSent(RegressionSent, Coordinates):
    """What the server of a generalized linear model broadcasts."""

    phase: NotRequired[GeneralizedPhase]
    root: NotRequired[NDArray[np.float64]]
    shapes: NotRequired[NDArray[np.float64]]
    """Parameters of the family besides those of predictors, shape (t,)."""
    method: NotRequired[Any]
    """Method by which clients integrate; see `quadrature.method_for`."""


class GeneralizedState(RegressionState, Coordinates):
    """What the server of a generalized linear model keeps; coordinates are those of `frame`."""

    phase: GeneralizedPhase | Literal["end"]
    estimates_spread: bool
    """Whether numbers of rows identify the spread of the population."""
    varies: NDArray[np.bool_]
    """Whether each coefficient differs between groups, of any level."""
    levels: str
    """Names of the levels of groups, one to a line; empty where there is one."""
    of_levels: NDArray[np.int64]
    """Block of the covariance of each level that a coefficient is in, shape (n_levels, p); -1 of
    those that are alike in all groups."""
    fixed: NDArray[np.int64]
    """Coefficients that have a mean."""
    known: NDArray[np.bool_]
    """Whether numbers of rows and groups identify the spread of each level."""
    n_groups: NDArray[np.int64]
    """Number of groups with rows of each level, from the top."""
    has_offset: NotRequired[bool]
    """Whether rows have offsets."""
    between: NotRequired[NDArray[np.bool_]]
    """Whether a column differs between groups alone, and has one coefficient for all, (p,)."""
    unit: NotRequired[NDArray[np.float64]]
    """Units of the coefficients, shape (p,)."""
    empty: NotRequired[NDArray[np.bool_]]
    """Whether a column is zero everywhere, shape (p,)."""
    directions: NotRequired[NDArray[np.float64]]
    """Directions in which the mean moves, shape (k, rank)."""
    null: NotRequired[NDArray[np.float64]]
    """Combinations of columns that are zero in all rows, shape (p, p - rank)."""
    unlimited: NotRequired[bool]
    """Whether the likelihood has no maximum, as where every group has one class only."""
    perfect: NotRequired[float]
    """Log-likelihood of rows that are as good as certain."""
    gain: NotRequired[float]
    """Gain of log-likelihood that the last step expected."""
    point: NotRequired[NDArray[np.float64]]
    """Parameters that are asked about by quadrature; see `QuadraturePopulation`."""
    best_point: NotRequired[NDArray[np.float64]]
    """Likeliest parameters so far."""
    best_value: NotRequired[float]
    """Their log-likelihood, by the rules in use."""
    slope: NotRequired[NDArray[np.float64]]
    """Its slope in the parameters."""
    second: NotRequired[NDArray[np.float64]]
    """Its second derivatives."""
    missing: NotRequired[NDArray[np.float64]]
    """What these lack, where they are approximate."""
    radius: NotRequired[float]
    """Longest step that is allowed."""
    information: NotRequired[NDArray[np.float64]]
    """Minus the second derivatives in the mean of coordinates that differ, shape (q,)."""
    mean_covariance: NotRequired[NDArray[np.float64]]
    method: NotRequired[str]
    """Method by which clients integrate: what ``"auto"`` stands for."""
    earlier: NotRequired[dict[str, Any]]
    """What a first search found, of the names above, while a second goes on."""


class GeneralizedMemory(RegressionMemory):
    """What clients of a generalized linear model keep."""

    mode: NotRequired[NDArray[np.float64]]
    """Modes of the last round, shape (n_clients, q), from which those of the next are searched; of
    groups within groups, of the coefficients of a group and its parents."""
    base: NotRequired[NDArray[np.float64]]
    """What log-likelihoods have besides their parts in predictors, if no shape moves it."""


class GeneralizedMessage(TypedDict):
    """What clients of a generalized linear model send; which parts depends on the phase.

    With ``share="sums"``, sums over clients of these parts; see `ebfed.engines.sums`.
    """

    centre: NotRequired[NDArray[np.float64]]
    """Mean of the rows of X, shape (n_clients, p)."""
    products: NotRequired[NDArray[np.float64]]
    """Products of the rows about their mean, shape (n_clients, p, p)."""
    within: NotRequired[NDArray[np.float64]]
    """With ``share="sums"``, squares of the rows about the client's mean, shape (n_clients, p)."""
    mixed: NotRequired[NDArray[np.float64]]
    """1 for a client whose rows bound predictors from both sides, shape (n_clients,)."""
    figures: NotRequired[NDArray[np.float64]]
    """Sums of responses from which the search begins, shape (n_clients, k)."""
    evidence: NotRequired[NDArray[np.float64]]
    """Log marginal likelihood, shape (n_clients,)."""
    score: NotRequired[NDArray[np.float64]]
    """Its slopes in d parameters, shape (n_clients, d)."""
    curvature: NotRequired[NDArray[np.float64]]
    """Lower halves of its second derivatives, shape (n_clients, d * (d + 1) / 2)."""
    mean: NotRequired[NDArray[np.float64]]
    log_variance: NotRequired[NDArray[np.float64]]
    """Mean and log-variance of coefficients after a step of descent, of each client."""


class MixtureParameters(TypedDict):
    """Parameters of a mixture; see `MixturePopulation`."""

    weights: NDArray[np.float64]
    means: NDArray[np.float64]
    variances: NDArray[np.float64]
    noise: float


class MixtureResult(TypedDict):
    """What a mixture of regressions learns: k components of p coefficients."""

    weights: NDArray[np.float64]
    means: NDArray[np.float64]
    means_covariance: NDArray[np.float64]
    """Sampling covariance of each mean, shape (k, p, p)."""
    variances: NDArray[np.float64]
    noise_variance: float
    least_noise: float
    """Noise that posteriors use where the estimate is zero."""
    n_parameters: int
    n_numbers: int
    """Number of numbers that each client sent in all rounds."""
    criterion: NDArray[np.float64]
    """For each number of components that was tried; see `priors.n_components`."""
    notes: list[str]
    classes: NotRequired[NDArray]


class Candidate(TypedDict):
    """A start of a mixture, and where it has come to."""

    fold: int
    """Clients that it is not fitted to; -1: it is fitted to all."""
    evidence: NotRequired[NDArray[np.float64]]
    """Log-likelihood of each client, of the last round that gained, shape (n_clients,)."""
    tried: MixtureParameters
    """Population that clients are asked about."""
    path: list[float]
    """Log-likelihood of each round."""
    weights: list[NDArray[np.float64]]
    """Weights of each round."""
    trail: list[tuple[MixtureParameters, MixtureParameters]]
    """Begin and end of the last steps."""
    information: NotRequired[NDArray[np.float64]]
    """Information on the means, shape (k, p, p)."""
    leap: float
    """Largest extrapolation, in multiples of the last step."""
    reach: float
    """Share of the step that is tried; above 1 for extrapolation."""
    gain: float
    """Gain of log-likelihood of the last round."""
    lost: int
    """Number of rounds that lost log-likelihood."""
    stuck: bool
    """Whether no step is left to try."""


class MixtureSent(RegressionSent):
    """What the server of a mixture of regressions broadcasts."""

    phase: NotRequired[MixturePhase]
    rank: NotRequired[int]
    """Number of rows of a factor."""
    units: NotRequired[NDArray[np.float64]]
    """Units of the columns of ``[X y]``, shape (p + 1,)."""
    size: NotRequired[NDArray[np.float64]]
    """Largest norm of a column of one client's design, shape (p,)."""
    populations: NotRequired[dict[str, MixtureParameters]]
    """Populations that clients are asked about, by number."""
    population: NotRequired[MixtureParameters | None]
    """Population of the round before, where clients send coefficients."""


class MixtureState(RegressionState):
    """What the server of a mixture of regressions keeps."""

    phase: MixturePhase
    p: int
    """Number of coefficients of a client."""
    rank: int
    estimates_spread: bool
    """Whether numbers of rows identify the variances of components."""
    candidates: list[Candidate]
    folds: NDArray[np.int64]
    """Which clients are held out together, shape (n_clients,)."""
    criterion: NDArray[np.float64]
    n_numbers: int
    """Number of numbers that each client has sent."""
    log_weight: float
    """Sum of the logarithms of the weights of rows."""
    units: NotRequired[NDArray[np.float64]]
    size: NotRequired[NDArray[np.float64]]
    columns_size: NotRequired[NDArray[np.float64]]
    """Root mean squares of the columns of X, in units, shape (p,)."""
    population: NotRequired[MixtureParameters | None]


class MixtureMemory(RegressionMemory):
    """What clients of a mixture of regressions keep; see `RotatedRows`."""

    design: NotRequired[NDArray[np.float64]]
    response: NotRequired[NDArray[np.float64]]
    rest: NotRequired[NDArray[np.float64]]
    sizes: NotRequired[NDArray[np.int64]]
    squares: NotRequired[NDArray[np.float64]]
    theta: NotRequired[NDArray[np.float64]]
    """Coefficients that the client sent last, shape (n_clients, p)."""
    clipped: NotRequired[NDArray[np.bool_]]
    """Whether the channel ever clipped the client's coefficients."""


class SizesMessage(TypedDict):
    """What clients of a mixture of regressions send first."""

    n: NDArray[np.int64]
    squares: NDArray[np.float64]
    """Sums of squares of the columns of ``[X y]``, shape (n_clients, p + 1)."""


class EvidenceMessage(TypedDict):
    """What clients' rows say of one population; see `Evidence`."""

    log: NDArray[np.float64]
    mean: NDArray[np.float64]
    variance: NDArray[np.float64]
    variance_information: NDArray[np.float64]
    variance_rest: NDArray[np.float64]
    crossed: NDArray[np.float64]
    noise: NDArray[np.float64]
    noise_information: NDArray[np.float64]
    information: NDArray[np.float64]
    """Information on the means of a block of clients, shape (1, k, p, p)."""
