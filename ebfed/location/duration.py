"""Durations until an event: a rate of events for every group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.metadata_routing import UNUSED

from ebfed.channels import Channel
from ebfed.engines import Engine
from ebfed.families import Duration
from ebfed.location.base import LocationEstimator, chosen_prior
from ebfed.priors import Discrete, Gamma, LogSpline, Posterior, Prior
from ebfed.tables.alignment import aligned
from ebfed.tables.clients import Clients, Summary
from ebfed.tables.frames import (
    drop_columns,
    is_frame,
    is_series,
    numeric_columns,
    read_labels,
    with_values,
)
from ebfed.tables.intake import GroupRows, Intake
from ebfed.tables.lazy import column_names
from ebfed.tables.numbers import numbers

__all__ = ["DurationEB"]

ROUTED = {"groups": True, "observed": True, "exposure": UNUSED}


class DurationEB(LocationEstimator):
    r"""Empirical Bayes rates of events of many groups, from durations until the event.

    Durations of group i are exponential with a rate ``lambda_i`` of its own, which is drawn from a
    distribution, the population; ``1 / lambda_i`` is the mean duration. Some durations are
    right-censored: the event had not occurred when observation ended. With a gamma population of
    shape a and mean mu, ``y_i`` events in a total time of ``T_i`` give

    .. math:: \hat\lambda_i = b_i \frac{y_i}{T_i} + (1 - b_i) \mu,
        \qquad b_i = \frac{T_i}{T_i + a / \mu},

    with a and mu by maximum likelihood. The likelihood of rates is that of `PoissonEB` with the
    time at risk as exposure; scores and likelihoods are densities of durations.

    With covariates w_i of the groups, ``log mu_i = w_i' c``, as in `PoissonEB`.

    Parameters
    ----------
    prior : "gamma", "log_spline", "npmle" or Prior
        The population of rates. A `Prior` is copied.
    channel : Channel, optional
        How a client, the owner of a group's rows, reports them. It must be `channels.Exact`, which
        sends numbers of events and total times without noise: exposures are public in private
        fits, and durations are data.
    participation : int or bool array-like of shape (n_groups,), optional
        Clients that report; all if None; see `PoissonEB`.
    engine : Engine, optional
        Engine on which clients compute; `engines.Local()` if None.
    random_state : int, Generator or None
        Seed of `participation`.

    Attributes
    ----------
    prior_ : Prior
        The fitted population, with `mean_` and `variance_`.
    summaries_, groups_, notes_, log_likelihood_ :
        See `LocationEstimator`.

    Notes
    -----
    All methods that read rows take ``observed=``: 1 where the event ended a duration, 0 where it is
    censored; an array, or the name of a column of the frame `X`. None: all durations ended with the
    event, or, in a frame with the column that was named in `fit`, what that says.

    References
    ----------
    Gaver and O'Muircheartaigh (1987), Robust empirical Bayes analyses of event rates.

    Examples
    --------
    >>> import numpy as np
    >>> import ebfed as eb
    >>> rng = np.random.default_rng(0)
    >>> machine = np.repeat(np.arange(300), 5)
    >>> rate = rng.gamma(4, 0.05, 300)
    >>> hours = rng.exponential(1 / rate[machine])
    >>> seen = hours < 10  # after ten hours observation ends
    >>> est = eb.DurationEB().fit(np.minimum(hours, 10), groups=machine, observed=seen)
    >>> est.prior_.mean_.round(1), est.prior_.shape_.round(0)
    (array([0.2]), array([4.]))
    >>> (1 / est.predict(groups=[0, 999])).round(1)  # mean durations; no row of 999 was seen
    array([5.4, 5. ])
    """

    # A channel that is exact has nothing to choose.
    guess: None = None
    # Column of frames that says which durations ended with the event.
    _observed: str | None = None

    __metadata_request__fit: ClassVar = ROUTED
    __metadata_request__partial_fit: ClassVar = ROUTED
    __metadata_request__predict: ClassVar = ROUTED
    __metadata_request__transform: ClassVar = ROUTED
    __metadata_request__score: ClassVar = ROUTED

    def __init__(
        self,
        *,
        prior: str | Prior = "gamma",
        channel: Channel | Mapping[Any, Channel] | None = None,
        participation: int | ArrayLike | None = None,
        engine: Engine | None = None,
        random_state: Any = None,
    ):
        self.prior = prior
        self.channel = channel
        self.participation = participation
        self.engine = engine
        self.random_state = random_state

    def family(self) -> Duration:
        """Durations until an event."""
        return Duration()

    def population(self) -> Prior:
        """Return an unfitted prior, as `prior` says."""
        return chosen_prior(
            self.prior,
            {"gamma": Gamma(), "log_spline": LogSpline(), "npmle": Discrete("npmle")},
        )

    # Which durations are censored, where `LocationEstimator` has exposures ----------------------

    def fit(  # type: ignore[override]
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        observed: Any = None,
        consent: Any = None,
        covariates: Any = None,
    ) -> Self:
        """Learn the population from durations.

        Parameters
        ----------
        X : array-like, series or data frame of shape (n_rows,) or (n_rows, 1), or Summary
            Positive durations.
        y : ignored
        groups, consent, covariates : as in `LocationEstimator.fit`
        observed : array-like of shape (n_rows,) or str, optional
            1 (or True) where the event ended the duration, 0 where it is censored; or the column of
            the frame `X` that says so. None: no duration is censored.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            If durations are missing, infinite or not positive, `observed` is not 0 or 1 in each
            row, or the channel is another than `channels.Exact`.
        """
        options = {"groups": groups, "consent": consent, "covariates": covariates}
        return super().fit(X, y, **options, exposure=observed)

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        observed: Any = None,
        covariates: Any = None,
    ) -> Self:
        """Add a block of durations to those fitted before; see `LocationEstimator.partial_fit`."""
        options = {"groups": groups, "covariates": covariates, "exposure": observed}
        if not hasattr(self, "summaries_"):
            return super().fit(X, y, **options)
        return super().partial_fit(X, y, **options)

    def fit_predict(self, X: Any, y: Any = None, *, observed: Any = None, **given: Any) -> NDArray:
        """Fit, and estimate the rate of the group of each row; see `fit` and `predict`."""
        consent = given.pop("consent", None)
        self.fit(X, y, observed=observed, consent=consent, **given)
        return self.predict(X, observed=observed, **given)

    def fit_transform(
        self, X: Any, y: Any = None, *, observed: Any = None, **given: Any
    ) -> NDArray:
        """Fit, and replace each row by the rate of its group."""
        consent = given.pop("consent", None)
        self.fit(X, y, observed=observed, consent=consent, **given)
        return self.transform(X, observed=observed, **given)

    def posterior(  # type: ignore[override]
        self,
        X: Any = None,
        *,
        groups: Any = None,
        observed: Any = None,
        covariates: Any = None,
        integrate: bool = True,
    ) -> Posterior:
        """Posterior of each group's rate; see `LocationEstimator.posterior`."""
        options = {"groups": groups, "covariates": covariates, "integrate": integrate}
        return super().posterior(X, **options, exposure=observed)

    def predict(  # type: ignore[override]
        self, X: Any = None, *, groups: Any = None, observed: Any = None, covariates: Any = None
    ) -> NDArray:
        """Rate of each row's group; its mean duration is one over that.

        Parameters
        ----------
        X, groups, observed, covariates : as in `fit`; see `LocationEstimator.predict`

        Returns
        -------
        ndarray of shape (n_rows,)
        """
        rates = self.transform(X, groups=groups, observed=observed, covariates=covariates)
        return np.asarray(rates)[:, 0]

    def transform(  # type: ignore[override]
        self, X: Any = None, *, groups: Any = None, observed: Any = None, covariates: Any = None
    ) -> NDArray:
        """Replace each row by the rate of its group, shape (n_rows, 1)."""
        return super().transform(X, groups=groups, covariates=covariates, exposure=observed)

    def score(  # type: ignore[override]
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        observed: Any = None,
        covariates: Any = None,
    ) -> float:
        """Held-out log predictive density of durations, per row; see `LocationEstimator.score`."""
        return super().score(X, y, groups=groups, covariates=covariates, exposure=observed)

    def augment(  # type: ignore[override]
        self, X: Any, *, groups: Any = None, observed: Any = None, covariates: Any = None
    ) -> Any:
        """Return the durations with their expected numbers of events.

        Parameters
        ----------
        X, groups, observed, covariates : as in `predict`

        Returns
        -------
        DataFrame
            As of `LocationEstimator.augment`: ``.fitted`` is the duration times the rate of the
            group, ``.resid`` the event (0 or 1) less that, the martingale residual, and ``.fixed``
            the duration times the mean of the population.
        """
        found = super().augment(X, groups=groups, covariates=covariates, exposure=observed)
        _, times = self._events(X, groups, observed, None, covariates)
        return with_values(found, times, self._learned.terms[0])

    # Reading ----------------------------------------------------------------------------------

    def _read(
        self, X: Any, groups: Any, *, y: Any = None, learn: bool = False, **given: Any
    ) -> GroupRows:
        """Read events, with durations as exposures; see `Intake.read`."""
        observed = given.pop("exposure", None)
        if learn:
            self._observed = observed if isinstance(observed, str) else None
        if isinstance(X, Clients | Summary) or Intake.is_lazy(X):
            if observed is not None:
                raise ValueError("observed must be None: summaries count events and add up times.")
            return super()._read(X, groups, y=y, learn=learn, **given)
        events, times = self._events(
            X, groups, observed, given.get("consent"), given.get("covariates")
        )
        return super()._read(events, groups, y=y, learn=learn, exposure=times, **given)

    def _events(
        self, X: Any, groups: Any, observed: Any, consent: Any, covariates: Any
    ) -> tuple[Any, NDArray]:
        """Return the rows with events in place of durations, and the durations."""
        name = None
        if is_frame(X):
            if observed is None and self._observed in column_names(X):
                observed = self._observed
            named = observed if isinstance(observed, str) else None
            columns = self._intake.value_columns(X, groups, consent, covariates, named)
            if len(columns) != 1:
                raise ValueError(
                    f"X must have one column of durations, besides those that are named; got "
                    f"{', '.join(map(repr, columns)) or 'none'}."
                )
            name = columns[0]
            times = numeric_columns(X, [name], "X")[:, 0]
        else:
            times = numbers(X, "X")
            times = times[:, 0] if times.ndim == 2 and times.shape[1] == 1 else times
        if times.ndim != 1:
            raise ValueError(f"X must be one duration per row; got shape {times.shape}.")
        wrong = ~((times > 0) & np.isfinite(times))
        if wrong.any():
            row = int(np.argmax(wrong))
            raise ValueError(f"X must hold positive durations; row {row} has {times[row]}.")
        if observed is None:
            events = np.ones(len(times))
        elif isinstance(observed, str):
            if name is None:
                raise ValueError(
                    f"observed={observed!r} names a column, but X is not a data frame; pass 0 and "
                    "1."
                )
            events = numeric_columns(X, [observed], "observed")[:, 0]
            X = drop_columns(X, [observed])
        else:
            found = read_labels(aligned({"X": X, "observed": observed})["observed"], "observed")
            if found.dtype.kind not in "biuf":
                raise TypeError(f"observed must be 0 and 1, or False and True; got {found[0]!r}.")
            events = found.astype(float)
        if events.shape != times.shape:
            raise ValueError(
                f"observed has shape {events.shape}, and there are {len(times)} durations."
            )
        if name is not None or is_series(X):
            return with_values(X, events, name), times
        return events, times
