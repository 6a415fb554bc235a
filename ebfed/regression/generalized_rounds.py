"""The rounds of a generalized linear model: clients judge a population, the server steps.

In the first round clients send the sizes of their columns, from which the server chooses units.
(With ``share="sums"`` sizes are about the mean of all rows, which is asked for before.) Then each
round asks about a population: clients send the log-likelihood of their rows with its derivatives,
by quadrature or what approximates it, and the server takes a step of Newton's (see `climb`).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ebfed import kernels
from ebfed.arguments import check_choice
from ebfed.engines.base import cut
from ebfed.engines.robust import alone_in_units, newton_step, pair, shifts_of_steps
from ebfed.engines.sums import Share, check_share, check_sums, sums_of, totals_of
from ebfed.inference.estimable import Estimable, collinear_note
from ebfed.inference.sums import turned_back
from ebfed.priors import IdentificationWarning
from ebfed.privacy.calibration import check_count
from ebfed.regression.classes import check_not_one_class, check_two_classes
from ebfed.regression.columns import INTERCEPT, Columns, Varying
from ebfed.regression.families import ResponseFamily, Responses
from ebfed.regression.generalized_ascent import (
    FIRST_SPREAD,
    SAME,
    ascend,
    ascend_again,
    begin,
    coordinates,
    population_of,
)
from ebfed.regression.levels import (
    check_levels,
    far_notes,
    groups_of,
    names_in,
    open_levels,
    sizes_of_levels,
    stated_levels,
)
from ebfed.regression.notes import (
    LAPLACE,
    NO_INFORMATION,
    PERFECT,
    UNBOUNDED,
    boundary_notes,
    warn_of_unending,
)
from ebfed.regression.numerics.directions import find_directions
from ebfed.regression.numerics.quadrature_population import (
    Covariance,
    QuadraturePopulation,
    entries_of,
    square_of,
)
from ebfed.regression.numerics.spread_doubt import spread_nodes
from ebfed.regression.posteriors import quadrature
from ebfed.regression.posteriors.quadrature import METHODS, Method, method_for
from ebfed.regression.protocol import (
    GeneralizedMemory,
    GeneralizedMessage,
    GeneralizedResult,
    GeneralizedSent,
    GeneralizedState,
    RegressionFacts,
    RegressionState,
)
from ebfed.regression.rounds import ROUNDING, RegressionRounds, check_products, check_shapes
from ebfed.regression.separation import Endless
from ebfed.tables.clients import Clients
from ebfed.tables.labels import number_parents
from ebfed.tables.of_rows import check_whole

__all__ = ["GeneralizedRounds", "sums_of_clients"]


@dataclass(frozen=True, kw_only=True)
class GeneralizedRounds(RegressionRounds[Any, Any, Any, Any]):
    """Generalized linear models in rounds; parameters are those of `GeneralizedEB`."""

    family: ResponseFamily
    covariance: Covariance
    varying: Varying
    fit_intercept: bool
    n_rounds: int
    method: Method = "auto"
    share: Share = "groups"
    fixed: Sequence[str | int] | None = None
    # What rows say of finite estimates; None where they are at nodes.
    endless: Endless | None = None

    @property
    def sends(self) -> str:  # type: ignore[override]
        """What the ledger says clients send."""
        if self.share == "sums":
            return "sums over groups of derivatives of their log-likelihoods, as they are"
        return "figures of each client's rows, as they are"

    # Clients ----------------------------------------------------------------------------------

    def describe(self, clients: Clients, memory: Any) -> RegressionFacts:
        """State numbers of rows, columns, labels of classes, and parents of groups."""
        facts = super().describe(clients, memory) | stated_levels(self.estimator, clients)
        facts["n"] = clients.totals()
        if "parents" in facts:
            facts["n_tops"] = np.array([len(np.unique(facts["parents"][:, 0]))])
        if self.estimator._numeric:  # rows have a response, a weight and an offset
            facts["offset"] = np.array([bool(np.asarray(clients.y)[:, 2].any())])
            each = Responses.of(replace(clients, weight=None))
            facts["alone"] = np.array([self.family.alone(each)])  # whether one row is enough
        return facts

    def block(self, clients: Clients, weight: NDArray[np.float64] | None = None) -> Clients:
        """Return clients with the numbers of rows that each row stands for."""
        if weight is None:
            return clients
        check_whole(weight, self.family.name)
        return clients.weighted(weight)

    def responses(self, clients: Clients, sent: GeneralizedSent) -> Responses:
        """Return what was observed in the rows of clients."""
        return Responses.of(clients, sent.get("classes"))

    def local(
        self, sent: GeneralizedSent, memory: GeneralizedMemory, clients: Clients, rng: Any
    ) -> tuple[GeneralizedMessage, GeneralizedMemory]:
        """Send figures of each client, or their sums."""
        message, memory = self._figures(sent, memory, clients)
        if self.share == "sums":
            message = cast(GeneralizedMessage, sums_of(cast(dict, message)))
        return message, memory

    def _figures(
        self, sent: GeneralizedSent, memory: GeneralizedMemory, clients: Clients
    ) -> tuple[GeneralizedMessage, GeneralizedMemory]:
        """Return sizes of columns; then a log-likelihood with its derivatives."""
        if sent["phase"] == "centre":
            weighed = clients.weights()[:, None] * clients.X
            return {"centre": sums_of_clients(weighed, clients)}, memory
        if sent["phase"] == "size":
            return self._measure(clients, self.responses(clients, sent), sent.get("centre")), memory
        if len(sent["sizes"]) == 1 and len(clients.alike[0]) < len(clients):
            some, kind = clients.alike  # figures of clients of equal rows are computed once
            known = cast(GeneralizedMemory, cut(cast(dict, memory), some))
            found, kept = self._derivatives(sent, known, clients.take(some))
            message, own = (cut(cast(dict, each), kind) for each in (found, kept))
            return cast(GeneralizedMessage, message), cast(GeneralizedMemory, own)
        return self._derivatives(sent, memory, clients)

    def _derivatives(
        self, sent: GeneralizedSent, memory: GeneralizedMemory, clients: Clients
    ) -> tuple[GeneralizedMessage, GeneralizedMemory]:
        """Return log-likelihoods of clients with their derivatives."""
        rows = self.responses(clients, sent)
        if "base" in memory:
            base = memory["base"], np.zeros((len(clients), 0)), np.zeros((len(clients), 0))
        else:
            base = self._base(clients, rows, sent["shapes"])
        evidence, score, curvature, mode = quadrature.derivatives(
            clients,
            rows,
            self.family,
            sent["shapes"],
            base,
            frame=sent["frame"],
            mean=sent["mean"],
            root=sent["root"],
            places=sent["places"],
            sizes=sent["sizes"],
            entries=entries_of(sent["blocks"], self.covariance == "spherical"),
            accuracy=sent["phase"],  # type: ignore[arg-type]
            start=memory.get("mode"),
            method=sent["method"],
        )
        message: GeneralizedMessage = {
            "evidence": evidence,
            "score": score,
            "curvature": curvature,
        }
        memory = memory | {"mode": mode}
        return message, memory if len(sent["shapes"]) else memory | {"base": base[0]}

    def _base(self, clients: Clients, rows: Responses, shapes: NDArray) -> quadrature.Base:
        """Return what log-likelihoods of clients have besides their parts in predictors."""
        times = clients.weights()  # rows that one stands for have their own trials
        each = replace(rows, weight=rows.weight / times)
        value, first, second = self.family.base(each, shapes)
        parts = np.column_stack([value, first, second]) * times[:, None]
        s = first.shape[1]
        sums = sums_of_clients(parts, clients)
        return sums[:, 0].copy(), sums[:, 1 : 1 + s], sums[:, 1 + s :]

    def _measure(
        self, clients: Clients, rows: Responses, about: NDArray | None
    ) -> GeneralizedMessage:
        """Products of each client's rows, and what the search begins from.

        They are about a given centre, or the client's own, which is sent with them. ``mixed`` is
        whether rows bound the likelihood from both sides, as those of two classes do.
        """
        X, times = np.asarray(clients.X), clients.weights()[:, None]
        totals = np.maximum(sums_of_clients(times, clients), 1)
        centre = sums_of_clients(times * X, clients) / totals
        products = _products(clients, centre)
        limited = self.family.limited(rows)
        mixed = np.ones(len(clients))
        if limited is not None:
            mixed = (sums_of_clients(limited, clients) > 0).all(axis=1).astype(float)
        message: GeneralizedMessage = {"products": products, "mixed": mixed}
        if self.family.n_figures:
            message["figures"] = sums_of_clients(self.family.figures(rows), clients)
        if about is None:
            return message | {"centre": centre}
        apart = _products(clients, np.tile(about, (len(clients), 1)))
        return message | {"products": apart, "within": np.einsum("ijj->ij", products).copy()}

    def bits(self, sent: GeneralizedSent, clients: Clients) -> float:
        """Bits of a log-likelihood with its derivatives."""
        p = clients.X.shape[1]
        numbers = 1 + p + p * (p + 1) // 2
        fitted = sent["result"] if sent["done"] else sent
        if sent["done"] or "places" in sent:
            d = p + len(entries_of(fitted["blocks"], self.covariance == "spherical")[0])
            d += len(fitted["shapes"])
            numbers = 1 + d + d * (d + 1) // 2
        return 64.0 * (1 if self.share == "sums" else len(clients)) * numbers

    # Server -----------------------------------------------------------------------------------

    def check_facts(self, facts: Any) -> None:
        super().check_facts(facts)
        check_levels(facts)
        if "parents" in facts:
            tops, known = facts.get("n_tops"), len(np.unique(facts["parents"][:, 0]))
            if not (isinstance(tops, np.ndarray) and tops.tolist() == [known]):
                raise ValueError("facts must have the number of groups of the outermost level.")
        for name in ("offset", "alone") if self.estimator._numeric else ():
            stated = facts.get(name)
            sound = isinstance(stated, np.ndarray) and stated.dtype == bool
            if not (sound and stated.shape == (1,)):
                raise ValueError(f"facts must say {name!r} of rows, yes or no.")

    def begin(self, state: RegressionState, facts: RegressionFacts) -> GeneralizedState:
        self._check_arguments()
        names = names_in(facts)
        levels = tuple(names.split("\n")) if names else ()
        given = bool(self.fit_intercept), self.varying, levels, self.fixed
        columns = Columns(state["n_features"], state["columns"], *given)
        fixed = columns.fixed_places()
        columns.check_terms(self.covariance)
        varies = columns.varies()
        open_ = self._open_questions(facts, columns)
        notes = list(dict.fromkeys(note for note in open_ if note))
        of_rows: Any = {}
        if "offset" in facts:
            of_rows = {"has_offset": bool(facts["offset"].any())}
        if "classes" in facts:
            of_rows = {"classes": np.unique(facts["classes"])}
            check_two_classes(of_rows["classes"])
            check_not_one_class(of_rows["classes"])
        if self.family.classes and not (columns.terms[:1] == [INTERCEPT] and 0 in fixed):
            raise ValueError(
                f"family={self.family.name!r} needs fit_intercept=True, and a mean of the "
                "intercept: the first threshold is zero, and the intercept takes its place."
            )
        for note in notes:
            warnings.warn(note, IdentificationWarning, stacklevel=8)
        n_groups = [int((facts["n"] > 0).sum())]
        if levels:
            n_groups = sizes_of_levels(number_parents(facts["parents"])[1], facts["n"])
        return {
            **state,
            **of_rows,
            "n_groups": np.array(n_groups),
            "phase": "centre" if self.share == "sums" else "size",
            "levels": names,
            "of_levels": columns.blocks_of_levels(self.covariance),
            "known": np.array([not note for note in open_]),
            "estimates_spread": not all(open_),
            "varies": varies,
            "fixed": fixed,
            "notes": notes,
            "log_likelihood": -np.inf,
        }

    def _open_questions(self, facts: RegressionFacts, columns: Columns) -> list[str]:
        """Note of each level what numbers of groups and rows alone do not identify, if anything.

        Raises
        ------
        ValueError
            If groups of one parent are with several nodes.
        """
        if columns.levels and int(facts["n_tops"].sum()) != len(np.unique(facts["parents"][:, 0])):
            raise ValueError(
                f"all groups of a {columns.levels[0]} must be with one node: the likelihood of "
                "its rows is no product over its groups. Fit them where they are together."
            )
        parents = number_parents(facts["parents"])[1] if columns.levels else []
        given = columns.levels, columns.places_of_levels(), bool(np.any(facts.get("alone", False)))
        return open_levels(facts["n"], parents, *given)

    def _check_arguments(self) -> None:
        check_share(self.share)
        check_choice("covariance", self.covariance, ("diag", "spherical", "full"))
        check_count("n_rounds", self.n_rounds)
        self._check_method()

    def _check_method(self) -> None:
        check_choice("method", self.method, METHODS)

    def ask(self, state: GeneralizedState) -> GeneralizedSent:
        """Ask for sizes of columns, or for what a population is to be judged by."""
        assert state["phase"] != "end"
        sent: GeneralizedSent = {
            "done": False,
            "round": state["round"],
            "phase": state["phase"],
        }
        if "classes" in state:
            sent["classes"] = state["classes"]
        if "centre" in state and "frame" not in state:
            sent["centre"] = state["centre"]
        if "point" not in state:
            return sent
        asked = population_of(state, self.covariance)
        return sent | {
            "frame": asked.frame,
            "places": asked.places,
            "sizes": np.array(asked.sizes),
            "blocks": asked.blocks,
            "mean": asked.mean,
            "root": asked.root,
            "shapes": asked.shapes,
            "method": state["method"],
        }

    def check_message(
        self,
        message: GeneralizedMessage,
        facts: RegressionFacts,
        sent: GeneralizedSent,
        turn: NDArray,
    ) -> None:
        """Raise a ValueError if clients that stated these facts cannot have sent this."""
        m, shapes = len(facts["n"]), self._parts(sent, int(facts["n_features"][0]))
        if self.share == "sums":
            return check_sums(message, shapes, m)
        check_shapes(message, {name: (m, *shape) for name, shape in shapes.items()})
        if sent["phase"] == "size":
            check_products("products", message["products"])
            if not np.isin(message["mixed"], (0.0, 1.0)).all():
                raise ValueError("mixed must be 0 or 1.")

    def _parts(self, sent: GeneralizedSent, n_features: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of what a client sends."""
        p = n_features + bool(self.fit_intercept)
        if sent["phase"] == "centre":
            return {"centre": (p,)}
        if sent["phase"] == "size":
            parts: dict[str, tuple[int, ...]] = {"products": (p, p), "mixed": ()}
            if self.family.n_figures:
                parts["figures"] = (self.family.n_figures,)
            return parts | {"within" if "centre" in sent else "centre": (p,)}
        d = len(sent["mean"])
        d += len(entries_of(sent["blocks"], self.covariance == "spherical")[0])
        d += len(sent["shapes"])
        return {"evidence": (), "score": (d,), "curvature": (d * (d + 1) // 2,)}

    def fitted_parameters(self, state: GeneralizedState) -> dict[str, tuple[NDArray, NDArray]]:
        """Return coefficients, variances and shapes, with standard errors of the first and last."""
        result = state["result"]
        return {
            "mean": pair(result["mean"], np.diag(result["mean_covariance"])),
            "variance": pair(np.diag(result["covariance"])),
            "shapes": pair(result.get("shapes", np.zeros(0))),
        }

    def shifts(
        self, before: GeneralizedState, after: GeneralizedState, messages: Any
    ) -> NDArray[np.float64]:
        """Return how far the maximum moves by each node, by a step of Newton's without it.

        NaN before the last round, but infinite where a node decides alone on the units of columns.
        """
        if before["phase"] == "size":
            width = len(before["varies"])
            diagonals = [x["products"].reshape(-1, width, width) for x in messages]
            return alone_in_units(np.array([np.einsum("ijj->j", each) for each in diagonals]))
        if not after["done"] or "point" not in before:
            return np.full(len(messages), np.nan)
        here = population_of(before, self.covariance)
        scores = np.array([each["score"].sum(axis=0) for each in messages])
        curvatures = np.array([each["curvature"].sum(axis=0) for each in messages])

        def step(chosen: NDArray) -> tuple[NDArray, NDArray]:
            sums = scores[chosen].sum(axis=0), square_of(curvatures[chosen].sum(axis=0))
            return newton_step(*here.chain(*sums))

        return shifts_of_steps(len(messages), step, settled=False)

    def update(self, state: GeneralizedState, messages: GeneralizedMessage) -> GeneralizedState:
        """Take a step of the population's parameters."""
        if self.share == "sums":  # as if all rows were one client's
            parts = self._parts(self.ask(state), state["n_features"])
            sums = totals_of(cast(dict, messages), parts, len(state["n"]))
            messages = cast(GeneralizedMessage, {name: x[None] for name, x in sums.items()})
        state = self._step(state, messages) | {"round": state["round"] + 1}
        if state["phase"] == "end":
            state = ascend_again(state, self.covariance, self.family.calm)
        return self._end(state) if state["phase"] == "end" else state

    def _step(self, state: GeneralizedState, messages: GeneralizedMessage) -> GeneralizedState:
        if state["phase"] == "centre":
            centre = messages["centre"][0] / max(int(state["n"].sum()), 1)
            return state | {"phase": "size", "centre": centre}
        if state["phase"] == "size":
            return self._begin(state, messages)
        return ascend(state, messages, self.covariance, self.n_rounds)

    def _begin(self, state: GeneralizedState, messages: GeneralizedMessage) -> GeneralizedState:
        """Choose units from the sizes of columns, and the first population."""
        state, start = self._coordinates(state, messages)
        state["method"] = method_for(self.method, self.family, start.sizes)
        if state["method"] == "laplace":
            state["notes"] = [*state["notes"], LAPLACE]
        begun = getattr(self.estimator, "_begun", None)
        if begun is not None:  # one nearby, if there is a fit
            covariances = [*begun["above"], begun["covariance"]]
            return begin(state, start.near(begun["mean"], covariances, begun["shapes"]), "coarse")
        figures = messages.get("figures", np.zeros((1, 0))).sum(axis=0)
        intercept, shapes = self.family.begin(figures)
        known = self.fit_intercept and 0 in state["fixed"]
        start = start.start(FIRST_SPREAD, intercept if known else 0.0, shapes)
        return begin(state, start, "coarse")

    def _coordinates(
        self, state: GeneralizedState, messages: GeneralizedMessage
    ) -> tuple[GeneralizedState, QuadraturePopulation]:
        """Choose units from the sizes of columns."""
        n, centre = state["n"], messages.get("centre")
        N = max(int(n.sum()), 1)
        if centre is None:
            n, centre = np.array([N]), state["centre"][None]
        within = messages["products"].sum(axis=0) / N
        inside = messages["within"].sum(axis=0) / N if "within" in messages else np.diag(within)
        middle = n @ centre / N
        square = np.diag(within) + n @ centre**2 / N
        apart = square - middle**2 > SAME * square  # not constant
        if self.covariance == "spherical":
            square = np.full(len(square), square.mean())
        empty = square == 0
        unit = 1 / np.sqrt(np.where(empty, 1.0, square))
        fixed = state["fixed"]
        intercept = bool(self.fit_intercept) and 0 in fixed
        own = within[np.ix_(fixed, fixed)], centre[:, fixed], n / N, intercept
        place = np.eye(len(within))[:, fixed]
        ways, null = (place @ each for each in find_directions(*own))
        levels = tuple(state["levels"].split("\n")) if state["levels"] else ()
        columns = Columns(
            state["n_features"], state["columns"], bool(self.fit_intercept), None, levels
        )
        spread = within + ((n * (centre - middle).T) @ (centre - middle)) / N
        notes = list(state["notes"])
        notes += far_notes(
            state["of_levels"],
            columns.terms,
            lambda: N * (spread + np.outer(middle, middle)),
            self.covariance == "spherical",
        )
        if null.shape[1]:
            notes += [collinear_note(Estimable(null, columns.terms))]
            warnings.warn(notes[-1], IdentificationWarning, stacklevel=8)
        state = state | {
            "null": null,
            "notes": notes,
            "gain": np.inf,
            # where the likelihood has no maximum
            "unlimited": state["estimates_spread"] and not messages["mixed"].any(),
            "perfect": PERFECT * N if self.family.certain else np.inf,
            "unit": unit,
            "empty": empty,
            "between": ~state["varies"] & apart & (inside < SAME * square),
            "directions": ways,
        }
        start = coordinates(state, ways, unit, empty, middle, spread, self.covariance, intercept)
        return state, start

    def _end(self, state: GeneralizedState) -> GeneralizedState:
        """Add what was learned, in plain numbers."""
        notes = list(state["notes"])
        fitted = population_of(state, self.covariance)
        mean, roots = fitted.seen()
        covariances = [root @ root.T for root in roots]
        if fitted.at_bounds()[1] or state["unlimited"]:
            notes += [UNBOUNDED]
            warnings.warn(UNBOUNDED, IdentificationWarning, stacklevel=8)
        else:
            notes += self._at_boundary(state, covariances)
        endless = self.endless
        if endless is not None:
            endless = endless if endless.terms else None
        elif UNBOUNDED not in notes and self.family.may_be_endless:  # rows are at nodes
            k, perfect = fitted.ways.shape[1], bool(state["log_likelihood"] > state["perfect"])
            information = np.linalg.eigvalsh(-state["second"][:k, :k])
            if perfect or np.any(information < NO_INFORMATION):
                endless = Endless(complete=perfect)
        said = warn_of_unending(endless)
        notes += said
        result: GeneralizedResult = {
            "mean": mean,
            "mean_covariance": state["mean_covariance"],
            "covariance": covariances[-1],
            "root": roots[-1],
            "above": covariances[:-1],
            "roots_above": roots[:-1],
            "levels": state["levels"],
            "sizes": np.array(fitted.sizes),
            "blocks": fitted.blocks,
            "null": state["null"],
            "shapes": fitted.shapes,
            "shape_covariance": fitted.shape_covariance(state["second"]),
            "notes": notes,
            "method": state["method"],
        }
        if "classes" in state:
            result["classes"] = state["classes"]
        if UNBOUNDED not in notes and not said:
            result |= self._nearby(state, fitted)
        if "has_offset" in state:
            result["has_offset"] = state["has_offset"]
        return state | {"done": True, "result": result}

    def _at_boundary(self, state: GeneralizedState, covariances: Sequence[NDArray]) -> list[str]:
        """Note variances that are zero, of those that were estimated."""
        columns = Columns(state["n_features"], state["columns"], bool(self.fit_intercept))
        terms, names = np.array(columns.terms, object), state["levels"]
        open_ = (state["of_levels"] >= 0) & state["known"][:, None] & ~state["empty"]
        groups = groups_of(names.split("\n") if names else ())
        parts = zip(groups, open_, covariances, strict=True)
        return boundary_notes((name, terms[own], G[np.ix_(own, own)]) for name, own, G in parts)

    def _nearby(self, state: GeneralizedState, fitted: QuadraturePopulation) -> GeneralizedResult:
        """Return populations that the rows do not tell from the fitted one."""
        weights, points, parameters, ratios = spread_nodes(
            fitted,
            state["second"],
            state["information"],
            state["n_groups"],
            int(state["between"].sum()),
            bool(self.fit_intercept) and 0 in state["fixed"],
        )
        seen = [fitted.at(point).seen() for point in points]
        means, roots = [mean for mean, _ in seen], [root for _, root in seen]
        known = state["mean_covariance"]
        p, covariances = len(known), np.tile(known, (len(seen), 1, 1))
        # of several levels it is not known whose columns these are, nor of collinear ones
        turn = fitted.frame
        if len(fitted.sizes) == 1 and turn.shape == (p, p):
            inside = turned_back(turn, known)
            for each, place, ratio in zip(covariances, parameters, ratios, strict=True):
                own = np.arange(p) == fitted.places[fitted.entries[0][place]]
                own |= own[0] & state["between"]
                each += (ratio - 1) * turn @ _between_groups(inside, own) @ turn.T
        return cast(
            GeneralizedResult,
            {
                "node_weights": weights,
                "node_parameters": parameters,
                "node_means": np.reshape(means, (len(seen), len(fitted.frame))),
                "node_mean_covariances": covariances,
                "node_roots": [np.array(each) for each in zip(*roots, strict=True)],
            },
        )


def _between_groups(known: NDArray, own: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Covariance of coefficients of columns that differ between groups, if others were known.

    It grows with the total variance of what these columns explain.
    """
    size = np.sqrt(np.diag(known))  # so that units of columns do not matter
    unit = np.outer(size, size)
    scaled = np.divide(known, unit, out=np.zeros_like(known), where=unit > 0)
    found, places = np.zeros_like(known), np.ix_(own, own)
    inverse = np.linalg.pinv(scaled, ROUNDING, hermitian=True)
    found[places] = np.linalg.pinv(inverse[places], ROUNDING, hermitian=True)
    return found * unit


def _products(clients: Clients, about: NDArray) -> NDArray[np.float64]:
    """Products of the rows of each client, about its centre."""
    if clients.weight is None:
        X = np.require(clients.X, float, ["C", "W"])
        return kernels.products_of_clients(X, clients.indptr, about)
    rows = np.sqrt(clients.weight)[:, None] * (clients.X - np.repeat(about, clients.n, axis=0))
    return kernels.products_of_clients(rows, clients.indptr, np.zeros_like(about))


def sums_of_clients(values: NDArray, clients: Clients) -> NDArray[np.float64]:
    """Sum the rows of each client, one after the other: blocks make no difference."""
    return kernels.sums_of_clients(np.require(values, float, ["C", "W"]), clients.indptr)
