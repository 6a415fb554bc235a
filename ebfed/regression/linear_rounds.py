"""The rounds of a linear regression, of which the server fits a mixed model.

There is one round, in which clients send factors; or, with ``share="sums"``, one for each question
of the server, in which clients send sums.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from ebfed.arguments import check_choice
from ebfed.engines.robust import pair
from ebfed.engines.sums import Share, check_share, check_sums, totals_of
from ebfed.inference.estimable import Estimable, collinear_note
from ebfed.priors import IdentificationWarning
from ebfed.privacy import ledger
from ebfed.regression import matching
from ebfed.regression.columns import Columns, Varying
from ebfed.regression.levels import (
    NOISELESS,
    check_levels,
    confounded,
    confounded_notes,
    crowded_notes,
    far_notes,
    groups_of,
    names_in,
    open_levels,
    sizes_of_levels,
    stated_levels,
)
from ebfed.regression.notes import boundary_notes
from ebfed.regression.numerics.dispersed_model import Coefficients, fit_dispersed
from ebfed.regression.numerics.mixed_model import Covariance, Fit
from ebfed.regression.numerics.mixed_model_sums import (
    Answer,
    Question,
    answer,
    search,
    shapes_of,
)
from ebfed.regression.numerics.nested_model import fit_mixed_model
from ebfed.regression.posteriors.parents import posterior_of_levels
from ebfed.regression.protocol import (
    LinearMessage,
    LinearResult,
    LinearSent,
    LinearState,
    RegressionFacts,
    RegressionMemory,
    RegressionState,
)
from ebfed.regression.rounds import ROUNDING, RegressionRounds, check_shapes
from ebfed.tables.clients import LARGEST, Clients
from ebfed.tables.dispersed import Dispersed
from ebfed.tables.factors import Factors
from ebfed.tables.labels import number_parents

__all__ = ["LinearRounds"]

# Rows of a merged factor beyond those of its group are what cancels, in parts of a column's length.
SPILL = 1e-6
NO_ROWS_LEFT = (
    "There are no more rows than mean coefficients: the noise is not identified. It is taken to be "
    "zero, so that intervals have no length, and say nothing."
)


@dataclass(frozen=True)
class LinearRounds(RegressionRounds[LinearState, LinearSent, RegressionMemory, LinearMessage]):
    """Linear regression in rounds; parameters are those of `LinearEB`."""

    covariance: Covariance
    varying: Varying
    fit_intercept: bool
    method: Literal["reml", "ml"]
    share: Share = "groups"
    fixed: Sequence[str | int] | None = None

    @property
    def sends(self) -> str:  # type: ignore[override]
        """What the ledger says clients send."""
        if self.share == "sums":
            return "sums over groups of products of their whitened rows, as they are"
        return "the triangular factor of each client's rows, as it is"

    # Clients ----------------------------------------------------------------------------------

    def block(
        self, clients: Clients | Factors, weight: NDArray[np.float64] | None = None
    ) -> Factors:
        """Return the clients' triangular factors."""
        return clients if isinstance(clients, Factors) else Factors.of(clients, weight)

    def describe(self, clients: Factors, memory: Any) -> RegressionFacts:
        """State numbers of rows, columns, names of covariates, and parents of groups."""
        names = "\n".join(self.estimator.covariate_names_)
        facts = super().describe(clients, memory) | {"covariates": np.array([names])}
        if isinstance(clients, Dispersed):
            facts |= {"dispersion": np.array(["\n".join(clients.levels)])}
        return facts | stated_levels(self.estimator, clients)

    def local(
        self, sent: LinearSent, memory: RegressionMemory, clients: Factors | Dispersed, rng: Any
    ) -> tuple[LinearMessage, RegressionMemory]:
        """Send each client's number of rows and triangular factor; or sums over clients."""
        if isinstance(clients, Dispersed):
            whole = clients.with_levels(sent["dispersion"].split("\n"))
            factor = whole.padded(sent["size"])
            return {"n": clients.n, "counts": whole.counts, "factor": factor}, memory
        if self.share == "sums":
            return cast(
                LinearMessage, answer(clients.padded(sent["size"]), sent["question"])
            ), memory
        return {"n": clients.n, "factor": clients.padded(sent["size"])}, memory

    def bits(self, sent: LinearSent, clients: Factors | Dispersed) -> float:
        """Bits of the factors: numbers of a triangle; or of the sums, of one root of T."""
        if self.share == "sums":
            width = clients.n_features + 1
            asked = sent["result"]["n_sums"] if sent["done"] else _size(sent["question"], width)
            return 64.0 * asked
        p = clients.n_features + 1
        r = np.minimum(clients.counts if isinstance(clients, Dispersed) else clients.n, p)
        return float(64 * (r * p - r * (r - 1) / 2).sum())

    def releases(
        self, sent: LinearSent, memory: RegressionMemory, clients: Any
    ) -> list[dict[str, Any]]:
        """List what clients send: factors of their rows here, whatever was merged with them."""
        dispersed = "dispersion" in (sent.get("result") or sent)
        if dispersed:
            sends = f"{self.sends}, of each level of noise, with numbers of rows"
            return [ledger.disclosure(sends, len(clients), self.bits(sent, clients))]
        own = replace(clients, n=memory.get("sent", clients.n))
        return super().releases(sent, memory, own)

    def kept(self, memory: RegressionMemory) -> dict[str, Any]:
        """Return the numbers of rows that were sent, where others were merged with them."""
        return {"sent": memory["sent"]} if "sent" in memory else {}

    # The same group at two nodes --------------------------------------------------------------

    @property
    def matches(self) -> bool:
        """Whether messages can be merged: factors can, and sums over groups cannot."""
        return self.share == "groups"

    merge_facts = staticmethod(matching.merged_facts)
    merge = staticmethod(matching.merged)

    def with_merged(
        self, message: Any, clients: Factors, memory: Any
    ) -> tuple[Factors, dict[str, NDArray]]:
        """Return clients and memory as if all rows of these groups were here."""
        return matching.checked_part(message, clients), memory | {"sent": clients.n}

    # Server -----------------------------------------------------------------------------------

    def check_facts(self, facts: Any) -> None:
        super().check_facts(facts)
        names = facts.get("covariates")
        if not (isinstance(names, np.ndarray) and names.dtype.kind == "U" and names.shape == (1,)):
            raise ValueError("facts must have the names of covariates.")
        check_levels(facts)
        noises = facts.get("dispersion", names)
        if not (isinstance(noises, np.ndarray) and noises.dtype.kind == "U" and len(noises) == 1):
            raise ValueError("facts may have the names of levels of noise.")

    def begin(self, state: RegressionState, facts: RegressionFacts) -> LinearState:
        """Check the arguments, and return the state before the only round."""
        check_choice("covariance", self.covariance, ("diag", "spherical", "full"))
        check_choice("method", self.method, ("reml", "ml"))
        check_share(self.share)
        levels = names_in(facts)
        if levels and self.share == "sums":
            raise ValueError("levels of groups need share='groups', a factor of each group.")
        noises = levels_of_noise(facts)
        if noises and self.share == "sums":
            raise ValueError("dispersion needs share='groups', a factor of each group.")
        names = sorted(set(facts["covariates"].tolist()))
        if len(names) > 1:
            raise ValueError(f"clients have different covariates: {names}.")
        columns = self._columns(state["n_features"], state["columns"], levels)
        columns.fixed_places()  # before anything is sent
        columns.check_terms(self.covariance)
        covariates = names[0]
        size = min(_width(columns, covariates), int(facts["n"].max()))
        first: LinearState = {
            **state,
            "covariates": covariates,
            "size": size,
            "log_weight": float(facts.get("log_weight", np.zeros(1)).sum()),
        }
        if levels:
            first |= {"levels": levels, "parents": facts["parents"]}
        if noises:
            first |= {"dispersion": noises}
        return self._sought(first, []) if self.share == "sums" else first

    def _columns(self, n_features: int, names: str, levels: str = "") -> Columns:
        parts = tuple(levels.split("\n")) if levels else ()
        return Columns(n_features, names, self.fit_intercept, self.varying, parts, self.fixed)

    def ask(self, state: LinearState) -> LinearSent:
        """Ask for factors with so many rows, or for sums."""
        sent: LinearSent = {"done": False, "round": state["round"], "size": state["size"]}
        if "dispersion" in state:
            sent |= {"dispersion": state["dispersion"]}
        return sent | {"question": state["question"]} if self.share == "sums" else sent

    def check_message(
        self, message: LinearMessage, facts: RegressionFacts, sent: LinearSent, turn: NDArray
    ) -> None:
        """Raise a ValueError if clients that stated these facts cannot have sent this."""
        levels = str(facts["levels"][0]) if "levels" in facts else ""
        columns = self._columns(int(facts["n_features"][0]), str(facts["columns"][0]), levels)
        width = _width(columns, str(facts["covariates"][0]))
        if self.share == "sums":
            shapes = shapes_of(sent["question"], width)
            return check_sums(message, shapes, len(facts["n"]))
        m = len(facts["n"])
        shapes = {"n": (m,), "factor": (m, sent["size"], width)}
        if "dispersion" in sent:
            k = sent["dispersion"].count("\n") + 1
            shapes |= {"factor": (m, k, sent["size"], width), "counts": (m, k)}
        check_shapes(message, shapes)
        if "dispersion" in sent:
            counts = message["counts"]
            sound = counts.dtype == np.int64 and counts.min() >= 0
            if not sound or not np.array_equal(counts.sum(axis=1), message["n"]):
                raise ValueError("a message must have numbers of rows of each level of noise.")
        if not np.array_equal(message["n"], facts["n"]):
            raise ValueError("a message must have the numbers of rows that were stated.")
        self._check_factor(message, facts)

    def _check_factor(self, message: LinearMessage, facts: RegressionFacts) -> None:
        """Raise a ValueError if these are no triangular factors of rows that are read."""
        factor, n = message["factor"], message.get("counts", message["n"])
        with np.errstate(over="ignore"):
            sizes = np.sqrt((factor.reshape(-1, factor.shape[-1]) ** 2).sum(axis=0))
        if not (sizes < LARGEST).all():
            raise ValueError(f"columns of factor must be below {LARGEST:g} in size.")
        place = np.arange(factor.shape[-2])[:, None]
        length = np.sqrt((factor**2).sum(axis=-2, keepdims=True))
        more = (place >= n[..., None, None]) & (np.abs(factor) > SPILL * length)
        if np.any(factor[..., place > np.arange(factor.shape[-1])]) or more.any():
            raise ValueError("factor must be triangular, of as many rows as were stated.")
        if self.fit_intercept and "log_weight" not in facts:
            ones = factor[..., 0, 0] ** 2
            if not np.allclose(ones, n, rtol=ROUNDING, atol=0.0):
                raise ValueError("factor must have a column of ones for the intercept.")

    def update(self, state: LinearState, messages: LinearMessage) -> LinearState:
        """Fit the mixed model, or ask the next question."""
        if self.share == "sums":
            columns = self._columns(state["n_features"], state["columns"])
            shapes = shapes_of(state["question"], _width(columns, state["covariates"]))
            sums = totals_of(cast(dict, messages), shapes, len(state["n"]))
            answers = [*state["answers"], (state["question"], sums)]
            return self._sought(state | {"round": state["round"] + 1}, answers)
        levels = state.get("levels", "")
        columns = self._columns(state["n_features"], state["columns"], levels)
        n, places = messages["n"], columns.places_of_levels()
        parents = number_parents(state["parents"])[1] if levels else []
        sizes = sizes_of_levels(parents, n)
        open_ = open_levels(n, parents, columns.levels, places)
        known = [each[:0] if note else each for each, note in zip(places, open_, strict=True)]
        fixed = columns.fixed_places(_n_covariates(state["covariates"]))
        known, lost = self._known(columns, messages, parents, known, columns.levels, fixed)
        for note in self._crowded(columns, sizes, int(n.sum())):  # before a search that takes long
            warnings.warn(note, IdentificationWarning, stacklevel=6)
        given: dict[str, Any] = {
            "covariance": self.covariance,
            "method": self.method,
            "intercept": self.fit_intercept,
            "fixed": fixed,
        }
        terms, n_rows = columns.sizes_of_terms(known), int(n.sum())

        def fitted(rows: NDArray) -> Fit:
            return fit_mixed_model(rows, parents, n_rows, known, sizes=terms, **given)

        fit, learned = self._minimised(state, messages, fitted)
        ended = {name: x for name, x in state.items() if name != "parents"}
        notes = [*dict.fromkeys(note for note in open_ if note), *lost]
        last = self._end(cast(LinearState, ended | {"round": 1}), columns, fit, known, notes, sizes)
        last = _with_result(last, learned)
        rows = messages["factor"].reshape(-1, messages["factor"].shape[-1])
        last["result"]["notes"] += self._far(columns, lambda: rows.T @ rows)
        if levels:
            last["result"] |= {
                "levels": levels,
                "above": fit.covariances[:-1],
                "above_error": fit.covariance_errors[:-1],
                "n_parents": np.array(sizes[:-1]),
            }
        return last

    def fitted_parameters(self, state: LinearState) -> dict[str, tuple[NDArray, NDArray]]:
        """Return coefficients, variances and the noise, with their standard errors."""
        result, p = state["result"], len(state["result"]["mean"])
        degrees = max(int(state["n"].sum()) - p, 1)
        known = self.covariance != "full"
        errors = np.diag(result["covariance_error"]) if known else np.nan
        noise = result["noise_variance"]
        return {
            "mean": pair(result["mean"], np.diag(result["mean_covariance"])),
            "variance": pair(np.diag(result["covariance"]), errors),
            "noise variance": pair(noise, 2 * noise**2 / degrees),
        }

    def _known(
        self,
        columns: Columns,
        messages: LinearMessage,
        parents: Sequence[NDArray],
        places: Sequence[NDArray],
        levels: Sequence[str],
        fixed: NDArray,
    ) -> tuple[list[NDArray], list[str]]:
        """Return the columns of each level whose effects are not fixed too, and notes on others."""
        rows = messages["factor"]
        rows = rows.reshape(len(rows), -1, rows.shape[-1])
        given = self.fit_intercept, self.covariance, fixed
        lost = confounded(rows, parents, places, *given)
        notes = confounded_notes(lost, places, columns.terms, levels)
        return [own[~out] for own, out in zip(places, lost, strict=True)], notes

    def _minimised(
        self,
        state: LinearState,
        messages: LinearMessage,
        fitted: Callable[[NDArray], Fit],
    ) -> tuple[Fit, dict[str, Any]]:
        """Fit the model, with the noise of levels if rows have some; returns what these add."""
        if "dispersion" not in state:
            return fitted(messages["factor"]), {}
        names = state["dispersion"].split("\n")
        total = messages["counts"].sum(axis=0)
        if not total.all():
            raise ValueError(
                f"dispersion has the level {names[int(np.argmin(total))]!r}, which has no rows "
                "with a weight."
            )
        ids: NDArray = np.arange(len(messages["n"]))
        if "parents" in state:
            labels = np.column_stack([state["parents"], ids]).tolist()
            ids = np.fromiter(map(tuple, labels), object, len(labels))
        block = Dispersed(ids, tuple(names), messages["counts"], messages["factor"])

        def coefficients(rows: Factors, fit: Fit) -> Coefficients:
            known = fit.mean_covariance if self.method == "reml" else 0 * fit.mean_covariance
            levels = [(covariance, None) for covariance in fit.covariances]
            found = posterior_of_levels(rows, rows, fit.mean, known, levels, fit.noise_variance)
            return found[-1][0].blocks()

        found = fit_dispersed(block, lambda rows: fitted(rows.rows), coefficients)
        return found.fit, {"dispersion": state["dispersion"], "ratios": found.ratios}

    def _sought(self, state: LinearState, answers: list[tuple[Question, Answer]]) -> LinearState:
        """Go on with the search for the optimum, to the next question or to the end."""
        columns = self._columns(state["n_features"], state["columns"])
        n, [varying] = state["n"], columns.places_of_levels()
        notes = [note for note in open_levels(n, [], (), [varying]) if note]
        varying = varying[:0] if notes else varying
        found = search(
            answers,
            (int(np.count_nonzero(n)), _width(columns, state["covariates"])),
            int(n.sum()),
            varying,
            covariance=self.covariance,
            method=self.method,
            intercept=self.fit_intercept,
            fixed=columns.fixed_places(_n_covariates(state["covariates"])),
            sizes=columns.sizes_of_terms([varying])[0],
        )
        if not isinstance(found, Fit):
            return state | {"question": found, "answers": answers}
        ended = {name: x for name, x in state.items() if name not in ("question", "answers")}
        width = _width(columns, state["covariates"])
        n_sums = sum(_size(question, width) for question, _ in answers)
        notes += confounded_notes([found.confounded], [varying], columns.terms, [])
        known = varying[~found.confounded]
        last = self._end(
            cast(LinearState, ended), columns, found, [known], notes, [(n > 0).sum()], n_sums
        )
        asked, sums = answers[0]  # what every search asks first
        assert asked["about"] == "products"
        last["result"]["notes"] += self._far(columns, lambda: sums["products"])
        return last

    def _far(self, columns: Columns, products: Callable[[], NDArray]) -> list[str]:
        """Note columns far from zero, by sums of the products of these and others after them."""
        blocks, p = columns.blocks_of_levels(self.covariance), len(columns)
        spherical = self.covariance == "spherical"
        return far_notes(blocks, columns.terms, lambda: products()[:p, :p], spherical)

    def _crowded(self, columns: Columns, sizes: Sequence[int], n_rows: int) -> list[str]:
        """Note terms with more correlated coefficients than groups of their level."""
        if self.covariance != "full" or n_rows <= len(columns):  # of few rows nothing is searched
            return []
        return crowded_notes(columns.terms_of_levels(), sizes, columns.terms)

    def _end(
        self,
        state: LinearState,
        columns: Columns,
        fit: Fit,
        varying: Sequence[NDArray],
        notes: list[str],
        sizes: Sequence[int],
        n_sums: int = 0,
    ) -> LinearState:
        """Add what was learned of so many groups of each level, in plain numbers."""
        terms = columns.terms
        if state["n"].sum() <= fit.rank:
            notes = [*notes, NO_ROWS_LEFT]
        covariates = state["covariates"].split("\n") if state["covariates"] else []
        estimable = Estimable(fit.null, columns.of_mean(covariates))
        if fit.null.shape[1]:
            notes = [*notes, collinear_note(estimable)]
        # of any covariance, that of collinear columns is one of their sum
        own = estimable.coefficients if self.covariance == "full" else np.ones(len(fit.null), bool)
        for note in notes:
            warnings.warn(note, IdentificationWarning, stacklevel=7)
        # the density of rows is that of rows times the roots of their weights, times these roots
        criterion = fit.criterion - state["log_weight"]
        notes = [*notes, *self._crowded(columns, sizes, int(state["n"].sum()))]
        result: LinearResult = {
            "mean": fit.mean,
            "mean_covariance": fit.mean_covariance,
            "null": fit.null,
            "covariance": fit.covariances[-1],
            "covariance_error": fit.covariance_errors[-1],
            "noise_variance": fit.noise_variance,
            "criterion": criterion,
            "n_parameters": fit.rank + columns.n_spreads(self.covariance, varying) + 1,
            "notes": notes + _remarks(terms, fit, own, varying, state.get("levels", "")),
            "n_sums": n_sums,
            "covariates": state["covariates"],
        }
        return state | {
            "done": True,
            "history": [{"criterion": value} for value in fit.path],
            "log_likelihood": -criterion / 2,
            "converged": fit.converged if fit.path else None,
            "result": result,
        }


def levels_of_noise(facts: RegressionFacts) -> str:
    """Return the names of all levels of noise that clients state, one to a line."""
    stated = facts["dispersion"].tolist() if "dispersion" in facts else []
    return "\n".join(sorted({name for each in stated for name in each.split("\n")}))


def _with_result(state: LinearState, learned: dict[str, Any]) -> LinearState:
    """Add what the noise of levels is, and their number to that of the parameters."""
    if learned:
        n_more = len(learned["ratios"]) - 1
        more = {"n_parameters": state["result"]["n_parameters"] + n_more}
        state["result"] = state["result"] | more | learned
    return state


def _width(columns: Columns, covariates: str) -> int:
    """Return the number of columns of a factor."""
    return len(columns) + _n_covariates(covariates) * len(columns.varying_places()) + 1


def _n_covariates(covariates: str) -> int:
    """Count the names of covariates, one to a line."""
    return len(covariates.split("\n")) if covariates else 0


def _size(question: Question, width: int) -> int:
    """Count the sums that answer a question."""
    return sum(math.prod(shape) for shape in shapes_of(question, width).values())


def _remarks(
    names: list[str], fit: Fit, own: NDArray, varying: Sequence[NDArray], levels: str
) -> list[str]:
    """Note which parameters are at a boundary, of columns that have a variance of their own."""
    remarks = []
    if fit.noise_variance == 0 and fit.covariances.any():
        remarks.append(NOISELESS)
    elif fit.noise_variance == 0:
        remarks.append(
            "The mean coefficients explain all rows: noise and spread are taken to be zero."
        )
    elif fit.path:
        groups = groups_of(levels.split("\n") if levels else ())
        for called, G, places in zip(groups, fit.covariances, varying, strict=True):
            some = places[own[places]]
            remarks += boundary_notes([(called, [names[j] for j in some], G[np.ix_(some, some)])])
    return remarks
