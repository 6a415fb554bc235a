"""Fits whose figures by R are stored in tests/reference: see `inference.R` there."""

from functools import cache
from pathlib import Path

import pandas as pd

import ebfed as eb

REFERENCE = Path(__file__).parents[1] / "reference"

FORMULAS = {
    "sleepstudy": "Reaction ~ Days + (Days | Subject)",
    "sleepstudy_diag": "Reaction ~ Days + (Days || Subject)",
    "sleepstudy_ml": "Reaction ~ Days + (Days | Subject)",
    "gaps": "Reaction ~ Days + I(Days**2) + (Days | Subject)",
    "radon": "log_radon ~ floor + log_uranium + (1 | county)",
    "cake": "angle ~ recipe * temp + (1 | batch)",
    "oats": "yield_ ~ nitro * variety + (1 | block / variety)",
    "fewer": "yield_ ~ nitro * variety + (1 | block / variety)",
    "chem97": "score ~ gcsecnt + (1 | lea / school)",
}


def stored(name):
    """Read what R found."""
    return pd.read_csv(REFERENCE / f"inference_{name}.csv")


@cache
def data_of(case):
    """Read the data of a case, as `inference.R` makes them."""
    name = {"gaps": "sleepstudy", "fewer": "oats"}.get(case, case.split("_")[0])
    rows = pd.read_csv(REFERENCE / (f"{name}.csv.gz" if name == "chem97" else f"{name}.csv"))
    rows = rows.rename(columns={"yield": "yield_"})
    if case == "gaps":
        rows = rows.drop(index=range(0, len(rows), 5))
        late = rows["Subject"].isin([308, 335, 371]) & (rows["Days"] > 3)
        rows = rows[~late]
    if case == "fewer":
        rows = rows.drop(index=[1, 2, 16, 17, 18, 19, 40, 59, 70])
    if case == "cake":
        rows["temp"] = rows["temperature"].astype(str)
    if case == "chem97":
        rows = rows.merge(pd.read_csv(REFERENCE / "chem97_lea.csv"))
        rows["gcsecnt"] = rows["gcsescore"] - rows["gcsescore"].mean()
    return rows.reset_index(drop=True)


@cache
def fit_of(case):
    """Fit the model of a case."""
    method = "ml" if case.endswith("_ml") else "reml"
    return eb.from_formula(FORMULAS[case], data_of(case), eb.LinearEB(method=method))


def in_words_of_r(terms):
    """Translate names of coefficients."""
    names = pd.Series(terms, dtype=object).str.replace(r"\[T\.(\w+)\]", r"\1", regex=True)
    return names.replace({"intercept": "(Intercept)", "I(Days ** 2)": "I(Days^2)"}).tolist()
