"""What a formula says of the response of rows: numbers, labels, counts, and offsets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ebfed.designs.design import Context, Design, values_of
from ebfed.designs.grammar import FormulaTerms, column_name
from ebfed.designs.terms import evaluated, required
from ebfed.formula.choice import family_of
from ebfed.formula.rows import CompleteRows, responses
from ebfed.tables.alignment import aligned
from ebfed.tables.columns import Columns
from ebfed.tables.of_rows import are_shares, won_of_shares
from ebfed.tables.values import NotNumericError, not_numeric, numbers

__all__ = ["Response"]


@dataclass
class Response:
    """Response of the rows of a formula, as its estimator takes it.

    Of two labels the second is the event, whose probability is modelled: the second level of a
    category, and the second in sorted order of other labels, as in R.

    Attributes
    ----------
    model : FormulaTerms
    context : Context
        What its expressions use besides columns.
    kind : {"numbers", "labels", "events", "classes"}
        Numbers, or labels, as they are; two labels, as 0 and 1; or the numbers of ordered
        categories, from 1.
    levels : tuple
        Labels, in their order.
    designs : dict of Design
        Expressions, with what they keep of the rows of the fit: the mean of ``center(y)``.
    """

    model: FormulaTerms
    context: Context
    kind: str = "numbers"
    levels: tuple[Any, ...] = ()
    designs: dict[str, Design] = field(default_factory=dict)

    @classmethod
    def of_rows(cls, model: FormulaTerms, rows: CompleteRows, context: Mapping[str, Any]) -> Self:
        """Return the response of rows, as it is."""
        return cls(model, Context.of(responses(model, rows.data.names), rows.data, context))

    def has_trials(self, rows: CompleteRows) -> bool:
        """Whether rows are of several trials: counts, or shares whose weights are the trials."""
        if self.model.counts or rows.weights is None:
            return self.model.counts
        return are_shares(self._values(self.model.response, rows.data))

    def learned(self, rows: CompleteRows, estimator: Any) -> Self:
        """Return the response with the labels that there are, as an estimator takes them."""
        model, family = self.model, family_of(estimator)
        if model.counts or family not in ("binomial", "ordinal", "labels"):
            return self
        if getattr(estimator, "binarize", None) is not None:
            return self
        order, present = self._labels(rows.data)
        if family == "ordinal":
            if order is None:
                return self
            used = tuple(each for each in order if each in present)
            return replace(self, kind="classes", levels=used)
        if order is None and are_shares(np.array(present)):
            if rows.weights is None:
                raise ValueError(
                    f"response {model.response!r} has shares: weights= must be the numbers of "
                    "trials; or write cbind(successes, trials=…)."
                )
            return self
        labels = present if order is None else [each for each in order if each in present]
        if len(labels) == 2 and (labels != present or not (family == "labels" or _plain(labels))):
            return replace(self, kind="events", levels=tuple(labels))
        if family == "labels":
            return replace(self, kind="labels", levels=tuple(labels) if len(labels) == 2 else ())
        return self

    @classmethod
    def of_data(cls, model: FormulaTerms, context: Context, data: Mapping[str, Any]) -> Self:
        """Make a response of plain data."""
        kept = data.get("designs", {})
        designs = {
            text: Design.of_data(evaluated(text), context, kept[text])
            for text in (*model.observed, model.offset)
            if text in kept
        }
        return cls(model, context, data["kind"], tuple(data["levels"]), designs)

    def as_data(self) -> dict[str, Any]:
        """Return what was learned as plain data."""
        plain = [each.item() if isinstance(each, np.generic) else each for each in self.levels]
        designs = {text: design.as_data() for text, design in self.designs.items()}
        return {"kind": self.kind, "levels": plain, "designs": designs}

    @property
    def figures(self) -> list[str]:
        """Expressions that keep figures of the rows of the fit, such as ``center(y)``."""
        return [each for design in self.designs.values() for each in design.figures]

    def _values(self, text: str, data: Columns, numeric: bool = False) -> NDArray:
        """Values of a column, as they are, or of an expression, as it was in the fit."""
        if (name := column_name(text)) in data.names:
            found = data.series(name) if numeric else data.values(name)
            return numbers(found, f"column {name!r}", booleans=True) if numeric else found
        if text not in data.computed:
            if text in self.designs:
                data.computed[text] = self.designs[text].of(data)[:, 0]
            else:
                data.computed[text], design = values_of(text, data, self.context)
                assert design is not None
                self.designs[text] = design
        return data.computed[text]

    def _labels(self, data: Columns) -> tuple[list[Any] | None, list[Any]]:
        """Levels of a category in their order, else None; and the labels of rows, sorted."""
        name = column_name(self.model.response)
        order = data.levels(name) if name in data.names else None
        values = self._values(self.model.response, data)
        try:
            present = np.unique(values).tolist()
        except TypeError:  # of several types
            present = sorted(set(values.tolist()), key=str)
        return order, present

    @property
    def notes(self) -> list[str]:
        """Remarks on how the response was read."""
        if self.model.counts:
            return [self.model.counted]
        if self.kind in ("events", "labels") and self.levels and not _plain(list(self.levels)):
            name = column_name(self.model.response)
            return [f"The event is {name} = {_shown(self.levels[1])}."]
        return []

    def of(self, data: Columns, estimator: Any) -> NDArray:
        """Values of the response of rows, as the estimator takes them.

        Raises
        ------
        ValueError
            If labels are not those of the fit, or are given where numbers are needed.
        """
        response = self._values(self.model.response, data)
        if self.kind in ("events", "classes"):
            places = {label: j for j, label in enumerate(self.levels, self.kind == "classes")}
            found = [places.get(label, -1) for label in response.tolist()]
            if -1 in found:
                raise ValueError(
                    f"response {self.model.response!r} has {response[found.index(-1)]!r}; the fit "
                    f"had {', '.join(map(repr, self.levels))}."
                )
            return np.array(found, float)
        numeric = self.kind == "numbers" and family_of(estimator) != "binomial"
        name = column_name(self.model.response)
        if numeric and name in data.names and data.is_category(name):
            raise not_numeric(name, "data", "Categorical")
        if response.dtype.kind in "OUSmM" and self.kind == "numbers":
            raise NotNumericError(self._no_numbers(response, estimator))
        return response

    def _no_numbers(self, response: NDArray, estimator: Any) -> str:
        """Say what to do where labels were given for numbers."""
        name, what = type(estimator).__name__, f"response {self.model.response!r} must be"
        if family_of(estimator) == "binomial":
            found = np.unique(response.astype(str)).tolist()
            shown = ", ".join(map(repr, found[:3])) + ", …" * (len(found) > 3)
            return f"{what} 0 or 1, or have two labels, for {name}; it has {len(found)}: {shown}."
        row = next((j for j, each in enumerate(response.tolist()) if not _is_number(each)), 0)
        there = f" in row {row}" if row else ""
        return (
            f"{what} numbers for {name}; got {str(response[row])!r}{there}. A label of two is "
            "modelled by family='binomial', or made 0 and 1."
        )

    def counts(
        self, data: Columns, weights: NDArray | None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """Successes and trials of each row; None if the response is neither counts nor shares.

        Shares are of as many trials as the weight of their row says, as in R.
        """
        model = self.model
        if not model.counts:
            if weights is None or self.kind != "numbers":
                return None
            values = self._values(model.response, data)
            if values.dtype.kind not in "iuf" or not are_shares(values):
                return None
            return won_of_shares(values, weights, model.response), weights.astype(np.int64)
        second = model.failures or model.trials
        won, total = (self._values(text, data, True) for text in (model.response, second))
        for name, each in ((model.response, won), (second, total)):
            if not np.isfinite(each).all() or np.any((each < 0) | (each % 1 != 0)):
                raise ValueError(f"{name!r} must be counts: whole numbers, not negative.")
        won, total = won.astype(np.int64), total.astype(np.int64)
        trials = total if model.trials else won + total
        if np.any(won > trials):
            row = int(np.argmax(won > trials))
            raise ValueError(
                f"{model.response!r} exceeds its trials {second!r}, first in row {row}. If "
                f"{second!r} counts failures, write cbind({model.response}, {second})."
            )
        return won, trials

    def as_given(self, drawn: NDArray, data: Columns) -> NDArray:
        """Return responses as an estimator has them, of these rows, as the formula has them.

        Those of counts are shares, of which the successes are returned.
        """
        if self.model.counts:
            counts = self.counts(data, None)
            assert counts is not None
            return np.rint(drawn * counts[1]).astype(np.int64)
        if self.levels:
            return np.array(self.levels)[drawn.astype(np.int64) - (self.kind == "classes")]
        return drawn

    def replaced(self, rows: CompleteRows, response: Any) -> CompleteRows:
        """Return the rows with another response; see `FormulaFit.refit`.

        That of an expression is a column of its name, which is read in its place.

        Raises
        ------
        ValueError
            If it is not one value for each row.
        """
        whole, complete = rows.whole or (rows.data, np.ones(len(rows.data), bool))
        new = np.asarray(aligned({"rows": whole.native, "response": response})["response"])
        if rows.whole is not None and new.shape == (len(rows.data),):
            new = rows.padded(new)
        if new.shape != (len(whole),):
            raise ValueError(
                f"response must be one value for each of {len(whole)} rows; got shape {new.shape}."
            )
        if self.levels and (unknown := set(new[complete].tolist()) - set(self.levels)):
            raise ValueError(
                f"response has {min(unknown, key=str)!r}; the fit had "
                f"{', '.join(map(repr, self.levels))}."
            )
        columns = {column_name(self.model.response): new}
        if (lost := column_name(self.model.failures)) in whole.names:  # trials stay
            won, failed = (numbers(whole.series(name), "response") for name in (*columns, lost))
            columns[lost] = won + failed - new
        every = whole.replacing(columns)
        if rows.whole is None:
            return replace(rows, data=every)
        return replace(rows, data=every.take(complete, every.names), whole=(every, complete))

    def offset(self, data: Columns) -> NDArray | None:
        """Offset of each row, if the formula has one.

        Raises
        ------
        ValueError
            If its columns are missing, or it is not finite in some rows.
        """
        if not self.model.offset:
            return None
        values = self._values(self.model.offset, data, True)
        if not np.isfinite(values).all():
            raise ValueError(f"offset {self.model.offset!r} must be a finite number in each row.")
        return values

    def observed(self, data: Columns, there: list[str], classes: Any) -> NDArray | None:
        """Numbers that predictions are compared with, if the frame has them.

        Parameters
        ----------
        data : Columns
        there : list of str
            Columns of the rows of the fit.
        classes : ndarray or None
            Labels of the estimator. Of two it predicts the probability of the second; of more,
            those of all.
        """
        needed = required(responses(replace(self.model, offset=""), there), there)
        if not set(needed) <= set(data.names):
            return None
        if self.model.counts:
            found = self.counts(data, None)
            assert found is not None
            return found[0] / np.maximum(found[1], 1)
        if self.kind in ("events", "classes"):
            return self.of(data, None)
        response = self._values(self.model.response, data)
        if self.kind == "labels" and classes is not None:
            found_in = response[:, None] == np.asarray(classes)[None]
            return found_in[:, 1].astype(float) if len(classes) == 2 else found_in.astype(float)
        return response.astype(float) if response.dtype.kind in "iufb" else None


def _is_number(value: Any) -> bool:
    """Tell whether a value is a number, or text of one, as files have it."""
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    # Python's own numbers have underscores, and digits of other scripts
    return not isinstance(value, str) or (value.isascii() and "_" not in value)


def _plain(labels: list[Any]) -> bool:
    """Whether two labels are 0 and 1, or False and True."""
    return all(isinstance(each, bool | int | float | np.number) for each in labels) and (
        list(labels) == [0, 1]
    )


def _shown(label: Any) -> str:
    return repr(label.item() if isinstance(label, np.generic) else label)
