"""Settings of the study of opting out while a network learns."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from ebfed.datasets import fetch_mnist, load_digits

EPSILON, DELTA = 3.6, 1e-4
OPTED_OUT, DIGIT = 0.05, 7
RATE, UNITS = 0.5, 50
CLIP: dict[str, Any] = {"clip": 1.0, "clip_quantile": 0.5, "clip_step": 0.2}
PENALTIES = (0.005, 0.05, 0.25)

NON_IID, SKEWED = "non-IID", "skewed"
NON_PRIVATE, DP_FEDAVG, FEO2 = "non-private", "DP-FedAvg", "FeO2"
RATIOS = {
    NON_IID: (0.0, 0.001, 0.01, 0.025, 0.1, 1.0),
    SKEWED: (0.0, 0.025, 0.1, 0.5, 0.75, 0.9, 1.0),
}
NAN = float("nan")
KEYS = ["images", "setting", "method", "ratio", "penalty"]


class Federation(NamedTuple):
    """Clients, images and rounds of a federation.

    Attributes
    ----------
    load : callable
        Function that returns the images.
    clients, rows : int
        Number of clients, and of images of each.
    rounds : int
        Number of rounds.
    sample_rate : float
        Probability q that a client takes part in a round.
    """

    load: Callable[[], Any]
    clients: int
    rows: int
    rounds: int
    sample_rate: float


FEDERATIONS = {
    "MNIST": Federation(lru_cache(fetch_mnist), 2000, 30, 500, 0.05),
    "digits": Federation(lru_cache(load_digits), 100, 14, 40, 0.25),
}


def list_cells(quick: bool) -> list[dict[str, Any]]:
    """List settings, methods, ratios and penalties.

    Where nobody opts out, or everyone, the settings do not differ: one of them is run. The quick
    version has 100 clients with 14 digits each, 40 rounds, and few ratios.
    """
    images, penalties = ("digits", PENALTIES[1:2]) if quick else ("MNIST", PENALTIES)
    ratios = dict.fromkeys(RATIOS, (0.0, 0.1, 1.0)) if quick else RATIOS
    curves = [(NON_IID, method, NAN) for method in (NON_PRIVATE, DP_FEDAVG)]
    curves += [(setting, FEO2, ratio) for setting in ratios for ratio in ratios[setting]]
    return [
        dict(zip(KEYS, (images, *curve, penalty), strict=True))
        for curve in curves
        for penalty in penalties
    ]
