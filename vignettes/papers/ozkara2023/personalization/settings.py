"""Settings of the study of personalised learning."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from typing import Any, Literal

import pandas as pd

from ebfed.learning.adaped import AdaPeD
from ebfed.learning.base import Learner
from ebfed.learning.ditto import Ditto
from ebfed.learning.dp_adaped import DPAdaPeD
from ebfed.learning.dp_fed_avg import DPFedAvg
from ebfed.learning.fed_avg import FedAvg
from ebfed.learning.fed_mutual import FedMutual
from ebfed.learning.local_only import LocalOnly
from ebfed.learning.per_fed_avg import PerFedAvg
from ebfed.learning.pfedme import PFedMe
from ebfed.learning.quped import QuPeD

Collection = Literal["mnist", "fashion-mnist", "digits"]

CLIENTS, CLASSES, RATE = 50, 3, 0.1
STEPS, BATCH, EPOCH = 10, 20, 60  # of a round; rows of a step; steps of an epoch
CLAIMS = (3.35, 13.16, 27.30)
DELTA = 1e-4  # the paper does not say
TITLES = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "digits": "digits (8 x 8)"}

COMPARISON, PRIVACY, ROUNDS = "comparison", "privacy", "rounds"  # parts of the table

SHARED, TUNED = "FedAvg", "FedAvg, fine-tuned"
ALONE, ALWAYS_ALONE = "alone", "alone, always"
ADAPED, ALWAYS_ADAPED = "AdaPeD", "AdaPeD, always"
DP_SHARED, DP_ADAPED = "DP-FedAvg", "DP-AdaPeD"
# Who works only when invited, and who in every round.
INVITED = (ALONE, SHARED, TUNED, "pFedMe", "Per-FedAvg", "QuPeD", "FedMutual", "Ditto", ADAPED)
ALWAYS = (ALWAYS_ALONE, ALWAYS_ADAPED)

# Chosen by the accuracy on a fifth of the rows of MNIST that clients learn from (`deal_images` with
# `validation`), convolutional network, 50 rounds, one run. Learning rates: .2 was the best of .1,
# .2 and .3 for AdaPeD and QuPeD, of .1 and .2 for FedAvg, of .2 and .3 for training alone; it is
# taken for FedMutual and Ditto too, untried. `psi_weight`: 5 for AdaPeD (not 1). pFedMe: eta lambda
# is 1 (the paper: .1), the only choice that was tried. Per-FedAvg: a learning rate of .2 and an own
# step of .1, untried, failed in the study itself (one run 10 %, one not finite), so that it has the
# paper's. Private methods: one hidden layer, 60 rounds, claimed 3.35; `clip` of .03, .1, .3 and 1
# for DP-FedAvg, of .01 and .1 for DP-AdaPeD. All else is the paper's, or the default.
PAPER: dict[str, Any] = {"variant": "paper"}
METHODS: dict[str, tuple[type[Learner], dict[str, Any]]] = {
    ALONE: (LocalOnly, {"learning_rate": 0.2}),
    TUNED: (FedAvg, {"learning_rate": 0.2, "fine_tune": EPOCH}),
    "pFedMe": (PFedMe, {"learning_rate": 2.0, "own_learning_rate": 0.2}),
    "Per-FedAvg": (PerFedAvg, {"learning_rate": 0.075, "own_learning_rate": 0.001}),
    "QuPeD": (QuPeD, {"learning_rate": 0.2}),
    "FedMutual": (FedMutual, {"learning_rate": 0.2, "own_weight": 0.25, "shared_weight": 0.25}),
    "Ditto": (Ditto, {"learning_rate": 0.2}),
    ADAPED: (AdaPeD, PAPER | {"learning_rate": 0.2, "psi_weight": 5.0}),
    ALWAYS_ALONE: (LocalOnly, {"learning_rate": 0.1, "sample_rate": 1.0}),
    ALWAYS_ADAPED: (
        AdaPeD,
        PAPER | {"learning_rate": 0.2, "psi_weight": 5.0, "unsampled": True},
    ),
    DP_SHARED: (DPFedAvg, {"learning_rate": 0.1, "clip": 0.1}),
    DP_ADAPED: (DPAdaPeD, PAPER | {"learning_rate": 0.1, "clip": 0.01, "psi_clip": 0.1}),
}


def list_cells(
    quick: bool,
    *,
    rounds: int | None = None,
    private_rounds: int | None = None,
    data: Sequence[Collection] | None = None,
    cnn: bool | None = None,
    always: bool = True,
    private_cnn: bool = False,
) -> list[dict[str, Any]]:
    """List what is run, the settings of methods included, so that kept runs are of these.

    Parameters
    ----------
    quick : bool
        Whether to have ten clients with digits, a small network and few rounds.
    rounds : int, optional
        Rounds of the comparison; 300 if None, as in the paper, 20 if `quick`.
    private_rounds : int, optional
        Rounds of Table 2; 60 if None, 10 if `quick`. The paper's 300 take five times as long. 0
        leaves Table 2 out.
    data : sequence of {"mnist", "fashion-mnist", "digits"}, optional
        Images of the comparison: MNIST and Fashion-MNIST if None. Table 2 takes the first, or
        MNIST.
    cnn : bool, optional
        Whether the comparison trains the paper's convolutional network, which needs PyTorch, rather
        than one hidden layer of 50 units; if None, whether PyTorch is installed.
    always : bool
        Whether the comparison has the methods in which all clients work in all rounds, which is
        ten times the work.
    private_cnn : bool
        Whether Table 2 trains the convolutional network; all clients work in all its rounds, which
        takes long.
    """
    if cnn is None:
        cnn = not quick and importlib.util.find_spec("torch") is not None
    small = "MLP-16" if quick else "MLP-50"
    data = (("digits",) if quick else ("mnist", "fashion-mnist")) if data is None else data
    rounds = (20 if quick else 300) if rounds is None else rounds
    private_rounds = (10 if quick else 60) if private_rounds is None else private_rounds
    cells: list[dict[str, Any]] = [
        {"part": COMPARISON, "data": each, "model": "CNN" if cnn else small, "rounds": rounds}
        | {"claimed": math.nan, "method": method}
        for each in (data if rounds else ())
        for method in (*INVITED, *(ALWAYS if always else ()))
        if method != SHARED  # which is what is fine-tuned
    ]
    private = [(math.nan, ALWAYS_ALONE)]
    for claimed in CLAIMS[1:2] if quick else CLAIMS:
        private += [(claimed, method) for method in (DP_SHARED, DP_ADAPED)]
    model = "CNN" if private_cnn else small
    cells += [
        {"part": PRIVACY, "data": (*data, "mnist")[0], "model": model, "rounds": private_rounds}
        | {"claimed": claimed, "method": method}
        for claimed, method in (private if private_rounds else ())
    ]
    m = 10 if quick else CLIENTS
    return [cell | {"m": m, "settings": _in_words(cell["method"])} for cell in cells]


def _in_words(method: str) -> str:
    """Print the settings of a method."""
    return ", ".join(f"{name}={value}" for name, value in METHODS[method][1].items())


def families(part: pd.DataFrame) -> list[tuple[str, ...]]:
    """Methods that are compared with one another, AdaPeD last."""
    return [family for family in (INVITED, ALWAYS) if family[-1] in set(part["method"])]
