"""Steps that clients make in the end, for themselves, and how many of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.privacy.calibration import check_positive

__all__ = ["TRIED", "FineTuning", "check_fine_tuning", "makes_last_steps", "shares_model"]

# Numbers of steps that "auto" compares.
TRIED = (0, 1, 2, 5, 10, 20, 50, 100)


def shares_model(rounds: Any) -> bool:
    """Return whether a client that was never invited is predicted by a model of its own form."""
    return getattr(rounds.estimator, "shared_model", None) is None


def makes_last_steps(rounds: Any) -> bool:
    """Return whether also clients that were never invited make steps of their own in the end."""
    steps = rounds.estimator.fine_tune or getattr(rounds, "refining", 0)
    return bool(steps) and shares_model(rounds)


def check_fine_tuning(rounds: Any) -> None:
    """Raise an error if `fine_tune` or `fine_tune_rate` is wrong."""
    given = rounds.estimator
    count, rate = given.fine_tune, given.fine_tune_rate
    if isinstance(count, str) and count == "auto":
        if not given.validation_fraction:
            raise ValueError(
                "fine_tune='auto' needs rows that are held back, to compare numbers of steps: give "
                "validation_fraction, such as 0.2."
            )
    elif not isinstance(count, int | np.integer) or isinstance(count, bool) or count < 0:
        raise ValueError(f"fine_tune must be a number of steps, or 'auto'; got {count!r}.")
    if rate is not None:
        check_positive("fine_tune_rate", rate)


class FineTuning:
    """Steps of a few clients, in the end, down the losses of their own rows.

    Parameters
    ----------
    training : LocalTraining
        The block in the last round.
    members : ndarray of positions of the clients
    """

    def __init__(self, training: Any, members: NDArray[np.int64]):
        self._training, self._members = training, members
        self._rounds, self._given = training.rounds, training.given

    def rates(self) -> list[float]:
        """Return learning rates of the steps: the user's, or those that "auto" compares."""
        given, rounds = self._given, self._rounds
        if given.fine_tune_rate is not None:
            return [float(given.fine_tune_rate)]
        last = rounds.peak_rate * rounds.schedule.rate(self._training.sent["round"])
        return [last, last / 10] if given.fine_tune == "auto" else [last]

    def tune(self, theta: NDArray) -> NDArray[np.float64]:
        """Return parameters after the steps, shape (len(members), p).

        Parameters
        ----------
        theta : ndarray of shape (len(members), p)
            Parameters before them.
        """
        if self._given.fine_tune != "auto":
            count = np.full(len(theta), self._given.fine_tune)
            return self._steps(theta, count, np.full(len(theta), self.rates()[0]))
        return self._steps(theta, *self.choose(theta), whole=True)

    def choose(self, theta: NDArray) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Compare losses of rows that are held back, after steps on the others.

        Parameters
        ----------
        theta : ndarray of shape (len(members), p)

        Returns
        -------
        count : ndarray of shape (len(members),)
            Number of steps of each client: the smallest one of least loss. 0 for a client that
            holds nothing back.
        rate : ndarray of shape (len(members),)
        """
        everyone = np.arange(len(theta))
        best, count = self.losses(theta, everyone), np.zeros(len(theta), np.int64)
        rates = self.rates()
        rate = np.full(len(theta), rates[0])
        for eta in rates:
            for places, task in self._training.tasks(self._members, None):
                path = task.path(theta[places], TRIED[-1])
                place = path.start
                descend = task.steps(np.full((len(places), 1), eta, theta.dtype))
                for step, batch in enumerate(path.batches(TRIED[-1]), start=1):
                    place = descend(place, path.gradient(place, batch))
                    if step in TRIED:
                        loss = self.losses(path.parameters(place), places)
                        known = best[places]
                        better = places[(loss < known) | (np.isnan(known) & ~np.isnan(loss))]
                        best[places] = np.fmin(best[places], loss)
                        count[better], rate[better] = step, eta
        return count, rate

    def losses(self, theta: NDArray, places: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the mean loss of the rows that clients hold back; NaN if there are none.

        Parameters
        ----------
        theta : ndarray of shape (len(places), p)
        places : ndarray of positions among members
        """
        net, out = self._training.net, np.full(len(places), np.nan)
        for some, rows in self._training.held_back(self._members[places]):
            batch = rows.all()
            loss = net.loss.of(net.outputs(theta[some], batch.X), batch.y, batch.weight)[0]
            out[some] = np.where(rows.n > 0, loss, np.nan)
        return out

    def _steps(
        self,
        theta: NDArray,
        count: NDArray[np.int64],
        rate: NDArray[np.float64],
        whole: bool = False,
    ) -> NDArray[np.float64]:
        """Return parameters after as many steps of each client as `count` has."""
        out = theta.copy()
        for places, task in self._training.tasks(self._members, None, whole):
            steps = np.where(self._tunes(task), count[places], 0)[:, None]
            most = int(steps.max(initial=0))
            path = task.path(theta[places], most)
            place = path.start
            descend = task.steps(rate[places, None].astype(theta.dtype))
            for step, batch in enumerate(path.batches(most)):
                ahead = descend(place, path.gradient(place, batch))
                place = np.where(steps > step, ahead, place)
            out[places] = path.parameters(place)
        return out

    def _tunes(self, task: Any) -> NDArray[np.bool_]:
        """Whether clients have rows, and a predictor to begin with."""
        return (task.n > 0) & (shares_model(self._rounds) | ~task.new[:, 0])
