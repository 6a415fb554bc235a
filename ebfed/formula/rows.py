"""Rows of a frame that a formula uses, and which are chosen by an expression of its columns."""

from __future__ import annotations

import ast
import io
import operator
import re
import tokenize
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ebfed.designs.design import values_of
from ebfed.designs.expressions import names_of
from ebfed.designs.grammar import FormulaTerms
from ebfed.designs.limits import check_text, shortened
from ebfed.designs.terms import evaluated, required
from ebfed.tables import frames
from ebfed.tables.alignment import aligned
from ebfed.tables.columns import Columns, without_values
from ebfed.tables.frames import Style, frame
from ebfed.tables.rows import Rows
from ebfed.tables.values import column, dates_of_objects, numbers, read_labels

__all__ = [
    "ORDERS",
    "WEIGHTS",
    "CompleteRows",
    "Condition",
    "chosen_rows",
    "labelled",
    "responses",
    "used_columns",
]

# Column of weights that were given as numbers; R's name for it.
WEIGHTS = "(weights)"

# What stands for a quoted name, which may not be one of Python.
QUOTED = "quoted_column_"
WORDS = {"&": "and", "|": "or", "~": "not", "!": "not"}

ORDERS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
COMPARISONS: dict[type, Callable[[Any, Any], Any]] = ORDERS | {
    ast.In: lambda x, some: np.isin(x, some),
    ast.NotIn: lambda x, some: ~np.isin(x, some),
}


@dataclass
class CompleteRows:
    """Rows that are complete.

    Attributes
    ----------
    model : FormulaTerms
    data : Columns
    dropped : int
    weights : ndarray of shape (n_rows,) or None
    consent, by, weighed : str or None
        Columns of classes of consent, of levels of noise, and of the weights; `WEIGHTS` if they
        were given as numbers.
    whole : tuple or None
        Of ``na_action="exclude"``: the columns in use of all rows, and which of them are complete.
    there : list of str
        All columns that the frame had.
    times : ndarray of shape (n_rows,) or None
        How many equal rows each one stands for; None: one.
    """

    model: FormulaTerms
    data: Columns
    dropped: int
    weights: NDArray | None = None
    consent: str | None = None
    by: str | None = None
    weighed: str | None = None
    whole: tuple[Columns, NDArray[np.bool_]] | None = None
    there: list[str] = field(default_factory=list)
    times: NDArray[np.float64] | None = None
    # Column of numbers of equal rows.
    counted: ClassVar[str | None] = None

    @classmethod
    def read(
        cls,
        model: FormulaTerms,
        data: Any,
        context: Mapping[str, Any],
        *,
        na_values: Any = None,
        weights: Any = None,
        subset: Any = None,
        dispersion: str | None = None,
        consent: str | None = None,
        na_action: str = "raise",
    ) -> Self:
        """Read the rows of a fit.

        Parameters
        ----------
        model : FormulaTerms
        data : data frame
        context : mapping
            Names that `subset` uses besides columns.
        na_values, weights, subset, dispersion, consent, na_action
            As in `from_formula`.

        Raises
        ------
        TypeError, ValueError
            As of `of`, or if an argument does not fit the frame.
        """
        data = Columns.of(data)
        if na_values is not None:
            data = Columns(without_values(data.table, na_values))
        if weights is not None and not isinstance(weights, str):
            data, weights = with_weights(data, weights), WEIGHTS
        if subset is not None:
            data = data.take(chosen_rows(data, subset, context), data.names)
        by = column_of_dispersion(dispersion)
        return cls.of(model, data, consent, na_action, weights, by)

    def learning(self) -> AbstractContextManager[Any]:
        """Let errors of what is learned of the rows be what they are."""
        return nullcontext()

    def explained(self) -> AbstractContextManager[Any]:
        """Let errors of a fit be those of its rows: they are."""
        return nullcontext()

    def kept(self) -> CompleteRows:
        """Return what a fit keeps: the rows, of which arrays are read again."""
        self.data.forget()
        return self

    def frequencies(self) -> NDArray | None:
        """Return weights of rows, each as often as there are rows equal to it; None without."""
        if self.times is None or self.weights is None:
            return self.weights if self.times is None else self.times
        return self.times * self.weights

    def padded(self, values: NDArray, given: Any = None) -> NDArray:
        """Return what is of complete rows for all rows: missing for those that were excluded.

        Parameters
        ----------
        values : ndarray of shape (n_rows, ...)
        given : data frame, optional
            A frame that the values are of, if that is not the rows of the fit: they stay.
        """
        if self.whole is None or given is not None:
            return values
        complete = self.whole[1]
        kind = float if values.dtype.kind in "biuf" else object
        out = np.full((len(complete), *values.shape[1:]), np.nan if kind is float else None, kind)
        out[complete] = values
        return out

    @property
    def backend(self) -> str:
        """Library of the frame."""
        return self.data.backend

    def classes_of_consent(self, rows: Rows) -> dict[Any, Any]:
        """Return each group's class of consent.

        Raises
        ------
        ValueError
            If a group has two.
        """
        assert rows.labels is not None
        assert self.consent is not None
        labels = rows.labels.tolist()
        chosen = read_labels(self.data.series(self.consent), "consent").tolist()
        classes = dict(zip(labels, chosen, strict=True))
        for label, one in zip(labels, chosen, strict=True):
            if classes[label] != one:
                raise ValueError(
                    f"consent must be one class for each group; {label!r} has {one!r} and "
                    f"{classes[label]!r}."
                )
        return classes

    def as_data(self) -> dict[str, Any]:
        """Return what is known of the frame without its rows, from which `none` makes one."""
        known = {"columns": self.data.names, "backend": self.backend, "dropped": self.dropped}
        of_rows = {"by": self.by, "weighed": self.weighed}
        return known | {name: each for name, each in of_rows.items() if each is not None}

    @classmethod
    def none(
        cls,
        model: FormulaTerms,
        columns: Sequence[str],
        backend: str,
        dropped: int,
        by: str | None = None,
        weighed: str | None = None,
    ) -> Self:
        """Return no rows, in a frame with these columns."""
        data = Columns.of(frame({name: np.zeros(0) for name in columns}, Style(backend)))
        return cls(model, data, dropped, by=by, weighed=weighed)

    @classmethod
    def of(
        cls,
        model: FormulaTerms,
        data: Columns,
        consent: str | None,
        na_action: str,
        weights: str | None = None,
        by: str | None = None,
    ) -> Self:
        """Keep the rows of a frame that have all values that a formula uses.

        Raises
        ------
        TypeError, ValueError
            If it is no frame, a column is missing or is there twice, or a value is missing and
            `na_action` is "raise".
        """
        keys = {"consent": consent, "weights": weights, "dispersion": by, "times": cls.counted}
        used, _ = used_columns(model, data.names, keys)
        every = data.take(None, used)
        whole = every.complete(used, na_action)
        kept = every if whole.all() else every.take(whole, used)
        weighed, left = None, int((~whole).sum())
        if weights is not None:
            weighed = numbers(kept.table.select(weights), "weights")[:, 0]
        own: dict[str, Any] = {}
        if cls.counted is not None:
            counts = numbers(every.table.select(cls.counted), "times")[:, 0]
            own, left = {"times": counts[whole]}, int(counts[~whole].sum())
        elif na_action == "exclude":
            own["whole"] = every, whole
        return cls(model, kept, left, weighed, consent, by, weights, there=data.names, **own)

    def of_others(self, data: Any, *, scored: bool = False) -> Self:
        """Return the rows of another frame, which must be complete, with weights as these have.

        Parameters
        ----------
        data : data frame
        scored : bool
            Whether they are only to be scored: with weights if they have some, and without noise.

        Raises
        ------
        TypeError, ValueError
            As of `of`; or if weights of the fit were numbers, and the frame has none of its rows.
        """
        data = Columns.of_rows(data)
        there = self.weighed in data.names
        if scored:
            return self.of(self.model, data, None, "raise", self.weighed if there else None)
        if self.weighed == WEIGHTS and not there:
            raise ValueError(
                f"weights of the fit were numbers; those of these rows must be in a column "
                f"{WEIGHTS!r} of data."
            )
        return self.of(self.model, data, None, "raise", self.weighed, self.by)


def used_columns(
    model: FormulaTerms, there: Sequence[str], keys: Mapping[str, str | None]
) -> tuple[list[str], list[str]]:
    """Columns that a formula uses, and its terms.

    Parameters
    ----------
    model : FormulaTerms
    there : sequence of str
        Columns of the data.
    keys : mapping of str to str or None
        Further columns, by what they are.

    Raises
    ------
    ValueError
        If a column of labels, or a further one, is not there.
    """
    named: dict[str, str | None] = {
        f"the group of level {j}": name for j, name in enumerate(model.above, 1)
    }
    named |= {"the group": model.group, **keys}
    for what, name in named.items():
        if name is not None and name not in there:
            shown = ", ".join(map(repr, there))
            raise ValueError(f"{what} {name!r} is not a column of data, which has {shown}.")
    texts = [*model.texts, *responses(model, there)]
    labels = (name for name in named.values() if name is not None)
    return list(dict.fromkeys([*required(texts, there), *labels])), texts


def responses(model: FormulaTerms, there: Sequence[str]) -> list[str]:
    """Terms that stand for what was observed, and how long."""
    observed = [*model.observed, *([model.offset] if model.offset else [])]
    return [evaluated(text, there) for text in observed]


def column_of_dispersion(dispersion: str | None) -> str | None:
    """Return the column that ``~ sex``, or ``sex``, names.

    Raises
    ------
    TypeError, ValueError
        If it names none, or more than one.

    Examples
    --------
    >>> column_of_dispersion("~ sex")
    'sex'
    """
    if dispersion is None:
        return None
    if not isinstance(dispersion, str):
        raise TypeError(f"dispersion must be '~ column'; got {dispersion!r}.")
    name = dispersion.strip().removeprefix("~").strip()
    if name.startswith("`") and name.endswith("`") and len(name) > 2:
        return name[1:-1]
    if not name.isidentifier():
        raise ValueError(
            f"dispersion must be '~ column', whose levels have a noise each; got {dispersion!r}. "
            "Put combinations into one column, and other names into backticks."
        )
    return name


def with_weights(data: Columns, weights: Any) -> Columns:
    """Return a frame with weights of its rows as one more column, named `WEIGHTS`."""
    values = column(aligned({"data": data.native, "weights": weights})["weights"], "weights")
    if values.shape != (len(data),):
        raise ValueError(
            f"weights must be one number per row, {len(data)}; they have shape {values.shape}."
        )
    return data.replacing({WEIGHTS: values})


def labelled(model: FormulaTerms, data: Columns, columns: NDArray, names: list[str]) -> Rows:
    """Read the labels of the rows of a frame, of which columns of a design were made.

    Parameters
    ----------
    model : FormulaTerms
    data : Columns
        Rows are without labels if a column of these is not there.
    columns : ndarray of shape (n_rows, k)
    names : list of k str

    Returns
    -------
    Rows
        Of crossed factors, a level is a factor; the label of a pair is ``a:b``.
    """
    rows = Rows(columns, names, (), Style(data.backend))
    if not set(model.levels) <= set(data.names):
        return rows
    series = {name: data.series(name) for name in model.levels}
    styles = {name: frames.style_of(each) for name, each in series.items()}
    levels = {name: read_labels(each, f"groups {name!r}") for name, each in series.items()}
    for first, *others in model.factors:
        own = levels[first]
        for name in others:
            own = _paired(own, levels[name], ":".join([first, *others]))
        name = ":".join([first, *others])
        levels[name], styles[name] = own, styles.get(name, Style(rows.style.backend, name))
    used = [":".join(each) for each in model.factors] or model.levels
    *above, style = (styles[name] for name in used)
    return replace(
        rows,
        levels=tuple(levels[name] for name in used),
        style=replace(style, above=tuple(above)),
    )


def _paired(above: NDArray, labels: NDArray, name: str) -> NDArray:
    """Return one label for each pair of labels, with a colon between.

    Raises
    ------
    ValueError
        If it is that of two pairs, as labels have colons themselves.
    """
    pairs = list(zip(above.tolist(), labels.tolist(), strict=True))
    found = np.array([f"{one}:{two}" for one, two in pairs], object)
    if any(":" in str(label) for label in set(above.tolist())):
        known: dict[str, Any] = {}
        for pair, label in dict(zip(pairs, found.tolist(), strict=True)).items():
            if known.setdefault(label, pair) != pair:
                raise ValueError(
                    f"{name!r} has one label, {label!r}, for two pairs: {known[label]} and {pair}. "
                    "Take the colons out of the labels."
                )
    return found


def chosen_rows(
    data: Any, subset: str | ArrayLike, context: Mapping[str, Any] | None = None
) -> NDArray[np.bool_]:
    """Return which rows of a frame are chosen.

    Signs are those of R and of pandas' `query`: ``&``, ``|``, ``!`` and ``~`` bind less than
    comparisons, as ``and``, ``or`` and ``not`` do. A comparison with a missing value is neither
    true nor false, as in R, and a row for which the expression is not true is left out.

    Parameters
    ----------
    data : data frame
    subset : str, or array-like of bool of shape (n_rows,)
        Expression of columns, or whether each row is chosen.
    context : mapping, optional
        Names that are not columns.

    Raises
    ------
    ValueError
        If the expression cannot be read, has what formulas may not contain, or is not true or false
        of each row; or no row is chosen.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = pd.DataFrame({"x": [1.0, 2.0, None, 4.0], "kind": list("abab")})
    >>> chosen_rows(rows, "x > 1 & kind != 'a'")
    array([False,  True, False,  True])
    >>> chosen_rows(rows, "!(x > 1) | kind in ['b']")
    array([ True,  True, False,  True])
    """
    data = Columns.of(data)
    if isinstance(subset, str):
        chosen = Condition(subset, data, context or {}).rows()
    else:
        chosen = _truth(aligned({"data": data.native, "subset": subset})["subset"])
        if chosen.dtype != bool or chosen.shape != (len(data),):
            raise ValueError(
                f"subset must be an expression, or true or false for each of {len(data)} rows; got "
                f"{chosen.dtype} of shape {chosen.shape}."
            )
    if not chosen.any():
        raise ValueError(
            f"subset={subset!r} chooses no row."
            if isinstance(subset, str)
            else "subset chooses no row."
        )
    return chosen


def _truth(values: Any) -> NDArray:
    """Return an array, of truth values if it holds these; a missing one is not true."""
    import pandas as pd

    found = np.asarray(values)
    if found.ndim == 2 and found.shape[1] == 1:
        found = found[:, 0]
    if found.dtype.kind == "O":
        known = ~np.asarray(pd.isna(found), bool)
        if all(isinstance(each, bool | np.bool_) for each in found[known]):
            found = np.where(known, found, False).astype(bool)
    return found


def _dates(values: Any, text: str) -> Any:
    """Return text, one or a list, as dates.

    Raises
    ------
    ValueError
        If it is text, and none of dates.
    """
    parts = values if isinstance(values, list | tuple) else [values]
    if not all(isinstance(each, str) for each in parts):
        return values
    try:
        return np.array(values, "M8[us]")
    except ValueError:
        raise ValueError(
            f"subset={text!r}: dates are compared with '2024-01-31' or '2024-01-31T12:00'."
        ) from None


class Condition:
    """An expression of the columns of a table, of which each part is known or not in each row.

    Parameters
    ----------
    text : str
    data : Columns
        Others have `names` too, and a condition of their own that takes values from them.
    context : mapping
        Names that are not columns.

    Examples
    --------
    >>> import pandas as pd
    >>> Condition("x > 1", Columns.of(pd.DataFrame({"x": [1.0, 2.0]})), {}).rows()
    array([False,  True])
    """

    def __init__(self, text: str, data: Any, context: Mapping[str, Any]):
        check_text(text, "subset=")
        self.text, self.data, self.context = text, data, context
        self.quoted = re.findall("`([^`]*)`", text)
        numbers = iter(range(len(self.quoted)))
        self.plain = re.sub("`[^`]*`", lambda _: f"{QUOTED}{next(numbers)}", text)
        self.names = data.names

    def rows(self) -> Any:
        """Return the rows of which it is true.

        Raises
        ------
        ValueError
            If it cannot be read, or is not true or false of each row.
        """
        try:
            tokens = tokenize.generate_tokens(io.StringIO(self.plain.strip()).readline)
            words = " ".join(WORDS.get(each.string, each.string) for each in tokens)
            tree = ast.parse(words.strip(), mode="eval").body
            plain = ast.unparse(tree)
        except (SyntaxError, ValueError, tokenize.TokenError, RecursionError, MemoryError):
            raise ValueError(f"subset={shortened(self.text, 200)!r} cannot be read.") from None
        names_of(plain)
        return self._true(tree)[0]

    def _true(self, node: ast.AST) -> tuple[Any, Any]:
        """Rows of which a part is true, and of which it is true or false."""
        if isinstance(node, ast.BoolOp):
            both = isinstance(node.op, ast.And)
            true, known = self._true(node.values[0])
            for each in node.values[1:]:
                also, sure = self._true(each)
                decided = (known & ~true) | (sure & ~also) if both else true | also
                true = true & also if both else true | also
                known = (known & sure) | decided
            return true, known
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            true, known = self._true(node.operand)
            return known & ~true, known
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
            values = [self._values(each) for each in parts]
            true = known = reduce(operator.and_, (sure for _, sure in values))
            for j, op in enumerate(node.ops):
                true = true & self._compared(type(op), values[j][0], values[j + 1][0], known)
            return true, known
        return self._truth(node)

    def _truth(self, node: ast.AST) -> tuple[Any, Any]:
        """Rows of which a part without signs is true, and of which it is true or false."""
        found, known = self._values(node)
        if not isinstance(found, np.ndarray) or found.dtype != bool:
            raise ValueError(
                f"subset={self.text!r} must be true or false of each row, as a comparison is."
            )
        return found & known, known

    def _compared(self, op: type, left: Any, right: Any, known: Any) -> Any:
        """Compare in the rows in which both sides are known."""
        self._check_sign(op)
        out = np.zeros(len(known), bool)
        sides = [x[known] if isinstance(x, np.ndarray) else x for x in (left, right)]
        sides = [
            dates_of_objects(x) if isinstance(x, np.ndarray) and x.dtype.kind == "O" else x
            for x in sides
        ]
        if any(isinstance(x, np.ndarray) and x.dtype.kind == "M" for x in sides):
            sides = [x if isinstance(x, np.ndarray) else _dates(x, self.text) for x in sides]
        try:
            out[known] = COMPARISONS[op](*sides)
        except TypeError as error:
            kinds = " and ".join(str(getattr(x, "dtype", type(x).__name__)) for x in sides)
            reason = str(error) if "not supported" in str(error) else f"these are {kinds}"
            raise ValueError(f"subset={self.text!r} compares unlike values: {reason}.") from None
        return out

    def _check_sign(self, op: type) -> None:
        if op not in COMPARISONS:
            raise ValueError(f"subset={self.text!r}: compare by ==, !=, <, <=, >, >=, in, not in.")

    def _values(self, node: ast.AST) -> tuple[Any, Any]:
        """Values of a part, one number or one for each row, and where they are known."""
        n = len(self.data)
        try:
            return ast.literal_eval(node), np.ones(n, bool)
        except ValueError:
            pass
        text, used = self._used(node)
        if not used:
            return self._of_context(text), np.ones(n, bool)
        known = np.logical_and.reduce([self.data.known(name) for name in used])
        if isinstance(node, ast.Name) and not known.any():
            return np.zeros(n), known
        found, _ = values_of(text, self.data.take(known, used), self.context)
        out = np.zeros(n, found.dtype)
        out[known] = found
        return out, known

    def _used(self, node: ast.AST) -> tuple[str, list[str]]:
        """Return a part as text, and the columns that it uses."""
        text = ast.unparse(node)
        for j, name in enumerate(self.quoted):
            text = text.replace(f"{QUOTED}{j}", f"`{name}`")
        return text, [name for name in self.names if name in names_of(text)]

    def _of_context(self, text: str) -> Any:
        """Return a number, text or list that is no column."""
        value = self.context.get(text)
        if not isinstance(value, int | float | str | list | tuple | np.generic):
            shown = ", ".join(map(repr, self.names))
            raise ValueError(
                f"subset={self.text!r}: {text!r} is not a column of data, which has {shown}."
            )
        return value
