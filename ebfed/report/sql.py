"""SQL that computes the estimates of a fit where the rows are, written by sqlglot.

Three populations of a parameter have closed forms. With the sum S and the size n of the rows of a
group,

- normal, of mean m and variance t, with noise of variance v: ``(m v + s S) / (v + s n)``, where s
  is t for a group of the fit, and t plus the squared standard error of m for another (see
  `priors.normal.NormalPosterior`);
- beta, of mean m and concentration c: ``(m c + S) / (c + n)``;
- gamma, of mean m and shape a, where n is the exposure: ``m (a + S) / (a + m n)``.

Coefficients of regressions are a table with a row for each group of the fit; another group has the
mean of the population.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.priors import Beta, Gamma, Normal
from ebfed.priors.two_moments import POINT_MASS
from ebfed.report.view import GroupView, LocationView, RegressionView

__all__ = ["DIALECTS", "Query"]

DIALECTS = ("duckdb", "sqlite", "postgres", "spark", "bigquery")
# Short names within a query: of rows, sums, estimates, and what is known of groups.
ROWS, SUMS, ESTIMATES, KNOWN = "r", "s", "e", "k"


@dataclass(frozen=True)
class Query:
    """A query for the estimates of a fit; the arguments are those of `GroupEffects.to_sql`."""

    dialect: str = "duckdb"
    table: str | Sequence[str] = "rows"
    group: str | None = None
    columns: str | Sequence[str] | None = None
    size: str | None = None
    weight: str | None = None
    known: bool | str | Sequence[str] = True
    each_row: bool = False

    def text(self, view: GroupView, classes: NDArray | None = None) -> str:
        """Write the query.

        Parameters
        ----------
        view : GroupView
        classes : ndarray of shape (2,), optional
            Labels that a regression predicts.
        """
        if self.dialect not in DIALECTS:
            raise ValueError(
                f"dialect must be {', '.join(map(repr, DIALECTS))}; got {self.dialect!r}."
            )
        try:
            import sqlglot  # noqa: F401
        except ImportError:
            raise ImportError('sqlglot is not installed: pip install "ebfed[sql]"') from None
        if isinstance(view, LocationView):
            query = self._means(view)
        elif isinstance(view, RegressionView):
            query = self._predictions(view, classes)
        else:
            raise TypeError(f"{view.title} has no SQL.")
        return query.sql(dialect=self.dialect, pretty=True)

    # Means and rates --------------------------------------------------------------------------

    def _means(self, view: LocationView) -> Any:
        """Estimates of groups, or of each row, by sums over the rows of its group."""
        from sqlglot import exp

        _check_closed_form(view)
        weighed = view.summary.weight is not None and not view.family.takes_exposure
        if self.size is not None and self.weight is not None:
            raise ValueError("give size= or weight=: sums of a row, or the weight of a value.")
        if weighed and self.size is None and self.weight is None:
            raise ValueError("weight= must name the column of weights: rows of the fit have some.")
        columns, group = self._columns(view.terms), self._group(view)
        sums = exp.select(_named(_column(group, ROWS), "label")).from_(self._table())
        for j, name in enumerate(columns):
            values = _column(name, ROWS)
            size, parts = exp.Count(this=values), values
            times = self.size if self.weight is None else self.weight
            if times is not None:
                there = exp.Case().when(values.is_(exp.null()).not_(), _column(times, ROWS))
                size = _sum(there)
            if self.weight is not None:
                parts = values * _column(self.weight, ROWS)
            sums = sums.select(_named(_sum(parts), f"total_{j}"), _named(size, f"size_{j}"))
        sums = sums.group_by(_column(group, ROWS))
        query = exp.select(
            _named(_column("label", SUMS), group), _named(_column("size_0", SUMS), "n")
        )
        query = query.from_(_subquery(sums, SUMS))
        seen: Any = None
        if isinstance(view.prior, Normal) and self._knows(view):
            labels = view.summary.ids[view.reports]
            query = self._joined(query, labels, group, {}, _column("label", SUMS))
            seen = _column(group, KNOWN).is_(exp.null()).not_()
        names = ["estimate"] if len(columns) == 1 else [f"estimate_{name}" for name in columns]
        _check_names([group, "n", *names])
        for j, name in enumerate(names):
            total, size = _column(f"total_{j}", SUMS), _column(f"size_{j}", SUMS)
            query = query.select(_named(_estimate(view, j, total, size, seen), name))
        if not self.each_row:
            return query
        shown = [_named(_column(name, ESTIMATES), name) for name in names]
        rows = exp.select(exp.Column(this=exp.Star(), table=_name(ROWS)), *shown)
        same = _column(group, ROWS).eq(_column(group, ESTIMATES))
        found = rows.from_(self._table()).join(
            _subquery(query, ESTIMATES), on=same, join_type="left"
        )
        return found

    # Regressions ------------------------------------------------------------------------------

    def _predictions(self, view: RegressionView, classes: NDArray | None) -> Any:
        """Predictions of rows by the coefficients of their groups."""
        from sqlglot import exp

        if view.style.above:
            raise ValueError(f"{view.title} of several levels of groups has no SQL.")
        if view.has_offset:
            raise ValueError(
                f"{view.title} has no SQL where rows have an offset: it is no column with a "
                "coefficient."
            )
        centre = _centre(view)
        logistic = view.population == "logit-normal" and classes is not None
        if not view.has_density and not logistic:
            raise ValueError(
                f"{view.title} ({view.method}) has no SQL: its predictions are averages over "
                "components or of another family. LogisticEB has."
            )
        if self.size is not None or self.weight is not None or self.each_row:
            raise ValueError(
                "size=, weight= and each_row= are for means and rates; regressions have rows."
            )
        columns, group = self._columns(view.columns), self._group(view)
        query = exp.select(exp.Column(this=exp.Star(), table=_name(ROWS))).from_(self._table())
        known = self._knows(view)
        if known:
            posterior = view.posterior()
            values = dict(zip(view.terms, posterior.mean.T, strict=True))
            label = _column(group, ROWS)
            query = self._joined(query, posterior.ids, group, values, label)
        factors = [_column(name, ROWS) for name in columns]
        if len(view.terms) > len(columns):
            factors.insert(0, None)
        total: Any = None
        for term, value, factor in zip(view.terms, centre, factors, strict=True):
            weight = _double(value)
            if known:
                weight = exp.func("COALESCE", _column(term, KNOWN), weight)
            part = weight if factor is None else weight * factor
            total = part if total is None else total + part
        if not view.has_density:
            first, second = (_label(x) for x in np.asarray(classes).tolist())
            total = exp.Case().when(total > _zero(), second).else_(first)
        _check_names([*columns, "prediction"])
        return query.select(_named(total, "prediction"))

    # Parts ------------------------------------------------------------------------------------

    def _table(self) -> Any:
        return _table(self.table, ROWS)

    def _group(self, view: GroupView) -> str:
        return view.style.group if self.group is None else self.group

    def _knows(self, view: GroupView) -> bool:
        """Whether the query is to have what is known of groups: a server knows nothing of them."""
        return bool(self.known) and not (self.known is True and view.is_server)

    def _columns(self, names: Sequence[str]) -> list[str]:
        """Names of the columns in the table, those of the fit if they are not given."""
        if self.columns is None:
            return list(names)
        given = [self.columns] if isinstance(self.columns, str) else list(self.columns)
        if len(given) != len(names) or not all(isinstance(name, str) for name in given):
            raise ValueError(
                f"columns must name {len(names)} columns, {', '.join(names)}; got {given!r}."
            )
        return given

    def _joined(
        self, query: Any, labels: NDArray, group: str, values: dict[str, NDArray], label: Any
    ) -> Any:
        """Join what is known of groups: a table that is named, or one that the query has."""
        from sqlglot import exp

        same = label.eq(_column(group, KNOWN))
        if not isinstance(self.known, bool):
            return query.join(_table(self.known, KNOWN), on=same, join_type="left")
        _check_names([group, *values])
        if labels.dtype.kind == "M" and np.datetime_data(labels.dtype)[0] == "ns":
            labels = labels.astype("M8[us]")  # NumPy lists nanoseconds as numbers
        rows = zip(labels.tolist(), *(x.tolist() for x in values.values()), strict=True)
        tuples = [exp.Tuple(expressions=[_label(row[0]), *map(_number, row[1:])]) for row in rows]
        names = [_name(name) for name in (group, *values)]
        table: Any = exp.Values(
            expressions=tuples, alias=exp.TableAlias(this=_name(KNOWN), columns=names)
        )
        if self.dialect == "sqlite":
            table = _values_of_sqlite(tuples, names)
        return query.join(table, on=same, join_type="left")


def _values_of_sqlite(tuples: list[Any], names: list[Any]) -> Any:
    """Return a table of values for SQLite, which numbers their columns.

    It joins by an index only what is declared alike and stands by itself, which values are not;
    distinct ones are.
    """
    from sqlglot import exp

    text = not tuples or isinstance(tuples[0].expressions[0], exp.Cast)
    text |= getattr(tuples[0].expressions[0], "is_string", False) if tuples else False
    numbered: list[exp.Expression] = [exp.column(f"column{j}") for j, _ in enumerate(names, 1)]
    numbered[0] = exp.cast(numbered[0], "text" if text else "numeric")
    values = exp.select(*(exp.Alias(this=x, alias=y) for x, y in zip(numbered, names, strict=True)))
    return _subquery(values.distinct().from_(exp.Values(expressions=tuples)), KNOWN)


def _check_closed_form(view: LocationView) -> None:
    """Refuse estimates that are not a quotient of sums."""
    kind = type(view.prior)
    if view.components is not None or kind not in (Normal, Beta, Gamma):
        raise ValueError(
            f"{view.title} with a population {kind.__name__} has no SQL: its estimates are sums "
            "over atoms or nodes. Normal, beta and gamma populations have."
        )
    if any(view.covariate_names):
        raise ValueError(
            f"{view.title} with covariates has no SQL: each group has a population of its own."
        )
    paper = kind is Beta and view.prior.weighs_own_reports
    if not view.all_exact or view.prior.averages_ or paper:
        raise ValueError(
            f"{view.title} has no SQL where messages are reports of a channel: its estimates are "
            "averages over plausible populations, or take out what a group reported itself."
        )
    if not np.isfinite([view.prior.mean_, view.prior.variance_]).all():
        raise ValueError(f"{view.title} has no SQL: its population is not finite.")


def _estimate(view: LocationView, j: int, total: Any, size: Any, seen: Any) -> Any:
    """Posterior mean of one column, an expression of a group's sum and size."""
    from sqlglot import exp

    prior: Any = view.prior
    mean = float(prior.mean_[j])
    if isinstance(prior, Beta):
        weight = float(prior.concentration_[j])
        return (_double(mean * weight) + total) / (_double(weight) + size)
    if isinstance(prior, Gamma):
        shape = min(float(prior.shape_[j]), POINT_MASS)
        return _double(mean) * (_double(shape) + total) / (_double(shape) + _double(mean) * size)
    assert view.noise_variance is not None
    noise = float(view.noise_variance[j])
    if noise == 0:
        own = total / exp.func("NULLIF", size, _zero())
        return exp.func("COALESCE", own, _double(mean))
    between, error = float(prior.variance_[j]), float(prior.mean_variance_[j])
    spread = _double(between + error)
    if seen is not None:
        spread = exp.Case().when(seen, _double(between)).else_(spread)
    return (_double(mean * noise) + spread * total) / (_double(noise) + spread * size)


def _centre(view: RegressionView) -> list[float]:
    """Mean of the coefficients of a group that is not known."""
    fixed = [value for effect, _, _, value, _ in view.parameters() if effect == "fixed"]
    if len(fixed) != len(view.terms):
        raise ValueError(
            f"{view.title} with covariates has no SQL: each group has a population of its own."
        )
    return [float(value) for value in fixed]


def _check_names(names: Sequence[str]) -> None:
    if twice := {name for name in names if list(names).count(name) > 1}:
        raise ValueError(f"two columns would be called {min(twice)!r}; rename those of the table.")


# Expressions -------------------------------------------------------------------------------------


def _name(text: str) -> Any:
    from sqlglot import exp

    if not isinstance(text, str) or not text or "\0" in text:
        raise ValueError(f"a name of a table or column must be text; got {text!r}.")
    return exp.to_identifier(text, quoted=True)


def _column(name: str, table: str) -> Any:
    """Return a column, with its table: SQLite reads a name that it does not know as text."""
    from sqlglot import exp

    return exp.Column(this=_name(name), table=_name(table))


def _table(name: str | Sequence[str], alias: str) -> Any:
    """Return a table, whose name may have parts, such as a schema."""
    from sqlglot import exp

    parts = [name] if isinstance(name, str) else list(name)
    if not 1 <= len(parts) <= 3:
        raise ValueError(f"table must be a name, or up to three parts of one; got {name!r}.")
    this, db, catalog = (*map(_name, reversed(parts)), None, None)[:3]
    known_as = exp.TableAlias(this=_name(alias))
    return exp.Table(this=this, db=db, catalog=catalog, alias=known_as)


def _subquery(query: Any, alias: str) -> Any:
    from sqlglot import exp

    return exp.Subquery(this=query, alias=exp.TableAlias(this=_name(alias)))


def _named(expression: Any, name: str) -> Any:
    from sqlglot import exp

    return exp.Alias(this=expression, alias=_name(name))


def _sum(values: Any) -> Any:
    """Return a sum as a double, 0 where there is nothing to add."""
    from sqlglot import exp

    total = exp.func("SUM", exp.cast(values, "double"))
    return exp.func("COALESCE", total, _zero())


def _zero() -> Any:
    from sqlglot import exp

    return exp.Literal.number(0)


def _number(value: float) -> Any:
    """Return a number with an exponent, which no dialect reads as a decimal of few digits."""
    from sqlglot import exp

    if not np.isfinite(value):
        raise ValueError(f"SQL has no number {value!r}.")
    size = exp.Literal.number(f"{abs(value):.16e}")
    return exp.Neg(this=size) if np.signbit(value) else size


def _double(value: float) -> Any:
    from sqlglot import exp

    return exp.cast(_number(value), "double")


def _label(value: Any) -> Any:
    """Return a label of a group or class as a literal."""
    from sqlglot import exp

    if isinstance(value, bool):
        return exp.Boolean(this=value)
    if isinstance(value, str):
        return exp.Literal.string(value)
    if isinstance(value, int):
        size = exp.Literal.number(str(abs(value)))
        return exp.Neg(this=size) if value < 0 else size
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, dt.datetime):
        return exp.cast(exp.Literal.string(value.isoformat(" ")), "timestamp")
    if isinstance(value, dt.date):
        return exp.cast(exp.Literal.string(value.isoformat()), "date")
    raise TypeError(
        f"labels of type {type(value).__name__} have no form in SQL; text, numbers, dates and "
        "times have."
    )
