"""Terms as columns of numbers, by formulaic, for the rows of the fit and later ones."""

from __future__ import annotations

import ast
import importlib
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ebfed.designs.expressions import check_names, in_words
from ebfed.designs.grammar import column_name, marked, plain_name, written
from ebfed.designs.limits import FACTORS, check_cells, known_functions, materialized, shortened
from ebfed.designs.terms import Terms, evaluated, reason_of
from ebfed.designs.words import MAKE_FACTORS
from ebfed.tables.columns import Columns, days_of
from ebfed.tables.of_rows import NOTHING
from ebfed.tables.values import numbers

__all__ = ["CONSTANT", "Context", "Design", "contrasts_of_terms", "values_of"]

# What formulaic calls the column of ones.
CONSTANT = "Intercept"
# What formulas from files may use besides columns and plain values.
SHARED = {"np": np, "numpy": np}


class Context(dict[str, Any]):
    """What formulas use besides columns; modules are pickled by their names."""

    @classmethod
    def of(cls, texts: Sequence[str], data: Any, context: Mapping[str, Any] | None) -> Self:
        """Keep of a context what these terms use."""
        there, context = set(Columns.of(data).names), context or {}
        columns = {name for text in texts for name in Terms.of(text).columns}
        functions = {name for text in texts for name in Terms.of(text).functions}
        used = {plain_name(name) for name in columns} - there | functions
        check_names(used, context)
        # what the caller calls C may be a matrix
        own = {name for name in functions - columns if callable(known_functions().get(name))}
        found = {name: context[name] for name in sorted(used) if name in context}
        return cls({name: x for name, x in found.items() if name not in own or callable(x)})

    @classmethod
    def named_in(cls, text: str, columns: Sequence[str], context: Mapping[str, Any]) -> Self:
        """Keep of a context what has a name in a text, and is no column."""
        used = set(re.findall(r"[^\W\d]\w*", text)) - set(columns)
        return cls({name: context[name] for name in sorted(used) if name in context})

    def as_data(self) -> dict[str, Any]:
        """Return the plain values, from which `of` makes a context again, with `SHARED`.

        Raises
        ------
        TypeError
            If there is anything else, such as a function of the caller.
        """
        values = {name: x for name, x in self.items() if x is not SHARED.get(name)}
        for name, value in values.items():
            if not isinstance(value, int | float | str | np.number):
                raise TypeError(
                    f"the formula uses {name!r} of the caller, which no file can hold. Pickle this "
                    "fit."
                )
        return values

    def __reduce__(self) -> tuple:
        modules = {name: x.__name__ for name, x in self.items() if isinstance(x, ModuleType)}
        return _remake, ({name: x for name, x in self.items() if name not in modules}, modules)


def _remake(others: Mapping[str, Any], modules: Mapping[str, str]) -> Context:
    return Context(others, **{name: importlib.import_module(x) for name, x in modules.items()})


@dataclass
class Design:
    """The columns of a formula's terms.

    Attributes
    ----------
    text : str
    names : list of str
        Names of the columns, without that of the constant: those of the text, then others of terms
        that differ between groups.
    constant : bool
        Whether there is one, of all groups or of terms that differ.
    without_mean : list of str
        Columns of terms that differ between groups alone, the constant perhaps among them.
    context : Context
        What the terms use besides columns.
    """

    text: str
    names: list[str] = field(default_factory=list)
    constant: bool = True
    context: Context = field(default_factory=Context)
    without_mean: list[str] = field(default_factory=list)
    # Designs of the terms that have columns without a mean.
    _others: list[Design] = field(default_factory=list)
    _spec: Any = None
    # Names of the columns of each term, as formulaic has it.
    _of_terms: dict[Any, list[str]] = field(default_factory=dict)

    @classmethod
    def learn(
        cls, text: str, data: Any, context: Mapping[str, Any] | None, there: Sequence[str] = ()
    ) -> tuple[Design, NDArray[np.float64]]:
        """Learn categories, contrasts and what transformations keep from a frame's rows.

        `there` are names that may have been meant, where one is not known.

        Returns
        -------
        design : Design
        columns : ndarray of shape (n_rows, d)
        """
        data, terms = Columns.of(data), Terms.of(text)
        design = cls(text, context=Context.of([text], data, context))
        if clash := {CONSTANT, CONSTANT.lower()} & terms.columns & set(data.names):
            raise ValueError(f"a column is called {min(clash)!r}, as is the constant; rename it.")
        if found := _products(terms, data):
            names, values = [*found], np.column_stack([*found.values()])
            design._spec = _spec_of(text, dict.fromkeys(terms.columns, "numerical"))
            owned = [[name] for name in names]
        else:
            table = _table(data, text)
            matrix = design._build(terms.formula, table, there or data.names)
            learned = matrix.model_spec
            names, values = list(map(plain_name, learned.column_names)), _matrix(matrix)
            design._spec = learned.update(structure=None)  # it follows from the rest
            owned = [[names[place] for place in places] for places in learned.term_indices.values()]
        design._of_terms = dict(zip(terms.formula, owned, strict=True))
        for term, own in design._of_terms.items():
            if not own:
                term = plain_name(str(term))
                raise ValueError(f"term {term!r} has the same value in all rows.")
        design.constant = CONSTANT in names
        design.names = [name for name in names if name != CONSTANT]
        return design, design._numbers(values, names)

    def of(self, data: Any) -> NDArray[np.float64]:
        """Return the columns for other rows.

        Raises
        ------
        ValueError
            If a column is missing or has values missing, a category is new, or a term is not a
            finite number.
        """
        data = Columns.of(data)
        found = {} if _categories(self._spec) else _products(Terms.of(self.text), data)
        if found:
            names, values = [*found], np.column_stack([*found.values()])
        else:
            table = _table(data, self.text, known=_categories(self._spec))
            self._check_kinds(table)
            # formulaic writes what it finds into the state of the spec that it is given
            states = self._spec.encoder_state.items()
            states = {factor: (kind, dict(state)) for factor, (kind, state) in states}
            spec = self._spec.update(encoder_state=states)
            matrix = self._build(spec, table, data.names)
            names, values = list(map(plain_name, matrix.model_spec.column_names)), _matrix(matrix)
        if wrong := set(names) - {CONSTANT} ^ set(self.names_with_mean):
            raise ValueError(
                f"the terms give {min(wrong)!r} in one of the frames only; columns of data must "
                "have the types that they had in the fit."
            )
        own = self._numbers(values, names)
        return np.column_stack(
            [own, *(self._without(each, each.of(data)) for each in self._others)]
        )

    def _check_kinds(self, table: Any) -> None:
        """Refuse columns that lack values, or are of another kind than in the rows of the fit."""
        kinds = {str(name): kind.value for name, (kind, _) in self._spec.encoder_state.items()}
        for found in table.columns:
            name, numeric = plain_name(found), table[found].dtype.kind in "iufb"
            if (missing := table[found].isna().to_numpy()).any():
                raise ValueError(
                    f"column {name!r} has {int(missing.sum())} missing values, the first in row "
                    f"{int(np.argmax(missing))}; drop those rows."
                )
            if len(table) and kinds.get(found) == ("categorical" if numeric else "numerical"):
                other = "categories" if hasattr(table[found].dtype, "categories") else "text"
                now, before = ("a number", "text") if numeric else (other, "a number")
                raise ValueError(f"column {name!r} is {now}, and was {before} in the fit.")

    def _without(self, other: Design, columns: NDArray) -> NDArray[np.float64]:
        """Columns of terms that differ between groups which are first in these."""
        before = self._others[: self._others.index(other)]
        known = {name for each in before for name in each.names}
        new = [name in self.without_mean and name not in known for name in other.names]
        return columns[:, new]

    @property
    def names_with_mean(self) -> list[str]:
        """Names of the columns of terms of all groups, without that of the constant."""
        return [name for name in self.names if name not in self.without_mean]

    @property
    def constant_with_mean(self) -> bool:
        """Whether the terms of all groups have a constant."""
        return self.constant and CONSTANT not in self.without_mean

    @property
    def texts(self) -> list[str]:
        """The text, and those of the terms that have other columns."""
        return [self.text, *(each.text for each in self._others)]

    def as_data(self) -> dict[str, Any]:
        """Return what was learned as plain data, from which `of_data` makes it again."""
        encoded = self._spec.encoder_state
        return {
            "names": self.names,
            "without_mean": self.without_mean,
            "others": [{"text": each.text} | each.as_data() for each in self._others],
            "constant": self.constant,
            "transformations": self._spec.transform_state,
            "kinds": {factor: kind.value for factor, (kind, _) in encoded.items()},
            "categories": _categories(self._spec),
        }

    @classmethod
    def of_data(cls, text: str, context: Context, data: Mapping[str, Any]) -> Self:
        """Make a design of plain data.

        Examples
        --------
        >>> import pandas as pd
        >>> table = pd.DataFrame({"x": [1.0, 2.0, 4.0], "kind": ["a", "b", "b"]})
        >>> design, columns = Design.learn("center(x) + kind", table, {})
        >>> twin = Design.of_data(design.text, Context(), design.as_data())
        >>> np.array_equal(twin.of(table), columns)
        True
        """
        spec = _spec_of(text, data["kinds"], data["categories"], data["transformations"])
        others: list[Design] = [cls.of_data(each["text"], context, each) for each in data["others"]]
        rest = data["constant"], context, data["without_mean"]
        return cls(text, data["names"], *rest, _others=others, _spec=spec)

    def _build(self, spec: Any, data: Any, there: Sequence[str]) -> Any:
        from formulaic.errors import DataMismatchWarning

        with warnings.catch_warnings(), np.errstate(all="ignore"):  # what is not finite is said
            warnings.simplefilter("error", DataMismatchWarning)
            warnings.simplefilter("ignore", RuntimeWarning)
            try:
                return materialized(spec, data, self.context)
            except Exception as error:  # whatever an expression raises
                term = self._culprit(spec, data)
                term, reason = plain_name(term), plain_name(_explained(error, there))
                raise ValueError(f"term {term!r}: {reason}") from None

    def _culprit(self, spec: Any, data: Any) -> str:
        """Find the term that cannot be evaluated by itself."""
        from formulaic import Formula

        for term in getattr(spec, "formula", spec):
            alone = Formula([term])
            if hasattr(spec, "formula"):
                alone = spec.update(formula=alone)
            try:
                materialized(alone, data, self.context)
            except Exception:
                return str(term)
        return self.text

    def _numbers(self, values: NDArray, names: Sequence[str]) -> NDArray[np.float64]:
        unknown = ~np.isfinite(values)
        if unknown.any():
            row, j = np.argwhere(unknown)[0]
            raise ValueError(
                f"term {names[j]!r} is not finite in {int(unknown[:, j].sum())} rows, the first "
                f"{int(row)}; drop those rows."
            )
        return values[:, [name != CONSTANT for name in names]]

    @property
    def factors(self) -> dict[str, list[Any]]:
        """Factors that have categories, such as ``C(kind)``, and these."""
        found = [_categories(self._spec), *(each.factors for each in self._others)]
        return {factor: levels for each in found for factor, levels in each.items()}

    @property
    def columns_of_terms(self) -> Mapping[Any, list[str]]:
        """Names of the columns of each term of formulaic, in a design that was learned."""
        return {term: own for each in [*self._others, self] for term, own in each._of_terms.items()}

    @property
    def figures(self) -> list[str]:
        """Terms that keep figures of the rows of the fit, such as ``center(x)``."""
        return [*self._spec.transform_state, *(x for each in self._others for x in each.figures)]

    @property
    def states(self) -> list[tuple[str, dict[str, Any]]]:
        """Figures of each call that keeps some, by its text; to set them changes the design."""
        own = list(self._spec.transform_state.items())
        return own + [pair for each in self._others for pair in each.states]

    def names_in(self, text: str, data: Any, context: Mapping[str, Any]) -> list[str]:
        """Names of the columns of terms that differ between groups, that of the constant included.

        Those that the terms of all groups do not have are added to the columns of this design.
        """
        names: list[str] = []
        known = {_factors_of(name): name for name in self.names} | {(CONSTANT,): CONSTANT}
        terms = Terms.of(text)
        both = terms, Terms.of(self.text)
        for term in terms.formula:
            name = CONSTANT if str(term) == "1" else plain_name(str(term))
            own = self._of_terms.get(term, [name])
            # how a factor is coded may depend on the other terms
            coded = any(str(factor.expr) in self.factors for factor in term.factors)
            coded = coded and not all(each.has_margins(term) for each in both)
            if coded or not all(_factors_of(name) in known for name in own):
                other, _ = Design.learn(text, data, context)
                names = [CONSTANT] * other.constant + other.names
                new = [name for name in other.names if _factors_of(name) not in known]
                if new:
                    self.context = Context({**self.context, **other.context})
                    self.names, self._others = [*self.names, *new], [*self._others, other]
                    self.without_mean = [*self.without_mean, *new]
                    known |= {_factors_of(name): name for name in new}
                break
            names += own
        if CONSTANT in names and not self.constant:
            self.constant, self.without_mean = True, [*self.without_mean, CONSTANT]
        return [known[_factors_of(name)] for name in names]


def _spec_of(
    text: str,
    kinds: Mapping[str, str],
    categories: Mapping[str, Any] = NOTHING,
    transformations: Mapping[str, Any] = NOTHING,
) -> Any:
    """Return what formulaic learns of these kinds of factors, and categories of some."""
    from formulaic import ModelSpec
    from formulaic.parser.types import Factor

    encoded = {
        factor: (
            Factor.Kind(kind),
            {"categories": categories[factor]} if factor in categories else {},
        )
        for factor, kind in kinds.items()
    }
    states = {"transform_state": dict(transformations), "encoder_state": encoded}
    return ModelSpec(Terms.of(text).formula, "pandas", **states)


def _products(terms: Terms, data: Columns) -> dict[str, NDArray[np.float64]]:
    """Return terms that are products of columns of numbers; none if one is anything else."""
    ones, found = np.ones(len(data)), {}
    for term, factors in terms.each:
        if term == "1":
            found[CONSTANT] = ones
            continue
        names = [plain_name(text) for _, text in factors]
        if any(kind != "lookup" for kind, _ in factors) or not set(names) <= set(data.names):
            return {}
        values = [data.values(name) for name in names]
        if len(names) > FACTORS or any(x.dtype.kind not in "biuf" for x in values):
            return {}
        if any(data.is_category(name) for name in names):
            return {}
        check_cells(len(data), len(found) + 1, shortened(term))
        found[":".join(names)] = math.prod(values, start=ones)
    return found


def _categories(spec: Any) -> dict[str, list[Any]]:
    """Factors that have categories, and these."""
    return {
        str(factor): list(state["categories"])
        for factor, (_, state) in spec.encoder_state.items()
        if "categories" in state
    }


def _factors_of(name: str) -> tuple[str, ...]:
    """Parts of the name of a column, in one order: b:a is a:b."""
    return tuple(sorted(name.split(":")))


def _table(data: Columns, text: str, known: Mapping[str, Sequence[Any]] | None = None) -> Any:
    """Put the columns that terms use in a frame of pandas, so that any frame is read alike.

    Categories have those that rows have, in their order: that is learned, and then remembered.
    `known` has what was learned, of later rows: numbers in columns of categories of numbers are
    these. Numbers of any type are int64 or float64, as of `Columns.values`: products of small
    ones have room. Dates are days since 1970-01-01, as in R, except where they are only compared or
    are levels of ``C(…)``.
    """
    import pandas as pd

    terms, columns = Terms.of(text), {}
    for found in sorted(terms.columns):
        name = plain_name(found)
        if name not in data.names:
            continue
        values: Any = data.values(name)
        content = pd.api.types.infer_dtype(values) if values.dtype.kind in "OU" else ""
        if content.startswith("mixed"):
            raise ValueError(
                f"column {name!r} has values of several kinds; make them all numbers, or all text."
            )
        if found in terms.multiplied and content == "string":
            raise ValueError(f"{name!r} is text, and arithmetic is for numbers.")
        order = data.levels(name) if known is None else None
        was = content != "string" and any(type(x) is not str for x in (known or {}).get(found, ()))
        if known is not None and values.dtype.kind == "M":  # else formulaic 1.1 finds none of them
            was = was or terms.only_levels(found)
        if order is not None:
            values = pd.Categorical(values, order).remove_unused_categories()
        elif data.is_category(name) or was or content == "interval":
            values = pd.Categorical(values)  # no number, whatever it holds
        elif found in terms.numeric:
            values = days_of(values)
        columns[found] = values
    return pd.DataFrame(columns, index=range(len(data)))


def _matrix(found: Any) -> NDArray[np.float64]:
    """Return a model matrix of formulaic as numbers."""
    return numbers(found.__wrapped__, "columns of a formula", booleans=True)


def values_of(
    text: str, data: Any, context: Mapping[str, Any] | None
) -> tuple[NDArray, Design | None]:
    """Values of a column, as it is, or of an expression; and the design of that."""
    data = Columns.of(data)
    if (name := column_name(text)) in data.names:
        return data.values(name), None
    design, values = Design.learn(evaluated(text), data, context)
    if values.shape[1] != 1:
        raise ValueError(
            f"response {text!r} must be one column; it comes to {', '.join(design.names)}."
        )
    return values[:, 0], design


HINTS = {
    "offset": "an offset is a term of its own, + offset(log(e))",
    "weights": "there are no weights",
    "s": "there are no smooth terms; bs(x, df=4) is a spline",
}


def _explained(error: Exception | Warning, there: Sequence[str]) -> str:
    """Explain what is wrong with a term, and what would work."""
    from difflib import get_close_matches

    text = reason_of(error)
    if limit := re.search(r"\[ValueError: (.* has at most .*|.* needs .* GiB; .*)\]", text):
        return limit[1]
    if unknown := re.search(r"`([^`]+)` is not present|name '(\w+)' is not defined", text):
        name = unknown[1] or unknown[2]
        near = get_close_matches(name, there, 1)
        hint = HINTS.get(name) or (f"did you mean {near[0]!r}?" if near else "")
        return f"{name!r} is neither a column of data nor known here{'; ' + hint if hint else ''}"
    if unseen := re.search(r"not seen in original dataset\): (\{.*?\})", text):
        return f"the rows of the fit had no {unseen[1].strip('{}')}"
    return text


def contrasts_of_terms(design: Design, data: Any, type: str) -> dict[str, NDArray[np.float64]]:
    """Return what is zero of the coefficients where a term does not matter.

    Parameters
    ----------
    design : Design
    data : data frame
        Rows of the fit.
    type : {"wald", "II", "III"}
        All coefficients of the term's own columns; or what its columns explain beyond all terms
        that do not contain it, as a function of all coefficients; or the coefficients that it would
        have if factors were coded by contrasts that sum to zero, so that the others are averaged
        over, whatever their coding.

    Returns
    -------
    dict of ndarrays of shape (n, p)
        By term, the constant left out.

    Raises
    ------
    ValueError
        If not all combinations of factors that the terms of type III compare are there.
    """
    columns, places = _matrix_of_terms(design, design.text, data)
    if not places:
        return {}
    if type == "wald":
        unit = np.eye(columns.shape[1])
        return {name: unit[each] for name, each in places.items()}
    if type == "II":
        of_terms = dict(zip(places, filter(None, Terms.of(design.text).factors), strict=True))
        kinds = set(design.factors)
        return {name: _beyond_others(columns, places, of_terms, kinds, name) for name in places}
    coded, others = _matrix_of_terms(design, _sum_coded(design), data)
    if np.linalg.matrix_rank(coded) < coded.shape[1]:
        raise ValueError(
            "type='III' needs rows of all combinations of the factors of its terms, and columns "
            "that are not collinear. type='wald' tests the coefficients of each term."
        )
    back = np.linalg.lstsq(coded, columns, rcond=None)[0]
    return {name: _reduced(back[each]) for name, each in zip(places, others.values(), strict=True)}


def _beyond_others(
    columns: NDArray,
    places: Mapping[str, list[int]],
    factors: Mapping[str, set[str]],
    kinds: set[str],
    name: str,
) -> NDArray[np.float64]:
    """Return what a term's columns explain beyond those of terms that do not contain it.

    With ``M`` the projection beside the columns of these, ``X`` those of the term and ``Z`` those
    of terms that contain it, that is ``b + (X'MX)^-1 X'MZ c`` of their coefficients b and c. A term
    contains another if it has all its factors, more of them, and the same numbers (SAS Institute,
    "The four types of estimable functions").
    """
    own, containing = places[name], list[int]()
    for other, each in places.items():
        if factors[name] < factors[other] and factors[other] - factors[name] <= kinds:
            containing += each
    rest = np.setdiff1d(np.arange(columns.shape[1]), [*own, *containing])
    both = columns[:, [*own, *containing]]
    both = both - columns[:, rest] @ np.linalg.lstsq(columns[:, rest], both, rcond=None)[0]
    found = np.zeros((len(own), columns.shape[1]))
    found[:, [*own, *containing]] = np.linalg.lstsq(both[:, : len(own)], both, rcond=None)[0]
    return found


def _reduced(contrasts: NDArray) -> NDArray[np.float64]:
    """Write contrasts so that each has a first coefficient of 1 which the others do not have.

    Degrees of freedom of several contrasts together depend a little on how they are written.
    """
    reduced, row = contrasts / np.abs(contrasts).max(initial=1e-300), 0
    for column in range(reduced.shape[1]):
        if row == len(reduced):
            break
        best = row + int(np.argmax(np.abs(reduced[row:, column])))
        if abs(reduced[best, column]) < 1e-9:
            continue
        reduced[[row, best]] = reduced[[best, row]]
        reduced[row] /= reduced[row, column]
        others = np.arange(len(reduced)) != row
        reduced[others] -= np.outer(reduced[others, column], reduced[row])
        row += 1
    return np.where(np.abs(reduced) < 1e-9, 0.0, reduced)


def _matrix_of_terms(design: Design, text: str, data: Any) -> tuple[NDArray, dict[str, list[int]]]:
    """Columns of terms, that of the constant included, and places of those of each other term."""
    table = _table(Columns.of(data), text)
    matrix = materialized(Terms.of(text).formula, table, design.context)
    found = matrix.model_spec.term_indices.items()
    named = [(":".join(str(factor.expr) for factor in term.factors), own) for term, own in found]
    return _matrix(matrix), {plain_name(name): list(own) for name, own in named if name != "1"}


def _sum_coded(design: Design) -> str:
    """Write the terms with factors whose contrasts sum to zero, `marked`."""
    terms = ["1" if design.constant_with_mean else "0"]
    for term in Terms.of(design.text).formula:
        if str(term) != "1":
            factors = [_coded(each, each.expr in design.factors) for each in term.factors]
            terms.append(":".join(factors))
    return marked(" + ".join(terms))


def _coded(factor: Any, categorical: bool) -> str:
    """Write a factor: ``x``, a column of another name in backticks, or a sum-coded one."""
    text = str(factor.expr)
    looked_up = factor.eval_method.value == "lookup"
    name = written(text) if looked_up else text
    if not categorical:
        return name if looked_up or text.isidentifier() or text.endswith(")") else f"{{{text}}}"
    plain, names = in_words(name)
    call: Any = ast.parse(plain, mode="eval").body
    levels = ""
    if isinstance(call, ast.Call) and getattr(call.func, "id", None) in MAKE_FACTORS:
        levels = "".join(f", {ast.unparse(x)}" for x in call.keywords if x.arg == "levels")
        call = call.args[0]
    found = f"C({ast.unparse(call)}, contr.sum{levels})"
    return re.sub(r"\w+", lambda word: written(names.get(word[0], word[0])), found)
