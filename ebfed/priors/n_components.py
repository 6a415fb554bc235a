"""How many components a mixture has: by least BIC, or by the likelihood of held-out clients.

`"bic"` takes the number of least ``p log(n) - 2 log L`` with p parameters and n clients (Schwarz
1978). `"heldout"` fits without each fifth of the clients in turn, and sums the log-likelihoods of
those left out. Of these sums the largest is a little too often that of too many components, which
cost hardly any likelihood; so the least number is taken that is within one standard error of it,
that of the paired differences between clients (Breiman, Friedman, Olshen and Stone 1984, section
3.4.3; Smyth 2000, Model selection for probabilistic clustering, Statistics and Computing 10).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ebfed.privacy.calibration import check_count

__all__ = [
    "FOLDS",
    "RULES",
    "bic",
    "check_n_components",
    "choose",
    "fewest_as_good",
    "make_folds",
    "to_try",
]

RULES = ("bic", "heldout")
FOLDS = 5

Fit = TypeVar("Fit")


def check_n_components(value: Any, most: Any) -> None:
    """Raise a ValueError if that is no number of components, nor a rule that chooses one.

    >>> check_n_components("aic", 10)
    Traceback (most recent call last):
    ValueError: n_components must be a whole number from 1, 'bic' or 'heldout'; got 'aic'.
    """
    if isinstance(value, str) and value in RULES:
        check_count("max_components", most)
    elif not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
        rules = " or ".join(map(repr, RULES))
        raise ValueError(f"n_components must be a whole number from 1, {rules}; got {value!r}.")


def to_try(value: Any, most: int, values: NDArray) -> tuple[str, range]:
    """Return the rule, and the numbers of components to try, no more than there are different rows.

    >>> to_try("heldout", 5, np.array([[1.0], [2.0], [1.0]])), to_try(2, 5, np.eye(3))
    (('heldout', range(1, 3)), ('bic', range(2, 3)))
    """
    chosen = isinstance(value, str)
    k = most if chosen else int(value)
    different: set[bytes] = set()
    for row in values:
        if len(different) == k:
            break
        different.add(row.tobytes())
    k = len(different)
    return value if chosen else "bic", range(1 if chosen else k, k + 1)


def bic(log_likelihood: float, n_free: int, n_clients: float) -> float:
    """``p log(n) - 2 log L``."""
    return n_free * float(np.log(n_clients)) - 2 * log_likelihood


def make_folds(n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Assign n clients to folds of nearly equal size, at random."""
    return rng.permutation(n) % FOLDS


def fewest_as_good(held_out: NDArray, counts: NDArray) -> int:
    """Position of the first number that is within one standard error of the best.

    Parameters
    ----------
    held_out : ndarray of shape (n_numbers, n)
        Log-likelihood of each message under the fit without its client, for increasing numbers.
    counts : ndarray of shape (n,)
        How many clients sent each message.

    Examples
    --------
    >>> logs = np.array([[-3.0, -2.0, -4.0], [-1.0, -1.2, -0.9], [-1.2, -0.8, -1.0]])
    >>> fewest_as_good(logs, np.ones(3))
    1
    """
    best = int(np.argmax(held_out @ counts))
    n = counts.sum()
    for place, own in enumerate(held_out[:best]):
        lost = held_out[best] - own
        mean = counts @ lost / n
        if mean * n <= np.sqrt(n * (counts @ (lost - mean) ** 2) / max(n - 1, 1)):
            return place
    return best


def choose(
    rule: str,
    numbers: Sequence[int],
    fit: Callable[[int, NDArray], tuple[Fit, NDArray]],
    log_marginal: Callable[[Fit], NDArray],
    n_free: Callable[[int], int],
    counts: NDArray,
    rng: np.random.Generator,
) -> tuple[Fit, NDArray, NDArray]:
    """Fit mixtures of several numbers of components, and keep one by a rule.

    Parameters
    ----------
    rule : {"bic", "heldout"}
    numbers : increasing sequence of int
    fit : callable
        Function of a number of components, and of how many clients sent each message, which may be
        none; it returns the fit and its log-likelihoods step by step.
    log_marginal : callable
        Log marginal likelihood of each message under a fit.
    n_free : callable
        Number of parameters of so many components.
    counts : ndarray of shape (n,)
        How many clients sent each message.
    rng : Generator
        Assigns clients to folds.

    Returns
    -------
    fit, path
        Result for the chosen number, of all clients.
    criterion : ndarray, one for each of `numbers`
        BIC, or minus twice the log-likelihood of held-out clients.

    Examples
    --------
    >>> logs = {1: -30.0, 2: -20.0, 3: -19.0}
    >>> arguments = (1, 2, 3), lambda k, counts: (k, np.array([logs[k]])), lambda fit: np.zeros(100)
    >>> choose("bic", *arguments, lambda k: 2 * k - 1, np.ones(100), np.random.default_rng(0))
    (2, array([-20.]), array([64.6052, 53.8155, 61.0259]))
    """
    if rule == "bic" or len(numbers) == 1:
        runs = [fit(k, counts) for k in numbers]
        ends = zip(numbers, runs, strict=True)
        criterion = np.array([bic(path[-1], n_free(k), counts.sum()) for k, (_, path) in ends])
        return *runs[int(np.argmin(criterion))], criterion
    sent = np.repeat(np.arange(len(counts)), counts.astype(int))
    folds = make_folds(len(sent), rng)
    held_out = np.zeros((len(numbers), len(sent)))
    for fold in range(min(FOLDS, len(sent))):
        apart = folds == fold
        others = np.bincount(sent[~apart], minlength=len(counts)).astype(float)
        if not others.any():
            continue
        for row, k in zip(held_out, numbers, strict=True):
            row[apart] = log_marginal(fit(k, others)[0])[sent[apart]]
    number = numbers[fewest_as_good(held_out, np.ones(len(sent)))]
    return *fit(number, counts), -2 * held_out.sum(axis=1)
