"""Target encoding: categories replaced by shrunken means of a target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.model_selection import check_cv
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from ebfed.location.cross_fitting import cross_predictions, deal, regressor_of
from ebfed.location.encodings import (
    CategoryRows,
    Encoding,
    Target,
    fit_encoding,
    lazy_target,
    sums_of_categories,
)
from ebfed.tables.categories import NestedCategories
from ebfed.tables.lazy import columns_beside, is_lazy
from ebfed.tables.roles import Roles
from ebfed.tables.rows import Rows
from ebfed.tables.scans import Lookup, with_codes
from ebfed.tables.values import unmasked

__all__ = ["GroupEncoder"]

Column = str | int


@dataclass(eq=False, repr=False)
class GroupEncoder(TransformerMixin, BaseEstimator):
    """Target encoding for high-cardinality categories without leakage.

    Each category of a column is replaced by an empirical Bayes estimate of the mean of the target
    in it: of its own rows, shrunk towards the mean of all categories, by as much as the data say.
    Category i has n_i rows ``y_ij`` around ``theta_i``, and ``theta_i`` is drawn from a population,
    whose parameters are estimated; the encoding is the mean of theta_i given the rows,

        (n_i ybar_i + k mu) / (n_i + k).

    - A continuous target: ``y_ij ~ N(theta_i, s**2)``, ``theta_i ~ N(mu, t**2)``, ``k = s**2 /
      t**2``, by restricted maximum likelihood, as in `GaussianEB`.
    - A binary target: ``y_ij ~ Bernoulli(theta_i)``, ``theta_i ~ Beta(a, b)``, k = a + b, by
      maximum likelihood, as in `BernoulliEB`. With several classes, each against the others: a
      column for each.
    - A count: ``y_ij ~ Poisson(theta_i)``, ``theta_i ~ Gamma(shape a, mean mu)``, k = a / mu, by
      maximum likelihood, as in `PoissonEB`.

    The population is one, so that one k serves all categories: small ones are shrunk more than
    large ones, and a single row, whose variance cannot be seen, is shrunk most.

    ``fit_transform`` is cross-fitted, so that no row's encoding uses its own target. Rows are
    divided at random into `cv` folds of nearly equal size. Rows of a fold are encoded by the rows
    of the other folds alone: sums, mu, k and, where there is one, the model of the mean. A category
    that has no rows in the other folds is unseen there. (The search for k begins where that of all
    rows ended. This can change k by a thousandth of it, and nothing else.) Then ``fit(X,
    y).transform(X)`` is something else: it uses the target of every row, and must not be used to
    train a model. A `Pipeline` and a `ColumnTransformer` call `fit_transform` on training rows and
    `transform` on others, so nothing has to be done there.

    Categories may be text, numbers, dates or categories, in an array or a frame of pandas or
    polars. Missing values are a category of their own. A category that was not in the fit has the
    estimate of a new one: mu.

    Parameters
    ----------
    target : {"auto", "continuous", "binary", "count", "multiclass"}
        What the target is. ``"auto"``: two values are binary. Of more, text, categories and up to
        30 integers are classes; floats and more integers are continuous. Counts have to be named.
    levels : list of tuples of columns, optional
        Columns within columns, the outermost first: with ``[("state", "county")]`` counties are
        shrunk to their state, and states to the mean. A county is then the pair of both columns. An
        unseen county has the estimate of its state. A column is in one tuple at most. Rows of such
        columns are taken as normal whatever the target: the estimate is the best linear one
        (hierarchical credibility), by the variances of each level.
    mean_model : regressor of scikit-learn, optional
        The population's mean depends on `covariates`: categories are shrunk towards the average of
        the regressor's predictions for their rows, plus mu. It is fitted to the target (to the
        indicator of a class), and predicts only rows that it was not fitted to. Deviations from it
        are taken as normal. An unseen category has the prediction for the row, plus mu. With `cv`
        folds it is fitted ``cv (cv + 1) / 2 + 1`` times.
    covariates : list of columns, optional
        Columns for the regressor. They are not encoded, and not among the results.
    cv : int or splitter of scikit-learn
        Number of folds of `fit_transform`, or a splitter whose test rows are each row once.
    random_state : int, Generator or None
        Seed of the folds.

    Attributes
    ----------
    target_type_ : str
        What the target is, if `target` is ``"auto"``.
    classes_ : ndarray or None
        Classes of a binary or multiclass target. The encoding of a binary target is the rate of the
        second one.
    mean_models_ : list of regressors or None
        The regressor that was fitted to all rows, for each class.

    Notes
    -----
    `sample_weight` of ``fit`` and ``fit_transform``: of a continuous target precisions,
    ``Var y_ij = s**2 / w_ij``; of others frequencies, whole numbers of rows that a row stands for.

    scikit-learn's `TargetEncoder` has a k_i for each category, by the variance of its own rows over
    that of all rows. It shrinks less, and a category of one row, or of rows that are alike, not at
    all.

    References
    ----------
    Micci-Barreca (2001), A preprocessing scheme for high-cardinality categorical attributes in
    classification and prediction problems; Efron and Morris (1975), Data analysis using Stein's
    estimator and its generalizations; Pargent, Pfisterer, Thomas, Bischl (2022), Regularized target
    encoding outperforms traditional methods in supervised machine learning with high cardinality
    features; Jewell (1975), The use of collateral data in credibility theory.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> import ebfed as eb
    >>> X = pd.DataFrame({"city": ["Ulm"] * 6 + ["Bonn"] * 6 + ["Jena"]})
    >>> y = [4.0, 6, 5, 7, 5, 3, 9, 8, 10, 9, 8, 10, 12]
    >>> encoder = eb.GroupEncoder().fit(X, y)
    >>> encoder.tidy().round(1)
       term category  n  mean  estimate
    0  city      Ulm  6   5.0       5.1
    1  city     Bonn  6   9.0       9.0
    2  city     Jena  1  12.0      11.6
    >>> encoder.transform(pd.DataFrame({"city": ["Jena", "Kiel"]})).round(1).ravel()
    array([11.6,  8.5])

    In a model, with the other columns as they are:

    >>> from sklearn.compose import make_column_transformer
    >>> from sklearn.linear_model import Ridge
    >>> from sklearn.model_selection import cross_val_score
    >>> from sklearn.pipeline import make_pipeline
    >>> rng = np.random.default_rng(0)
    >>> street, rooms = rng.integers(0, 300, 2000), rng.integers(1, 6, 2000)
    >>> rent = pd.DataFrame({"street": street, "rooms": rooms})
    >>> price = rng.normal(0, 1, 300)[street] + rooms + rng.normal(0, 1, 2000)
    >>> columns = make_column_transformer(
    ...     (eb.GroupEncoder(random_state=0), ["street"]), remainder="passthrough"
    ... )
    >>> cross_val_score(make_pipeline(columns, Ridge()), rent, price).mean()
    np.float64(0.6...)
    """

    target: Literal["auto", "continuous", "binary", "count", "multiclass"] = "auto"
    _: KW_ONLY
    levels: Sequence[Sequence[Column]] | None = None
    mean_model: Any = None
    covariates: Sequence[Column] | None = None
    cv: Any = 5
    random_state: Any = None

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Estimate the mean of the target in every category.

        Parameters
        ----------
        X : array-like or frame of shape (n_rows, n_columns), or lazy table
            Of a table of DuckDB, polars, Dask or Spark, whose categories must not be missing, the
            engine adds up the target; `y` and `sample_weight` are then names of its columns.
        y : array-like of shape (n_rows,) or str
            The target, or the column of a frame that holds it.
        sample_weight : array-like of shape (n_rows,) or str, optional
            Precisions or frequencies; see the notes of the class.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If y is missing, infinite or not what `target` says, lengths differ, weights are
            negative or, for another than a continuous target, not whole, or a column of `levels` or
            `covariates` is not in X.
        """
        if is_lazy(X):
            return self._fit_in_place(X, y, sample_weight)
        self._fit(X, y, sample_weight, cross=False)
        return self

    def fit_transform(
        self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None
    ) -> NDArray[np.float64]:
        """Fit, and encode the same rows, each by rows of other folds alone.

        Parameters
        ----------
        X, y, sample_weight : as in `fit`

        Returns
        -------
        ndarray of shape (n_rows, n_encoded), or a frame after `set_output`
            A column for each encoded column of X, or one for each of its classes.
        """
        if is_lazy(X):
            raise ValueError(
                "fit_transform leaves out rows by their folds, and needs those of X in memory; "
                "use fit, and transform other rows."
            )
        return self._fit(X, y, sample_weight, cross=True)

    def transform(self, X: Any) -> NDArray[np.float64]:
        """Encode rows that were not in the fit, by all rows of the fit.

        Parameters
        ----------
        X : array-like or frame of shape (n_rows, n_columns), or lazy table

        Returns
        -------
        ndarray of shape (n_rows, n_encoded), or a frame after `set_output`, or a lazy table
            A lazy table has all its other columns too: nothing is computed before it is read.
        """
        check_is_fitted(self, "target_type_")
        if is_lazy(X):
            return self._transform_in_place(X)
        rows = Rows.read(X, aside=self._roles.names, values="columns")
        columns, n_rows = self._columns(rows, reset=False)
        predictions: list[NDArray | None] = [None] * len(self._encodings[0])
        if self.mean_models_ is not None:
            given = self._covariates(columns)
            predictions = [np.asarray(model.predict(given), float) for model in self.mean_models_]
        out = np.empty((n_rows, self._n_outputs))
        for chain, categories, encodings in self._learned():
            nodes = categories.nodes_of([columns[j] for j in chain])
            for c, encoding in enumerate(encodings):
                for level, j in enumerate(chain):
                    estimates = encoding.estimates(nodes, level, predictions[c])
                    out[:, self._place_of(j, c)] = self._clipped(estimates)
        return out

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> NDArray:
        """Return the names of the columns of results.

        Names of the encoded columns, with a class appended where there are several.

        Parameters
        ----------
        input_features : array-like of str, optional
            Names of the columns of X, for fits on arrays.
        """
        from sklearn.utils.validation import _check_feature_names_in

        check_is_fitted(self, "target_type_")
        names = _check_feature_names_in(self, input_features)[self._encoded]
        if self.target_type_ == "multiclass":
            assert self.classes_ is not None
            names = [f"{name}_{each}" for name in names for each in self.classes_]
        return np.asarray(names, dtype=object)

    def tidy(self) -> pd.DataFrame:
        """Return the estimate of every category.

        Returns
        -------
        DataFrame
            ``term`` (the column), ``class`` (where there are several), ``category`` (a tuple of
            those above and its own, where it is within others), ``n`` (rows, or sum of weights),
            ``mean`` of its own rows, and ``estimate``.
        """
        check_is_fitted(self, "target_type_")
        names = getattr(self, "feature_names_in_", None)
        classes = self.classes_ if self.target_type_ == "multiclass" else None
        frames = []
        for chain, categories, encodings in self._learned():
            for level, j in enumerate(chain):
                for c, encoding in enumerate(encodings):
                    size, mean = encoding.local(categories.parents, level)
                    nodes = [np.arange(len(size))] * (level + 1)
                    frame: dict[str, Any] = {"term": f"x{j}" if names is None else names[j]}
                    if classes is not None:
                        frame["class"] = classes[c]
                    frame["category"] = pd.Series(categories.labels(level), dtype=object)
                    whole = (size == np.rint(size)).all()
                    frame |= {"n": size.astype(int) if whole else size, "mean": mean}
                    frame["estimate"] = self._clipped(encoding.estimates(nodes, level))
                    frames.append(pd.DataFrame(frame))
        return pd.concat(frames, ignore_index=True)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.input_tags.allow_nan = True
        return tags

    def _learned(self) -> Any:
        """Return the columns, the categories and the encodings of every chain."""
        return zip(self._chains, self._categories, self._encodings, strict=True)

    # Reading ----------------------------------------------------------------------------------

    def _columns(self, rows: Rows, reset: bool) -> tuple[list[Any], int]:
        """Return every column of X by itself, and the number of rows."""
        X = rows.tables["X"]
        if rows.columns is not None:
            table, columns = pd.DataFrame(columns=rows.columns), X
        else:
            # NumPy turns numbers beside text to text
            dtype = None if hasattr(X, "dtype") else object
            table = check_array(unmasked(X, "X"), dtype=dtype, ensure_all_finite=False)
            columns = list(table.T)
        validate_data(self, table, skip_check_array=True, reset=reset)
        n_rows = len(columns[0]) if columns else 0
        if not n_rows:
            raise ValueError(f"Found array with 0 sample(s) (shape={np.shape(X)}); X has no rows.")
        if reset:
            self._place()
        return columns, n_rows

    def _place(self) -> None:
        """Find the columns that `levels` and `covariates` name."""
        names = list(getattr(self, "feature_names_in_", ()))
        n_columns = self.n_features_in_

        def place(column: Any, argument: str) -> int:
            if isinstance(column, str) and column in names:
                return names.index(column)
            if isinstance(column, int | np.integer) and 0 <= column < n_columns:
                return int(column)
            shown = ", ".join(map(repr, names)) if names else f"0 to {n_columns - 1}"
            raise ValueError(f"{argument} names {column!r}, not among the columns of X: {shown}.")

        if (self.mean_model is None) != (self.covariates is None):
            raise ValueError("give both mean_model and covariates, or neither.")
        self._given = [place(each, "covariates") for each in self.covariates or ()]
        chains = [tuple(place(each, "levels") for each in chain) for chain in self.levels or ()]
        used = [each for chain in chains for each in chain]
        if len(set(used + self._given)) < len(used + self._given):
            raise ValueError("a column may be in levels or covariates, and there only once.")
        self._encoded = [j for j in range(n_columns) if j not in self._given]
        if not self._encoded:
            raise ValueError("covariates has all columns of X; none is left to encode.")
        self._chains = chains + [(j,) for j in self._encoded if j not in used]

    def _covariates(self, columns: list[Any]) -> pd.DataFrame:
        """Return the columns for the regressor as a frame of pandas."""
        names = getattr(self, "feature_names_in_", [f"x{j}" for j in range(len(columns))])
        frame = {names[j]: pd.Series(columns[j]).reset_index(drop=True) for j in self._given}
        return pd.DataFrame(frame).infer_objects()

    def _folds(self, X: Any, y: Any, n_rows: int) -> tuple[NDArray[np.int64], int]:
        """Return the fold of each row, and the number of folds."""
        if isinstance(self.cv, int | np.integer) and not isinstance(self.cv, bool):
            if not self.cv > 1:
                raise ValueError(f"cv must be 2 or more; got {self.cv!r}.")
            n_folds = int(self.cv)
            folds = deal(n_rows, n_folds, self.random_state)
        else:
            folds, n_folds = np.full(n_rows, -1), 0
            for _, rows in check_cv(self.cv).split(X, y):
                if (folds[rows] >= 0).any():
                    folds[:] = -1
                    break
                folds[rows], n_folds = n_folds, n_folds + 1
            if folds.min() < 0:
                raise ValueError("cv must be a splitter whose test rows are each row once.")
        if self.mean_model is not None and n_folds < 3:
            raise ValueError("cv must have 3 folds or more with a mean_model.")
        if (folds == folds[0]).all():
            raise ValueError(f"cv must leave rows in two folds; got n_samples={n_rows}.")
        return folds.astype(np.int64, copy=False), n_folds

    # Fitting ----------------------------------------------------------------------------------

    def _fit(self, X: Any, y: Any, sample_weight: Any, cross: bool) -> NDArray[np.float64]:
        """Fit to all rows and, if `cross`, to those outside each fold; return the encodings."""
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None."
            )
        beside = {} if sample_weight is None else {"sample_weight": sample_weight}
        self._roles = Roles().learned(X, {"y": y, **beside})
        rows = Rows.read(X, y=y, beside=beside, values="columns")
        columns, n_rows = self._columns(rows, reset=True)
        target = Target.of(y := rows.tables["y"], self.target)
        if len(target.columns[0]) != n_rows:
            raise ValueError(
                f"X and y have inconsistent numbers of samples: {n_rows} and "
                f"{len(target.columns[0])}."
            )
        weights = target.weights(rows.beside.get("sample_weight"))
        self.target_type_, self.classes_ = target.kind, target.classes
        self._n_outputs = len(self._encoded) * len(target.columns)
        folds, n_folds = np.zeros(n_rows, np.int64), 1
        if cross or self.mean_model is not None:
            folds, n_folds = self._folds(X, y, n_rows)
        out = np.empty((n_rows if cross else 0, self._n_outputs))
        self.mean_models_ = None
        predictions: list[Any] = [None] * len(target.columns)
        if self.mean_model is not None:
            given = self._covariates(columns)
            fits = [
                regressor_of(self.mean_model, given, values, weights) for values in target.columns
            ]
            self.mean_models_ = [fit(np.ones(n_rows, bool)) for fit in fits]
            predictions = [cross_predictions(fit, given, folds, n_folds, cross) for fit in fits]
        self._categories: list[NestedCategories] = []
        self._encodings: list[list[Encoding]] = []
        for chain in self._chains:
            own = CategoryRows.of([columns[j] for j in chain], folds, n_folds, weights)
            self._categories.append(own.categories)
            self._encodings.append([])
            for c, (values, predicted) in enumerate(zip(target.columns, predictions, strict=True)):
                *apart, whole = own.encodings(target.population, values, predicted, cross)
                self._encodings[-1].append(whole)
                for level, j in enumerate(chain if cross else ()):
                    estimates = own.crossed(apart, level, predicted)
                    out[:, self._place_of(j, c)] = self._clipped(estimates)
        return out

    def _fit_in_place(self, X: Any, y: Any, sample_weight: Any) -> Self:
        """Fit to sums of the target, which the engine of a table computes."""
        given = {"y": y} if sample_weight is None else {"y": y, "sample_weight": sample_weight}
        names = columns_beside(X, given)
        self._roles = Roles().learned(X, given)
        if self.mean_model is not None:
            raise ValueError("mean_model= needs the rows of X in memory; collect them.")
        validate_data(self, pd.DataFrame(columns=names), skip_check_array=True, reset=True)
        self._place()
        target, columns, scan = lazy_target(X, y, self.target)
        self.target_type_, self.classes_, self.mean_models_ = target.kind, target.classes, None
        self._n_outputs = len(self._encoded) * len(columns)
        self._categories, self._encodings = [], []
        if sample_weight is not None:
            columns |= {sample_weight: scan.number(sample_weight)}
        for chain in self._chains:
            own = [names[j] for j in chain]
            labels, sums = sums_of_categories(
                scan.select(own, columns), own, sample_weight, target.kind != "continuous"
            )
            categories, nodes = NestedCategories.of(labels)
            self._categories.append(categories)
            self._encodings.append(
                [
                    fit_encoding(target.population, each.ordered(nodes[-1]), categories.parents)
                    for each in sums
                ]
            )
        return self

    def _transform_in_place(self, X: Any) -> Any:
        """Return a lazy table with numbers in place of categories."""
        names = getattr(self, "feature_names_in_", None)
        if names is None or self.mean_model is not None:
            raise ValueError(
                "a lazy table is encoded by a fit of named columns, without mean_model=; collect "
                "its rows."
            )
        lookups, outputs = [], self.get_feature_names_out()
        for chain, categories, encodings in self._learned():
            above: list[str] = []
            for level, j in enumerate(chain):
                labels = zip(*categories.labels(level), strict=True) if level else None
                columns = [categories.labels(0)] if labels is None else list(labels)
                nodes = [np.arange(len(encodings[0].levels[level]))] * (level + 1)
                own = [outputs[self._place_of(j, c)] for c in range(len(encodings))]
                codes = [self._clipped(each.estimates(nodes, level)) for each in encodings]
                above_it = zip(chain[: level + 1], columns, strict=True)
                keys = {names[i]: np.array(each) for i, each in above_it}
                centre = [each.centre for each in encodings]
                found = dict(zip(own, codes, strict=True))
                lookups.append(Lookup(keys, found, centre, above))
                above = own
        return with_codes(X, lookups)

    def _place_of(self, column: int, c: int) -> int:
        """Return where the encoding of a column for class c is among the results."""
        return self._encoded.index(column) * (self._n_outputs // len(self._encoded)) + c

    def _clipped(self, estimates: NDArray) -> NDArray:
        """Return estimates in the range of the target, which predictions may leave."""
        if self.mean_model is None or self.target_type_ == "continuous":
            return estimates
        return np.clip(estimates, 0.0, None if self.target_type_ == "count" else 1.0)
