"""Categories: the shares of several answers, for every group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ebfed.channels import Channel
from ebfed.engines import Engine
from ebfed.families import Categorical
from ebfed.location.base import LocationEstimator, chosen_prior
from ebfed.location.rounds import LocationRounds
from ebfed.priors import Prior
from ebfed.tables.clients import Clients, Summary
from ebfed.tables.intake import GroupRows
from ebfed.tables.labels import number_labels
from ebfed.tables.rows import Rows
from ebfed.tables.values import read_labels

__all__ = ["CategoricalEB"]

# Categories that are named in an error.
SHOWN = 5


@dataclass(eq=False, repr=False)
class CategoricalEB(LocationEstimator):
    r"""Empirical Bayes shares of several categories, in many groups.

    Rows of group i are answers, each of one of k categories with probabilities ``theta_i``, which
    add up to 1. ``theta_i`` is drawn from a distribution, the population. With a Dirichlet
    population of mean shares mu and concentration A, ``z_ij`` answers of category j out of ``n_i``
    give

    .. math:: \hat\theta_{ij} = a_i \frac{z_{ij}}{n_i} + (1 - a_i) \mu_j,
        \qquad a_i = \frac{n_i}{n_i + A},

    with mu and A by maximum likelihood of the Dirichlet-multinomial. An infinite A is a normal
    answer: groups then differ no more than by chance. With two categories this is `BernoulliEB`.

    `X` is one column of labels: text, whole numbers, booleans, or categories of pandas. Or it has a
    column for each category, with the number of its answers: the answers of a group may be in one
    row or in several, and the columns have the names of the categories.

    Estimates, intervals and draws have a coordinate for each category, named by it. The estimates
    of a group, and its draws, add up to 1.

    Parameters
    ----------
    categories : array-like, optional
        All categories; those of the rows if None. Nodes of a federation must be given the same, and
        so must a fit of which `partial_fit` or `predict` will read categories that the first rows
        lack.
    prior : "dirichlet" or Prior
        The population; a `priors.Dirichlet` with a known alpha is copied, and a fitted one is used
        as it is: see `ebfed.priors`.
    channel : Channel or dict of Channel, optional
        How a client, the owner of a group's rows, reports them: `channels.Exact` sends its counts,
        `channels.RandomizedCategory` randomised answers, whose exact likelihood the population is
        fitted to. A dict gives each class of `consent` its own; see `GaussianEB`. Posteriors are of
        the client's own counts. Reports on local means are about one share: for these, fit
        `BernoulliEB` to ``answers == category``.
    participation : int or bool array-like of shape (n_groups,), optional
        Clients that report; all if None; see `GaussianEB`.
    engine : Engine, optional
        Engine on which clients compute; `engines.Local()` if None.
    random_state : int, Generator or None
        Seed of the channel's noise, and of `participation`.

    Attributes
    ----------
    classes_ : ndarray of shape (k,)
        The categories, sorted; of counts, in the order of their columns. A server's copy, or one
        from a file, has them as text.
    prior_ : Prior
        The fitted population, with `alpha_`, `concentration_`, `mean_` and `variance_`.
    feature_names_in_ : ndarray of shape (k,)
        The categories as text.
    summaries_, groups_, notes_, log_likelihood_ :
        See `LocationEstimator`.

    References
    ----------
    Mosimann (1962), On the compound multinomial distribution; Minka (2000), Estimating a Dirichlet
    distribution.

    Examples
    --------
    >>> import numpy as np
    >>> import ebfed as eb
    >>> rng = np.random.default_rng(0)
    >>> shares = rng.dirichlet([6, 3, 1], 500)
    >>> county = np.repeat(np.arange(500), 12)
    >>> drawn = (rng.random((6000, 1)) > shares.cumsum(axis=1)[county]).sum(axis=1)
    >>> party = np.array(["blue", "green", "red"])[drawn]
    >>> est = eb.CategoricalEB().fit(party, groups=county)
    >>> est.classes_.tolist(), est.prior_.mean_.round(1), round(est.prior_.concentration_)
    (['blue', 'green', 'red'], array([0.6, 0.3, 0.1]), 11)
    >>> est.predict(groups=[0, 999]).round(2)  # 999: no row of it was seen
    array([[0.72, 0.19, 0.09],
           [0.59, 0.3 , 0.1 ]])

    A table of counts, one row for each group:

    >>> counts = [[9, 1, 0], [2, 4, 4], [5, 0, 5], [1, 9, 0]]
    >>> eb.CategoricalEB(categories=["a", "b", "c"]).fit(counts).predict().round(2)[0]
    array([0.84, 0.13, 0.03])

    Answers that leave their owners randomised, with an epsilon of 2 for all answers of one owner:

    >>> private = eb.CategoricalEB(channel=eb.channels.RandomizedCategory(2), random_state=0)
    >>> private.fit(party, groups=county).prior_.mean_.round(1)
    array([0.6, 0.3, 0.1])
    """

    _: KW_ONLY
    categories: ArrayLike | None = None
    prior: str | Prior = "dirichlet"
    channel: Channel | Mapping[Any, Channel] | None = None
    participation: int | ArrayLike | None = None
    engine: Engine | None = None
    random_state: Any = None

    # Channels for categories leave nothing open.
    guess = None
    _numeric: ClassVar[bool] = False
    _classes = None

    def protocol(self) -> LocationRounds:
        prior = chosen_prior(self.prior, "dirichlet")
        return LocationRounds(self, Categorical(getattr(self, "n_features_in_", None)), prior)

    @property
    def classes_(self) -> NDArray:
        """The categories, shape (k,)."""
        if self._classes is not None:
            return self._classes
        return np.asarray(getattr(self, "feature_names_in_", np.arange(self.n_features_in_)))

    def _read(
        self, X: Any, groups: Any, *, y: Any = None, learn: bool = False, **given: Any
    ) -> GroupRows:
        """Read rows of labels or of counts; see `Intake.read`."""
        if learn:
            for name in ("feature_names_in_", "_classes"):
                self.__dict__.pop(name, None)
        if isinstance(X, Clients | Summary):
            rows = super()._read(X, groups, y=y, learn=learn, **given)
            if learn:
                self._name_columns()
            return rows
        rows = super()._read(X, groups, y=y, learn=learn, **given)
        if rows.values is None or learn:
            return rows
        values = rows.values
        if values.shape[1] == 1:
            values = np.zeros((len(values), self.n_features_in_))
            values[np.arange(len(values)), rows.values[:, 0].astype(np.int64)] = 1.0
        return replace(rows, values=values)

    def _codes(self, labels: NDArray, learn: bool) -> NDArray[np.int64]:
        """Number the labels by category; learn these, or refuse labels of others."""
        found, codes = number_labels(labels, "X")
        _check_labels(found)
        if learn:
            if len(codes) == 0:
                raise ValueError("X must have at least one row; it has none.")
            self._classes = found
            if self.categories is not None:
                self._classes = _given(self.categories)
            self.n_features_in_ = len(self._classes)
            self.feature_names_in_ = np.array(_names(self._classes), object)
        places = {name: j for j, name in enumerate(_names(self.classes_))}
        new = [name for name in _names(found) if name not in places]
        if new:
            shown = ", ".join(map(repr, new[:SHOWN])) + ", …" * (len(new) > SHOWN)
            raise ValueError(
                f"X has categories that are not among the {len(places)} known ones: {shown}. Give "
                "all of them by categories=."
            )
        place = np.array([places[name] for name in _names(found)], np.int64)
        return codes if np.array_equal(place, np.arange(len(place))) else place[codes]

    def _checked_rows(self, rows: Rows, learn: bool) -> NDArray:
        """Check counts, or number labels."""
        if rows.X.ndim == 1:
            return self._codes(rows.X, learn).astype(float)[:, None]
        values = super()._checked_rows(rows, learn)
        if learn:
            self._name_columns()
        return values

    def _name_columns(self) -> None:
        """Name the columns of counts as `categories` says."""
        if self.categories is None:
            return
        classes = _given(self.categories, ordered=False)
        names = _names(classes)
        there = list(getattr(self, "feature_names_in_", names))
        if len(names) != self.n_features_in_ or there != names:
            raise ValueError(
                f"categories must be those of the {self.n_features_in_} columns of X, in their "
                f"order; got {', '.join(map(repr, names[:SHOWN]))}."
            )
        self._classes, self.feature_names_in_ = classes, np.array(names, object)


def _given(categories: Any, ordered: bool = True) -> NDArray:
    """Read the argument `categories`; sorted, unless they are names of columns."""
    labels = read_labels(categories, "categories")
    found, codes = number_labels(labels, "categories")
    if len(found) < len(labels):
        raise ValueError("categories must be all different.")
    _check_labels(found, "categories")
    return found if ordered else found[codes]


def _check_labels(labels: NDArray, name: str = "X") -> None:
    """Refuse measurements."""
    if labels.dtype.kind in "mM" or (labels.dtype.kind == "f" and np.any(labels % 1)):
        first = labels[labels % 1 != 0][0] if labels.dtype.kind == "f" else labels[0]
        raise ValueError(
            f"{name} must hold labels of categories, text or whole numbers; got {first}. Cut "
            "measurements into classes first."
        )


def _names(labels: NDArray) -> list[str]:
    """Labels as text; 2.0 is that of 2, and 1e308 is not written out."""
    names = labels.tolist()
    if labels.dtype.kind == "f":
        names = [int(label) if abs(label) < 2**53 else label for label in names]
    return [str(label) for label in names]
