"""`GroupEncoder` beside the encoders that it replaces: `fit_transform`, cross-fitted in five folds.

`category_encoders` does not cross-fit, so that its encoders do a fifth of the work, or less.
"""

import warnings
from functools import cache

import numpy as np
import pandas as pd
import pytest
from sklearn.preprocessing import TargetEncoder

import ebfed as eb

peer = pytest.importorskip  # contests with a package that is not installed are skipped


@cache
def rows(n_rows, n_categories, text):
    rng = np.random.default_rng(n_rows + n_categories)
    shares = rng.gamma(1, 1, n_categories)
    codes = rng.choice(n_categories, n_rows, p=shares / shares.sum())
    effects = rng.normal(0, 1, n_categories)[codes]
    y = effects + rng.normal(0, 2, n_rows)
    choices = (rng.random(n_rows) < 1 / (1 + np.exp(-effects))).astype(int)
    names = np.array([f"c{j}" for j in range(n_categories)])[codes] if text else codes
    return pd.DataFrame({"x": names}), {"continuous": y, "binary": choices}


CONTENDERS = {
    "ebfed": lambda X, y, kind: eb.GroupEncoder(kind).fit_transform(X, y),
    "sklearn TargetEncoder": lambda X, y, kind: TargetEncoder(target_type=kind).fit_transform(X, y),
    "JamesSteinEncoder": lambda X, y, kind: (
        peer("category_encoders").JamesSteinEncoder(cols=["x"]).fit_transform(X, y)
    ),
    "GLMMEncoder": lambda X, y, kind: (
        peer("category_encoders")
        .GLMMEncoder(cols=["x"], binomial_target=kind == "binary")
        .fit_transform(X, y)
    ),
}
SIZES = [(10_000, 10), (10_000, 1_000), (100_000, 1_000), (1_000_000, 1_000), (1_000_000, 100_000)]
# mixed models of statsmodels, and of a binary target variational ones, for small tables only
MOST = {("GLMMEncoder", "continuous"): 10_000, ("GLMMEncoder", "binary"): 0}
CASES = [
    (kind, text, size, name)
    for kind in ("continuous", "binary")
    for text in (False, True)
    for size in SIZES
    for name in CONTENDERS
    if size[0] <= MOST.get((name, kind), np.inf) and not (name == "GLMMEncoder" and text)
]


@pytest.mark.parametrize(("kind", "text", "size", "name"), CASES)
def test_encoders(benchmark, kind, text, size, name):
    n_rows, n_categories = size
    X, targets = rows(n_rows, n_categories, text)
    labels = "text" if text else "integers"
    shown = f"1e{round(np.log10(n_rows))} rows, {n_categories:,} {labels}"
    benchmark.group = f"encode {kind}, {shown}"
    target = 1.0 if name.startswith("sklearn") else None
    benchmark.extra_info = {"contender": name, "target": target, "statistic": "min"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rounds = 50 if n_rows == 10_000 and "GLMM" not in name else 3  # of a few milliseconds
        benchmark.pedantic(
            CONTENDERS[name], args=(X, targets[kind], kind), rounds=rounds, warmup_rounds=1
        )
