"""Settings of the study of joint differential privacy."""

from __future__ import annotations

from typing import Any

ALONE, OPEN, FULL, JOINT = "per owner", "no DP", "full DP", "joint DP"
METHODS = (ALONE, OPEN, FULL, JOINT)
EPSILON, OWNERS = 1.0, (4, 16, 64, 256)

# Convex: dimensions of u and x_j, their lengths, rows of an owner, noise; steps, rate, clipping.
SHARED, OWN, U, X_OWN, ROWS, NOISE = 22, 2, 4.5, 0.6, 20, 0.12
STEPS, RATE, CLIP, DELTA = 2000, 0.1, 1.25, 1e-5
# So many problems of a size count as one run; learning alone does not depend on n.
PROBLEMS = {1: 16, 4: 4, 16: 2, 64: 1, 256: 1}
# eta of u, n times that of x_j: what was best in a search of .00625 * 2**i, and what was close.
ETAS: dict[tuple[str, int], tuple[float, ...]] = {
    (ALONE, 1): (1.6,),
    (OPEN, 4): (3.2,),
    (OPEN, 16): (6.4,),
    (OPEN, 64): (25.6,),
    (OPEN, 256): (25.6,),
    (FULL, 4): (0.0125, 0.05),
    (FULL, 16): (0.05,),
    (FULL, 64): (0.2,),
    (FULL, 256): (1.6,),
    (JOINT, 4): (0.0125, 0.05),
    (JOINT, 16): (0.05,),
    (JOINT, 64): (0.2,),
    (JOINT, 256): (3.2,),
}

# Images. Settings were chosen for MNIST with 16 and 256 owners, on training images alone.
IMAGES, CLASSES, UNITS, IMAGE_DELTA = 10_000, 8, 50, 1e-4
PRIVATE: dict[str, Any] = {
    "n_rounds": 100,
    "sample_rate": 0.05,
    "learning_rate": 4.0,
}
# What is personal, and the learning rate of that. Guides stay where they begin: they would learn
# little but noise.
STANDARD = "intercept"
BLOCKS: dict[str, tuple[tuple[str, ...], float]] = {
    "nothing": ((), 1.0),
    STANDARD: (("output_2_intercept",), 5.0),
    "output": (("output_2", "output_2_intercept"), 0.4),
    "hidden": (("hidden", "hidden_intercept"), 0.4),
}
# What owners make on their own images, or between averages of FedAvg.
PASSES, BATCH, FEWEST, LEARNING_RATE = 40, 20, 5, 0.1
IMAGE_OWNERS = (4, 16, 64, 128, 256, 512)
OTHERS = ("output", "hidden")
BLOCKS_N, USERS_N, PER_USER = 128, 4, (1, 2, 5, 10)

KEYS = ["data", "n", "method", "personal", "per_user"]


def list_cells(quick: bool) -> list[dict[str, Any]]:
    """List records and images.

    The quick version has records of 4 and 16 owners in 60 steps, and digits in 10.
    """
    rounds = 10 if quick else PRIVATE["n_rounds"]
    owners = (1, *OWNERS[:2]) if quick else (1, *OWNERS)
    places: list[tuple[str, int, str, str, int, int]] = [
        ("records", n, method, "nothing" if method == FULL else "x", 1, 60 if quick else STEPS)
        for n in owners
        for method in (METHODS[:1] if n == 1 else METHODS[1:])
    ]
    for data in ("digits",) if quick else ("MNIST", "Fashion-MNIST"):
        for n in (4, 16) if quick else IMAGE_OWNERS:
            for method in METHODS:
                personal = {ALONE: "all", JOINT: STANDARD}.get(method, "nothing")
                places.append((data, n, method, personal, 1, rounds))
    first, blocks_n, per_user = ("digits", 16, (5,)) if quick else ("MNIST", BLOCKS_N, PER_USER[1:])
    for personal in OTHERS:
        places.append((first, blocks_n, JOINT, personal, 1, rounds))
    for each in per_user:
        for method, personal in ((FULL, "nothing"), (JOINT, STANDARD)):
            places.append((first, USERS_N, method, personal, each, rounds))
    return [dict(zip([*KEYS, "steps"], place, strict=True)) for place in places]
