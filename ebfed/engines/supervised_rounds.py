"""Rounds of methods whose clients have features and a response: what all of them state and keep."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ebfed.arguments import check_single
from ebfed.engines.protocol import Rounds

__all__ = ["SupervisedRounds"]


class SupervisedRounds(Rounds):
    """What the protocols of supervised methods have in common."""

    # Nor is it kept who took part in the last round.
    forgets: ClassVar[tuple[str, ...]] = (*Rounds.forgets, "turn")

    def describe(self, clients: Any, memory: Any) -> Any:
        """State numbers of rows, and columns."""
        return {
            "n": clients.n,
            "n_features": np.array([self.estimator.n_features_in_]),
            "columns": np.array(["\n".join(getattr(self.estimator, "feature_names_in_", ()))]),
        }

    def check_facts(self, facts: Any) -> None:
        kinds = {"n": "i", "n_features": "i", "columns": "U"}
        sound = facts.keys() >= kinds.keys() and all(
            isinstance(facts[name], np.ndarray)
            and facts[name].dtype.kind == kind
            and facts[name].ndim == 1
            for name, kind in kinds.items()
        )
        if not (
            sound
            and len(facts["n"]) > 0
            and len(facts["n_features"]) == len(facts["columns"]) == 1
            and facts["n"].min() >= 0
            and facts["n_features"][0] + getattr(self.estimator, "fit_intercept", 0) > 0
        ):
            raise ValueError("facts must be numbers of rows, and columns.")

    def first_state(self, facts: Any, key: NDArray) -> Any:
        """Return what all methods keep before the first round."""
        check_single(self.estimator)
        for name in ("n_features", "columns"):
            different = sorted(set(facts[name].tolist()))
            if len(different) > 1:
                raise ValueError(f"clients have different columns: {different}.")
        return {
            "round": 0,
            "done": False,
            "turn": np.zeros(len(facts["n"]), np.int8),
            "key": key,
            "n": facts["n"],
            "n_features": int(facts["n_features"][0]),
            "columns": str(facts["columns"][0]),
            "history": [],
            "converged": None,
        }
