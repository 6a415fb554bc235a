"""Location: a parameter for every group, estimated in one round.

Clients send summaries through a channel, the server fits a prior to what the messages say, and
every client's posterior follows from its own exact data. `LocationEstimator` is the scikit-learn
face of that. It is composed of an `Intake` (reads rows), a `LocationRounds` (what clients and
server do), and `Learned` (what the fit found, and posteriors).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self, Unpack, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from ebfed import priors
from ebfed.channels import Channel, Guess
from ebfed.engines.base import Engine
from ebfed.engines.protocol import LocationMemory
from ebfed.engines.publishing import Published
from ebfed.engines.rounds import converse_here
from ebfed.location.consent import check_weights, named_channels
from ebfed.location.cross_fitting import with_predictions
from ebfed.location.learned import Learned
from ebfed.location.rounds import LocationRounds
from ebfed.location.viewing import LocationFile, output_style, own_scale_posterior, view_of_fit
from ebfed.priors import Posterior, Prior
from ebfed.privacy import ledger
from ebfed.report.effects import GroupEffects
from ebfed.report.view import LocationView
from ebfed.tables.clients import Clients, Summary
from ebfed.tables.features import validated
from ebfed.tables.frames import frame, indexed_like
from ebfed.tables.intake import GroupRows, Intake
from ebfed.tables.labels import number_labels
from ebfed.tables.lazy import COUNTED, Summarised, column_names, columns_beside, counted, is_lazy
from ebfed.tables.of_rows import OfRows, Predicted, given_of_rows, wants_rate
from ebfed.tables.of_rows import of_rows as read_of_rows
from ebfed.tables.roles import Roles
from ebfed.tables.rows import Rows
from ebfed.tables.scans import FITTED, Beside

__all__ = ["LocationEstimator", "ReportingEstimator", "chosen_prior"]

# What belongs to rows reaches methods where scikit-learn's metadata routing is enabled.
ROUTED = dict.fromkeys(("groups", *sorted(OfRows.__optional_keys__)), True)


def _has_one_channel(estimator: Any) -> bool:
    if isinstance(estimator.channel, Mapping):
        raise AttributeError("partial_fit is for one channel; fit all rows with consent= at once.")
    if estimator.mean_model is not None:
        raise AttributeError("mean_model is fitted to all groups at once: use fit.")
    return True


class LocationEstimator(GroupEffects, OneToOneFeatureMixin, TransformerMixin, Published):
    """Estimator of one round: reports through a channel, a fitted prior, a posterior per client.

    Attributes
    ----------
    prior_ : Prior
        The fitted population.
    summaries_ : Summary
        Figures of the clients; in a real federation, they stay with the clients.
    privacy_ : DataFrame
        Ledger of what clients sent.
    groups_ : ndarray of shape (n_groups,)
        Labels, sorted.
    notes_ : list of str
        Remarks on the fit: what was not identified, or is at a boundary.
    covariate_names_ : list of k str
        Names of the covariates, none if the population was fitted without.
    coef_, intercept_ : ndarray of shape (k,) or (d, k), and float or (d,)
        Coefficients and intercept of the mean of the population (of rates: its logit or log).
    n_features_in_ : int
    """

    prior: Any
    channel: Channel | Mapping[Any, Channel] | None
    guess: Guess | None
    participation: Any
    engine: Any
    random_state: Any
    mean_model: Any = None

    prior_: Prior
    summaries_: Summary
    _learned: Learned
    _intake: Intake = Intake()  # before any rows are read
    _takes_weights: ClassVar[bool] = True
    # Whether rows are numbers, rather than labels of categories.
    _numeric: ClassVar[bool] = True
    _mark: ClassVar[str] = "prior_"
    # What a file has of the fit.
    _file: ClassVar = LocationFile()
    __metadata_request__fit: ClassVar = ROUTED
    __metadata_request__partial_fit: ClassVar = ROUTED
    __metadata_request__predict: ClassVar = ROUTED
    __metadata_request__transform: ClassVar = ROUTED
    __metadata_request__score: ClassVar = ROUTED

    @abstractmethod
    def protocol(self) -> LocationRounds:
        """Return what clients and server do, by these arguments.

        They say of which family the rows are, and which population they come from.
        """

    # Learning ---------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        consent: Any = None,
        covariates: Any = None,
        **of_rows: Unpack[OfRows],
    ) -> Self:
        """Learn the population from rows.

        Parameters
        ----------
        X : array-like, series or data frame of shape (n_rows, d) or (n_rows,), Clients or Summary
        y : ignored
        groups : array-like of shape (n_rows,) or str, or several of them, optional
            Label of each row, or the column of the frame `X` that holds it. If it is a
            column, `predict` and `posterior` read it too. None: every row is a group of its own.
            Levels, ``["state", "county"]`` from the outermost (columns, label arrays, or a frame
            with a column for each): a county is shrunk to its state, a state to all, and labels of
            counties need only differ within states. For normal populations, and for beta and gamma
            ones with two levels and exact messages; parents are public.
        consent : array-like of shape (n_rows,), str or dict, optional
            What each row's group agreed to send, a key of `channel`: labels, the column of the
            frame `X` that holds them, or a dict from group to key.
        covariates : list of str, data frame or array-like, optional
            Covariates of the groups, on which the mean of the population depends, besides an
            intercept. Four forms are possible:

            - names of columns of `X`, which are constant within groups;
            - a frame with one row for each group, in any order, and a column of labels with the
              name of `groups`, or ``"group"``; in pandas the labels may be the index;
            - a pandas series with the labels as its index;
            - numbers of shape (n_groups, k), in the order of sorted labels.

            A default pandas index (0, 1, 2, …) is not used as labels if the groups have others. In
            a federation covariates are public: clients send them without noise.
        exposure, observed, sample_weight : array-like of shape (n_rows,) or str, optional
            What goes with each row, or the column of the frame `X` that holds it; see
            `ebfed.tables.of_rows.OfRows`. Counts of events may have an exposure, such as
            person-years; durations may be censored, where `observed` is 0. Weights are precisions
            of means and variances: the variance of a row is that of its group over the weight.
            Of rates, counts, categories and durations they are frequencies: a row counts for so
            many. A row of weight 0 adds nothing; its group is estimated. All methods that read
            rows take what the fit had.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            If rows are missing, infinite or of the wrong type, or labels do not fit them; if
            covariates are not numbers, missing, vary within a group, are constant or collinear, or
            are too many for so few groups.

        Notes
        -----
        Pandas series and frames of rows pair by label: `groups`, `consent` and what goes with rows
        in another order than `X` are put in its order, and other labels are refused. A default
        index (0, 1, 2, …) is not used as labels (`ebfed.tables.alignment`).
        """
        given = _given(groups=groups, consent=consent, covariates=covariates, **of_rows)
        return self._fit(*self.protocol().prepare(X, y, **given))

    def _fit(self, clients: Summary, memory: LocationMemory) -> Self:
        notes: list[str] = []
        if self.mean_model is not None:
            memory, notes = with_predictions(self, clients, memory)
        protocol = self.protocol()
        state, memory = converse_here(protocol, clients, memory, private=protocol.promises())
        self._kept = protocol.keep(state)
        protocol.finish(protocol.broadcast(state), memory, clients)
        for note in notes:
            self.prior_._add_note(note)
        return self

    @available_if(_has_one_channel)
    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        covariates: Any = None,
        **of_rows: Unpack[OfRows],
    ) -> Self:
        """Add a block of rows to those fitted before; the answer is that of one `fit` on all.

        Blocks may share groups. Parameters are those of `fit`; without `groups`, the rows of a
        block are new groups, numbered on from those seen.
        """
        if not hasattr(self, "summaries_"):
            given = _given(groups=groups, covariates=covariates, **of_rows)
            return self.fit(X, y, **given)
        (channel,) = named_channels(self.channel).values()
        if channel.guarantee()[0] < np.inf:
            raise ValueError(
                f"partial_fit would ask every client for a second report through {channel!r}, at "
                "twice the privacy; fit all rows at once."
            )
        rows = self._read(X, groups, covariates=covariates, **of_rows)
        summary = rows.summary
        if rows.labels is None:
            if self.groups_.dtype.kind != "i":
                raise ValueError("groups must label the rows, as they did before.")
            summary = summary.renamed(summary.ids + self.groups_[-1] + 1)
        merged = self.protocol().family.merge(self.summaries_, summary)
        given_covariates = self._learned.covariates_of(summary.ids, rows.covariates)
        memory = LocationRounds.blank(merged)
        if given_covariates.shape[1]:
            both = number_labels(np.concatenate([self.groups_, summary.ids]))[1]
            _, first = np.unique(both, return_index=True)
            joined = np.concatenate([self._learned.memory["covariates"], given_covariates])
            memory["covariates"] = joined[first]
        return self._fit(merged, memory)

    def fit_predict(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        consent: Any = None,
        covariates: Any = None,
        **of_rows: Unpack[OfRows],
    ) -> NDArray:
        """Fit, and predict each row; see `fit` and `predict`."""
        later = _given(groups=groups, covariates=covariates, **of_rows)
        self.fit(X, y, **later, **_given(consent=consent))
        return self.predict(X, **later)

    def fit_transform(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        consent: Any = None,
        covariates: Any = None,
        **of_rows: Unpack[OfRows],
    ) -> NDArray:
        """Fit, and replace each row by the estimate of its group."""
        later = _given(groups=groups, covariates=covariates, **of_rows)
        self.fit(X, y, **later, **_given(consent=consent))
        return self.transform(X, **later)

    # What was learned -------------------------------------------------------------------------

    @property
    def privacy_(self) -> Any:
        """Ledger of what clients sent: a frame with one row for each kind of release.

        Columns: ``who``; ``what`` they sent; how many ``clients``, and how many ``times`` each;
        ``epsilon`` and ``delta`` of all that one client sent, under the `relation` named, given the
        ``assumptions``; ``bits`` sent in all; and how many clients' means were ``clipped``, which
        each client counts and does not send (NaN in a server's own copy).
        """
        check_is_fitted(self, "prior_")
        return frame(ledger.columns(self._learned.ledger), output_style(self, self._intake.style))

    @property
    def groups_(self) -> NDArray:
        """Labels of the groups that were fitted, sorted."""
        check_is_fitted(self, "summaries_")
        return self.summaries_.ids

    @property
    def notes_(self) -> list[str]:
        """Remarks on the fit."""
        check_is_fitted(self, "prior_")
        return self.prior_.notes_

    @property
    def coef_(self) -> NDArray:
        """Coefficients of the covariates, shape (k,), or (d, k) if X has several columns."""
        coefficients = self.prior_.coefficients_[1:].T
        return coefficients[0] if len(coefficients) == 1 else coefficients

    @property
    def intercept_(self) -> Any:
        """Intercept of the population's mean, a number, or shape (d,)."""
        intercept = self.prior_.coefficients_[0]
        return float(intercept[0]) if len(intercept) == 1 else intercept

    @property
    def log_likelihood_(self) -> float:
        """Log marginal likelihood of rows, or of clients' reports; restricted where REML is."""
        check_is_fitted(self, "prior_")
        return self._learned.log_likelihood()

    @property
    def likelihood_kind_(self) -> str:
        """Kind of that likelihood, ``"ML"`` or ``"REML"``."""
        check_is_fitted(self, "prior_")
        return self._learned.likelihood_kind

    @property
    def n_parameters_(self) -> int:
        """Number of fitted parameters, noise variances included."""
        check_is_fitted(self, "prior_")
        return self._learned.n_parameters

    # Estimates --------------------------------------------------------------------------------

    def posterior(
        self,
        X: Any = None,
        *,
        groups: Any = None,
        covariates: Any = None,
        integrate: bool = True,
        **of_rows: Unpack[OfRows],
    ) -> Posterior:
        """Posterior of each group's parameter.

        Parameters
        ----------
        X : as in `fit`, optional
            Rows to use instead of those of the fit; they may be of groups that were not in it.
        groups : as in `fit`, optional
            Groups of the posterior, if there is no `X`: each has its rows of the fit. An unseen
            group has the population, with an `UnseenGroupWarning`.
        covariates : as in `fit`, optional
            Covariates of the groups of `X` or `groups`, needed for unseen groups if the fit had
            covariates; the groups of the fit keep their own.
        integrate : bool
            Whether intervals and all else include what is not known of the population; see `Prior`.
        exposure, observed, sample_weight : as in `fit`, optional

        Returns
        -------
        Posterior
            One entry per distinct group, in the order of the sorted labels.
        """
        found = own_scale_posterior(
            self, X, groups=groups, covariates=covariates, integrate=integrate, **of_rows
        )
        return self._learned.shown(found)

    def predict(
        self,
        X: Any = None,
        *,
        groups: Any = None,
        covariates: Any = None,
        type: Predicted = "response",
        **of_rows: Unpack[OfRows],
    ) -> NDArray:
        """Expected response of each row, by the estimate of its group.

        Of means, rates of 0 and 1, shares and variances that is the estimate itself. Of counts it
        is the estimated rate times the exposure of the row: the expected count. Of durations it is
        the rate times the duration: the expected number of events in that time.

        Parameters
        ----------
        X, groups, covariates, exposure, observed, sample_weight : as in `posterior`
        type : {"response", "rate"}
            Of counts and durations, ``"rate"`` is the estimated rate, at an exposure of 1.

        Returns
        -------
        ndarray of shape (n_rows,) or (n_rows, d), or lazy table
            Of a table of another engine, that table with a column ``.fitted``: its groups are
            summarised at once, and its rows are computed when they are read. Without `X`, one entry
            for each label in `groups`, or each group of the fit: of counts at its `exposure`, if
            that is given with `groups`, and else at 1. A summary has no rows, and its groups have
            their estimates.
        """
        check_is_fitted(self, "prior_")
        family = self.protocol().family
        rate = wants_rate(type, family.has_rates, family.name)
        if X is None:
            given = given_of_rows(of_rows, family.of_rows, family.name)
            mean = np.asarray(self.transform(None, groups=groups, covariates=covariates))
            times = {name: read_of_rows(each, name) for name, each in given.items()}.get("exposure")
            if times is not None and len(times) != len(mean):
                raise ValueError(
                    f"exposure has {len(times)} entries for {len(mean)} entries of groups."
                )
        elif is_lazy(X):
            return self._beside(X, groups, covariates, of_rows, rate)
        else:
            _check_in_memory(X)
            rows = self._read(X, groups, covariates=covariates, **of_rows)
            mean, times = self._learned.estimates_of(rows), None
            if rows.values is not None:
                times = family.responses(rows.values, rows.of_rows)[1]
        if family.has_rates and times is not None and not rate:
            mean = mean * times[:, None]
        return mean[:, 0] if mean.shape[1] == 1 else mean

    def _beside(
        self, X: Any, groups: Any, covariates: Any, of_rows: Mapping[str, Any], rate: bool
    ) -> Any:
        """Return a lazy table with the estimates of its groups as a column."""
        rows = self._read(X, groups, covariates=covariates, **of_rows)
        if len(self._learned.terms) > 1:
            raise ValueError(
                "predictions of rows that are not in memory need one column of values; collect the "
                "rows."
            )
        known, times = self._intake.roles.found(X, {"groups": groups, **of_rows}), None
        if not rate:
            times = self.protocol().family.times_column(self._learned.terms[0], known)
        mean = self._learned.estimates_of(rows)
        beside = Beside.of(X, known["groups"], rows.summary.ids, mean, [np.nan])
        return beside.fitted({FITTED: beside.total([times])})

    def transform(
        self,
        X: Any = None,
        *,
        groups: Any = None,
        covariates: Any = None,
        **of_rows: Unpack[OfRows],
    ) -> NDArray:
        """Replace each row by the estimate of its group, shape (n_rows, d)."""
        check_is_fitted(self, "prior_")
        if X is None:
            codes = slice(None) if groups is None else self._intake.numbered(groups)[1]
            return self.posterior(groups=groups, covariates=covariates).mean[codes]
        _check_in_memory(X)
        rows = self._read(X, groups, covariates=covariates, **of_rows)
        return self._learned.estimates_of(rows)

    def score(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        covariates: Any = None,
        **of_rows: Unpack[OfRows],
    ) -> float:
        """Held-out log predictive density, per row.

        The density of the rows of each group given the rows of that group in the fit (none, if it
        is a new group) and the fitted population. Higher is better; comparable between priors.

        Returns
        -------
        float
        """
        check_is_fitted(self, "prior_")
        learned = self._learned
        rows = self._read(X, groups, y=y, covariates=covariates, **of_rows)
        summary = rows.summary
        given = learned.covariates_of(rows.clients.ids, rows.covariates)
        if rows.labels is None:
            return float(learned.log_evidence(summary, given).sum() / summary.n.sum())
        seen = learned.known(summary.ids)
        gain = learned.log_evidence(learned.family.merge(seen, summary), given)
        gain -= learned.log_evidence(seen, given)
        return float(gain.sum() / summary.n.sum())

    def augment(
        self, X: Any, *, groups: Any = None, covariates: Any = None, **of_rows: Unpack[OfRows]
    ) -> Any:
        """Return the rows with the estimate of their group, and residuals.

        Parameters
        ----------
        X, groups, covariates, exposure, observed, sample_weight : as in `predict`

        Returns
        -------
        DataFrame
            Group label, the columns of `X`, then ``.fitted``, ``.resid`` and ``.fixed``, what would
            be fitted if nothing were known of the group (each with the name of the column, where
            there are several). Of durations, these are of events, 0 or 1: the duration times the
            rate, the martingale residual. Of a pandas frame, with its index.
        """
        check_is_fitted(self, "prior_")
        if isinstance(X, Clients | Summary):
            raise TypeError("augment needs the rows themselves; got a summary.")
        _check_in_memory(X)
        rows = self._read(X, groups, covariates=covariates, **of_rows)
        fitted, expected = self._learned.estimates_of(rows), self._learned.expected_of(rows)
        names, values, new = self._learned.terms, cast(NDArray, rows.values), {}
        responses, times = self.protocol().family.responses(values, rows.of_rows)
        if times is not None:
            fitted, expected = fitted * times[:, None], expected * times[:, None]
        columns = {name: values[:, j] for j, name in enumerate(names)}
        for j, name in enumerate(names):
            suffix = f"_{name}" * (len(names) > 1)
            new[".fitted" + suffix] = fitted[:, j]
            new[".resid" + suffix] = responses[:, j] - fitted[:, j]
            new[".fixed" + suffix] = expected[:, j]
        style = output_style(self, rows.style).avoiding(columns | new)
        return indexed_like(frame({style.group: rows.shown} | columns | new, style, own=new), X)

    def __ebfed_view__(self) -> LocationView:
        check_is_fitted(self, "prior_")
        return view_of_fit(self)

    @property
    def _ledger(self) -> Any:
        learned: Learned | None = vars(self).get("_learned")
        return () if learned is None else learned.ledger

    # Reading ----------------------------------------------------------------------------------

    def _read(
        self, X: Any, groups: Any, *, y: Any = None, learn: bool = False, **given: Any
    ) -> GroupRows:
        """Read rows, and what goes with them; see `Intake.read`."""
        if isinstance(y, str):
            raise ValueError(
                f"y={y!r} names a column, and {type(self).__name__} reads observations from X: "
                f"give X[{y!r}], with groups= its labels."
            )
        family, given = self.protocol().family, _given(**given)
        beside = [name for name in given if name not in ("consent", "covariates")]
        of_rows = {name: given.pop(name) for name in beside}
        of_rows = given_of_rows(of_rows, family.of_rows, family.name)
        if not Intake.is_lazy(X):
            if y is not None and not isinstance(X, Clients | Summary) and _ndim(X) == 1:
                raise ValueError(
                    "X is one-dimensional and y was given. Observations go in X; if y holds the "
                    "labels of the groups, pass them as groups=."
                )
            options = given | {"groups": groups, "of_rows": of_rows, "learn": learn}
            options["values"] = "numbers" if self._numeric else "labels"
            rows = self._intake.read(X, self._checked_rows, self._summarised, **options)
            check_weights(self, rows.summary)
            if rows.values is not None:
                return rows
            if learn:
                self.n_features_in_ = rows.summary.n_features
            elif rows.summary.n_features != self.n_features_in_:
                raise ValueError(
                    f"X has {rows.summary.n_features} features, but {type(self).__name__} was "
                    f"fitted with {self.n_features_in_}."
                )
        elif family.needs_values and not isinstance(X, Summarised):
            return self._read_counted(X, groups, of_rows, learn, given)
        else:
            check = partial(validate_data, self, skip_check_array=True, reset=learn)
            options = given | {"groups": groups, "of_rows": of_rows, "learn": learn}
            rows = self._intake.read_lazily(X, check, figures=family.figures_of_rows, **options)
            check_weights(self, rows.summary)
        return replace(rows, summary=family.converted(rows.summary))

    def _checked_rows(self, rows: Rows, learn: bool) -> NDArray:
        """Check values as scikit-learn and the family do; returns them in shape (n_rows, d)."""
        return self.protocol().family.check_rows(self._numbers(rows, learn))

    def _summarised(self, *rows: Any) -> Summary:
        """Summarise rows that were checked, of which the number of categories is known by now."""
        return self.protocol().family.summarise(*rows)

    def _numbers(self, rows: Rows, learn: bool) -> NDArray:
        """Check values as scikit-learn does; returns them in shape (n_rows, d)."""
        single = learn or self.n_features_in_ == 1
        return validated(self, rows.X, rows.columns, reset=learn, single=single)

    def _read_counted(
        self, X: Any, groups: Any, of_rows: Mapping[str, Any], learn: bool, given: dict[str, Any]
    ) -> GroupRows:
        """Read the different rows of a lazy table, which its engine counts."""
        roles = Roles() if learn else self._intake.roles
        named = roles.found(X, {"groups": groups, **of_rows})
        columns_beside(X, {"groups": None} | named if learn else named)
        weight = named.get("sample_weight")
        X = counted(X, [name for name in column_names(X) if name != weight], weight)
        known = given | dict(of_rows) | {"sample_weight": COUNTED}
        rows = self._read(X, groups, learn=learn, **known)
        if not learn:
            return rows.alone
        weights = {"sample_weight": of_rows.get("sample_weight")}
        self._intake.roles = self._intake.roles.learned(X, weights)
        return rows


@dataclass(eq=False, repr=False)
class ReportingEstimator(LocationEstimator):
    """Estimator whose clients report their own mean or rate, each through a channel.

    Parameters
    ----------
    channel, guess, participation, engine, random_state
        As in `GaussianEB`.
    """

    _: KW_ONLY
    channel: Channel | Mapping[Any, Channel] | None = None
    guess: Guess | None = None
    participation: int | ArrayLike | None = None
    engine: Engine | None = None
    random_state: Any = None


def _check_in_memory(X: Any) -> None:
    if Intake.is_lazy(X):
        raise ValueError(
            "the rows of X are not in memory; predict(X) puts estimates beside them, and "
            "posterior(X, groups=...) estimates its groups."
        )


def chosen_prior(prior: Any, *names: str, **arguments: Any) -> Prior:
    """Return the prior that an argument names, or a copy of the one it is.

    Parameters
    ----------
    prior : str or Prior
    *names : str
        ``"npmle"``, and classes of `ebfed.priors`, such as ``"log_spline"``.
    **arguments
        Of the first class.
    """
    if isinstance(prior, Prior):
        return clone(prior)
    if not (isinstance(prior, str) and prior in names):
        raise ValueError(
            f"prior must be {', '.join(map(repr, names))} or an ebfed.priors.Prior; got {prior!r}."
        )
    if prior == "npmle":
        return priors.Discrete(prior)
    kind = getattr(priors, prior.title().replace("_", ""))
    return kind(**arguments) if prior == names[0] else kind()


def _ndim(X: Any) -> int:
    try:
        return X.ndim if hasattr(X, "ndim") else np.asarray(X).ndim
    except ValueError:
        raise ValueError("X must have rows of one length.") from None


def _given(**arguments: Any) -> dict[str, Any]:
    """Arguments that were given: subclasses need not know them all."""
    return {name: value for name, value in arguments.items() if value is not None}
