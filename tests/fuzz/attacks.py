"""Malformed input of estimators, formulas and the command line, and a judge of what follows.

`python tests/fuzz/attacks.py [first] [last]` runs attacks and lists the failures by class. Attack i
is drawn from the seed i alone, so a failure is repeated by its number.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import fractions
import inspect
import os
import re
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.base import clone

import ebfed as eb
from ebfed import channels, models

SEED = 17
SECONDS = 60  # a fit of these rows takes less than one
GIBIBYTES = 4

# Rows that suit every estimator ---------------------------------------------------------------

RNG = np.random.default_rng(0)
GROUPS = np.repeat(["a", "b", "c", "d", "e", "f", "g", "h"], [1, 2, 3, 4, 5, 5, 5, 5])
N = len(GROUPS)
FEATURES = RNG.normal(size=(N, 2))
NUMBERS = FEATURES[:, 0] + RNG.normal(size=8)[pd.factorize(GROUPS)[0]] + RNG.normal(size=N)
BITS = (NUMBERS > 0).astype(float)
COUNTS = RNG.poisson(2.0, N).astype(float)
EXPOSURE = RNG.uniform(0.5, 2, N)

FEW = {"n_rounds": 2, "random_state": 0}
LOUD = {"privacy": eb.ClientPrivacy(noise_multiplier=1.0)}
RANGE = (-3.0, 3.0)


def private(channel: Any) -> Any:
    return eb.GaussianEB(0.5, channel=channel, random_state=0)


LOCATION = {
    "gaussian": eb.GaussianEB(),
    "known variance": eb.GaussianEB(0.5),
    "moments": eb.GaussianEB(method="moments"),
    "npmle": eb.GaussianEB(prior="npmle"),
    "log_spline": eb.GaussianEB(prior="log_spline"),
    "rate": eb.BernoulliEB(),
    "rate npmle": eb.BernoulliEB(prior="npmle"),
    "poisson": eb.PoissonEB(),
    "mixture": eb.MixtureEB(2, random_state=0),
    "opt-out": eb.OptOutMean(1.0, 1.0, epsilon=1.0, delta=1e-5, range=RANGE, random_state=0),
    "two bits": eb.BernoulliEB(channel=channels.TwoBit(1.0), random_state=0),
    "gaussian noise": private(channels.Gaussian(1.0, 1e-5, RANGE)),
    "laplace": private(channels.Laplace(1.0, RANGE)),
    "quantizer": private(channels.Quantizer(4, RANGE)),
    "consent": private(
        {"private": channels.Laplace(1.0, RANGE), "open": channels.Exact()},
    ),
}
REGRESSIONS = {
    "linear": eb.LinearEB(),
    "linear full": eb.LinearEB("full"),
    "logistic": eb.LogisticEB(),
    "adamix": eb.AdaMix(2, n_init=1, random_state=0),
    "adamix classifier": eb.AdaMixClassifier(2, n_init=1, random_state=0),
    "mixture of lines": eb.MixtureLinearEB(2, n_init=1, random_state=0),
}
LEARNERS = {
    name: cls(
        **FEW,
        **(LOUD if name.startswith("DP") or name in ("FeO2", "JointDPSGD", "PPSGD") else {}),
        **({"personal": ["intercept"]} if name == "FedBN" else {}),
    )
    for name in eb.learning.__all__
    if inspect.isclass(cls := getattr(eb.learning, name))
    and issubclass(cls, eb.learning.Learner)
    and not inspect.isabstract(cls)
}
LEARNERS |= {"FedAvg, linear": eb.learning.FedAvg(models.Linear(), **FEW)}
ESTIMATORS = LOCATION | REGRESSIONS | LEARNERS


def data_of(name: str) -> dict[str, Any]:
    """Return good arguments of `fit`."""
    if name in LOCATION:
        X = {"rate": BITS, "rate npmle": BITS, "two bits": BITS, "poisson": COUNTS}
        given = {"X": X.get(name, NUMBERS)[:, None], "groups": GROUPS}
        if name == "poisson":
            given["exposure"] = EXPOSURE
        if name == "consent":
            given["consent"] = np.where(GROUPS < "d", "open", "private")
        return given
    numeric = ESTIMATORS[name].__sklearn_tags__().estimator_type == "regressor"
    y = NUMBERS if numeric else np.where(BITS == 1, "yes", "no")
    return {"X": FEATURES, "y": y, "groups": GROUPS}


@lru_cache
def fitted(name: str) -> Any:
    with quiet():
        return clone(ESTIMATORS[name]).fit(**data_of(name))


# What is bad -------------------------------------------------------------------------------------

ENTRIES: list[Any] = [
    np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, 1e200, -1e200, 1e-200, 1e60, 1e-60, None, "x",
    "", "1", b"1", 1j, 1 + 0j, np.datetime64("2020-01-01"), np.timedelta64(5, "s"), pd.NaT, pd.NA,
    True, 10**400, -(10**30), 2**63, object(), [], [1.0], {}, {1}, (), decimal.Decimal("1.5"),
    fractions.Fraction(1, 3), datetime.date(2020, 1, 1), datetime.timedelta(1), np.float16(1),
    -1, 0, 0.5, 2, -0.0, np.ma.masked, len, Ellipsis,
]  # fmt: skip
VALUES: list[Any] = [
    -1, 0, 1, 2, 3, 0.5, -0.5, 1.5, np.nan, np.inf, -np.inf, 1e308, 5e-324, 1e-200, 1e200, 1e9,
    10**9, 10**400, -(10**30), True, False, None, "nonsense", "", b"x", [], [1], (0, 1), {},
    {"a": 1},
    object(), len, 1j, np.array([1.0, 2.0]), np.array([]), np.array(1.0), np.float32(0.5),
    np.int8(3), np.datetime64("2020-01-01"), np.timedelta64(5, "s"), pd.NA, pd.Series([1.0]),
    decimal.Decimal(1), fractions.Fraction(1, 2), "em", "auto", "diag", int, 1e-9, 2.0, 7,
    [np.nan], [[1, 2], [3]], range(3), float("1e-320"), np.ma.masked, Ellipsis,
]  # fmt: skip
# A large number of these asks for much work, and gets it.
WORK = re.compile(r"n_(rounds|steps|draws|init)|(local|own)_steps|fine_tune|max_components")


def entry(rng: np.random.Generator, values: Any) -> Any:
    """Put a bad entry in one place, or several."""
    bad = ENTRIES[rng.integers(len(ENTRIES))]
    new = np.array(values, object)
    places = rng.choice(len(new), rng.choice([1, 1, 3, len(new)]), replace=False)
    for place in places:
        if new.ndim == 1:
            new[place] = bad
        else:
            new[place, rng.integers(new.shape[1])] = bad
    kind = rng.integers(4)
    if kind == 0:
        return new.tolist()
    if kind == 1 and isinstance(bad, float):
        try:
            return new.astype(float)
        except (TypeError, ValueError):
            return new
    if kind == 2:
        return pd.Series(new) if new.ndim == 1 else pd.DataFrame(new)
    return new


def ragged(values: Any) -> list:
    rows = np.asarray(values).tolist()
    return [rows[0], [rows[1], 1], *rows[2:]]


def masked(values: Any) -> Any:
    values = np.asarray(values)
    mask = np.zeros(values.shape, bool)
    mask.flat[1] = True
    return np.ma.array(values, mask=mask)


def numbered(values: Any) -> bool:
    return np.asarray(values).dtype.kind in "biuf"


WHOLES: dict[str, Callable[[Any], Any]] = {
    "None": lambda v: None,
    "scalar": lambda v: 1.0,
    "text": lambda v: "text",
    "zero dimensions": lambda v: np.array(1.0),
    "empty list": lambda v: [],
    "no rows": lambda v: np.asarray(v)[:0],
    "no columns": lambda v: np.empty((len(v), 0)),
    "one row": lambda v: np.asarray(v)[:1],
    "one too few": lambda v: np.asarray(v)[:-1],
    "one too many": lambda v: np.concatenate([np.asarray(v), np.asarray(v)[:1]]),
    "transposed": lambda v: np.asarray(v).T if np.ndim(v) > 1 else np.asarray(v)[None],
    "three dimensions": lambda v: np.zeros((len(v), 2, 2)),
    "four dimensions": lambda v: np.zeros((2, 2, 2, 2)),
    "column twice": lambda v: np.column_stack([v, v, v]),
    "complex": lambda v: np.zeros(np.shape(v), complex),
    "dates": lambda v: np.full(np.shape(v), np.datetime64("2020-01-01")),
    "times": lambda v: np.full(np.shape(v), np.timedelta64(5, "s")),
    "words": lambda v: np.full(np.shape(v), "word"),
    "bytes": lambda v: np.full(np.shape(v), b"word"),
    "objects": lambda v: np.full(np.shape(v), object()),
    "Nones": lambda v: np.full(np.shape(v), None),
    "NaN": lambda v: np.full(np.shape(v), np.nan),
    "1e308": lambda v: np.full(np.shape(v), 1e308),
    "1e100": lambda v: np.full(np.shape(v), 1e100),
    "5e-324": lambda v: np.full(np.shape(v), 5e-324),
    "half 1e308": lambda v: np.where(np.arange(len(v)) % 2, 1e308, -1e308),
    "constant": lambda v: np.full(np.shape(v), 3.0),
    "zeros": lambda v: np.zeros(np.shape(v)),
    "negative": lambda v: -np.ones(np.shape(v)),
    "booleans": lambda v: np.ones(np.shape(v), bool),
    "huge integers": lambda v: np.full(np.shape(v), 2**62),
    "unsigned": lambda v: np.full(np.shape(v), 2**64 - 1, np.uint64),
    "half precision": lambda v: np.full(np.shape(v), 60000, np.float16),
    "dict": lambda v: {"a": list(v)},
    "set": lambda v: {1, 2},
    "generator": lambda v: (each for each in [1, 2, 3]),
    "function": lambda v: len,
    "lists of lists": lambda v: [[1.0, 2.0]] * len(v),
    "ragged": ragged,
    "masked": masked,
    "sparse": lambda v: sparse.csr_matrix(np.ones((len(v), 2))),
    "structured": lambda v: np.zeros(len(v), [("a", float), ("b", int)]),
    "matrix": lambda v: np.matrix(np.ones((len(v), 1))),
    "MultiIndex": lambda v: pd.DataFrame(
        np.ones((len(v), 2)), index=pd.MultiIndex.from_product([range(len(v)), [0]])
    ),
    "columns in levels": lambda v: pd.DataFrame(
        np.ones((len(v), 2)), columns=pd.MultiIndex.from_tuples([("a", 1), ("a", 2)])
    ),
    "columns of one name": lambda v: pd.DataFrame(np.ones((len(v), 2)), columns=["a", "a"]),
    "columns without text": lambda v: pd.DataFrame(np.ones((len(v), 2)), columns=[0, "a"]),
    "frame of words": lambda v: pd.DataFrame({"a": ["x"] * len(v)}),
    "other index": lambda v: pd.Series(np.ones(len(v)), index=np.arange(len(v)) + 5),
    "index twice": lambda v: pd.Series(np.ones(len(v)), index=["same"] * len(v)),
    "category of numbers": lambda v: pd.Series(pd.Categorical(np.ones(len(v)))),
    "periods": lambda v: pd.period_range("2020", periods=len(v), freq="D"),
    "intervals": lambda v: pd.Series(pd.interval_range(0, len(v))),
    "zones": lambda v: pd.Series(pd.date_range("2020", periods=len(v), tz="UTC")),
    "unhashable": lambda v: np.array([[1]] * len(v) + [None], object)[:-1],
    "lists": lambda v: [[1], [2]] * (len(v) // 2),
    "a class": lambda v: int,
    "itself": lambda v: eb,
}

# Another form of the same values, of which the answer must be the same.
FORMS: dict[str, Callable[[Any], Any]] = {
    "list": lambda v: np.asarray(v).tolist(),
    "tuple": lambda v: tuple(np.asarray(v).tolist()),
    "object": lambda v: np.asarray(v).astype(object),
    "Fortran": lambda v: np.asfortranarray(v),
    "every second": lambda v: np.repeat(np.asarray(v), 2, axis=0)[::2],
    "read-only": lambda v: frozen(v),
    "unmasked": lambda v: np.ma.array(np.asarray(v)),
    "memory map": lambda v: mapped(v),
    "swapped bytes": lambda v: (
        np.asarray(v, float).astype(">f8") if numbered(v) else np.asarray(v).astype(">U5")
    ),
    "long double": lambda v: np.asarray(v).astype(np.longdouble) if numbered(v) else v,
    "series": lambda v: pd.Series(list(v)) if np.ndim(v) == 1 else pd.DataFrame(v),
    "category": lambda v: (
        v if numbered(v) else pd.Series(pd.Categorical(v, [*np.unique(v), "unused"]))
    ),
    "string": lambda v: v if numbered(v) else pd.Series(v, dtype="string"),
    "nullable": lambda v: pd.Series(v, dtype="Float64") if numbered(v) and np.ndim(v) == 1 else v,
}


def frozen(values: Any) -> Any:
    values = np.array(values)
    values.flags.writeable = False
    return values


def mapped(values: Any) -> Any:
    values = np.asarray(values)
    if values.dtype.kind not in "f":
        return values
    with tempfile.TemporaryFile() as file:
        new = np.memmap(file, values.dtype, "w+", shape=values.shape)
    new[:] = values
    return new


# Attacks -----------------------------------------------------------------------------------------

# Words of an error that say which argument it is about.
NAMES = {
    "X": r"X|rows?|columns?|features?|samples?|figures|means|values|numbers|Complex|sparse|frame",
    "y": r"y|response|class(es)?|labels?|target|numbers|values",
    "groups": r"groups?|labels?|ids|rows?",
    "exposure": r"exposures?|rows?",
    "consent": r"consent|class(es)?|choices?",
    "estimates": r"estimates?|regression|labels?|index",
    "std_errors": r"std_errors|standard errors?|covariance|errors?",
    "formula": r"formulas?|term|groups?|group|cannot be read|written|column|bracket|closed",
    "file": r"files?|rows?|columns?|labels?|\.csv|\.parquet",
}
ERRORS = (ValueError, TypeError, NotImplementedError)


class Hang(BaseException):
    """It took too long."""


@dataclasses.dataclass
class Attack:
    """Something to do that may be refused.

    Attributes
    ----------
    what : str
        Where, and what is bad: what to print.
    names : set of str
        Arguments of which one must be named by an error.
    act : callable
        Does it, and returns numbers which must not be NaN.
    expected : callable, optional
        Returns what must be equal, where input has only another form.
    """

    what: str
    names: set[str]
    act: Callable[[], Any]
    expected: Callable[[], Any] | None = None


@contextmanager
def quiet() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def pick(rng: np.random.Generator, options: Any) -> Any:
    options = list(options)
    return options[rng.integers(len(options))]


def answers(estimator: Any) -> Any:
    """Return numbers that a fit gives."""
    if isinstance(estimator, eb.learning.Learner):
        return [estimator.parameters_]
    posterior = estimator.posterior()
    return [posterior.mean, *posterior.interval(0.9), np.asarray(estimator.tidy()["estimate"])[:1]]


def damage_data(
    rng: np.random.Generator, given: dict[str, Any]
) -> tuple[dict, set[str], str, bool]:
    """Make some arguments bad, or of another form; return them, their names and what was done."""
    given, done, same = dict(given), [], False
    names = {pick(rng, given)}
    if rng.random() < 0.1:
        names.add(pick(rng, given))
    if rng.random() < 0.2:
        same = True
    for name in sorted(names):
        if same:
            how = pick(rng, FORMS)
            given[name] = FORMS[how](given[name])
        elif rng.random() < 0.5:
            how = "entry"
            given[name] = entry(rng, given[name])
            how = f"entry in {type(given[name]).__name__}"
        else:
            how = pick(rng, WHOLES)
            given[name] = WHOLES[how](given[name])
        done.append(f"{name}: {how}")
    return given, names, "; ".join(done), same


def of_fit(rng: np.random.Generator) -> Attack:
    name = pick(rng, ESTIMATORS)
    given, names, done, same = damage_data(rng, data_of(name))

    def act() -> Any:
        return answers(clone(ESTIMATORS[name]).fit(**given))

    return Attack(
        f"{name}.fit, {done}", names, act, (lambda: answers(fitted(name))) if same else None
    )


WAYS = ["predict", "posterior", "score", "augment", "partial_fit", "transform", "predict_proba"]
WAYS += ["groups"]  # without rows


def of_reading(rng: np.random.Generator) -> Attack:
    """A fit is asked about bad rows."""
    name = pick(rng, ESTIMATORS)
    estimator, good = fitted(name), data_of(name)
    ways = [way for way in WAYS if way == "groups" or hasattr(estimator, way)]
    way = pick(rng, ways)
    good.pop("consent", None)
    if way in ("predict", "predict_proba", "transform"):
        good.pop("y", None)
    if way == "groups":
        good = {"groups": good["groups"]}
    given, names, done, same = damage_data(rng, good)

    def ask(given: dict[str, Any]) -> Any:
        if way == "groups":
            if isinstance(estimator, eb.learning.Learner):
                return [estimator.predict(FEATURES, groups=given["groups"])]
            posterior = estimator.posterior(groups=given["groups"])
            return [posterior.mean, *posterior.interval(0.9)]
        if way == "partial_fit":
            return answers(clone(estimator).partial_fit(**given))
        found = getattr(estimator, way)(**given)
        if way == "posterior":
            return [found.mean, *found.interval(0.9)]
        if way == "augment":
            return [np.asarray(found[".fitted"])]
        return [found]

    asked = given
    if way == "groups" and isinstance(estimator, eb.learning.Learner):
        names = {"groups", "X"}
    return Attack(
        f"{name}.{way}, {done}", names, lambda: ask(asked), (lambda: ask(good)) if same else None
    )


def of_arguments(rng: np.random.Generator) -> Attack:
    name = pick(rng, ESTIMATORS)
    estimator = clone(ESTIMATORS[name])
    arguments = [each for each in estimator.get_params() if not each.startswith(("engine",))]
    argument = pick(rng, arguments)
    values = VALUES
    if WORK.search(argument):
        values = [each for each in VALUES if not (isinstance(each, int | float) and each > 100)]
    value = pick(rng, values)

    def act() -> Any:
        with tempfile.TemporaryDirectory() as folder:
            before = os.getcwd()
            os.chdir(folder)  # a checkpoint may have any name
            try:
                return answers(estimator.set_params(**{argument: value}).fit(**data_of(name)))
            finally:
                os.chdir(before)

    shown = repr(value)[:40]
    return Attack(
        f"{name}({argument}={shown})", {argument.split("__")[-1], argument.split("__")[0]}, act
    )


def of_channels(rng: np.random.Generator) -> Attack:
    kind = pick(rng, [each for each in channels.__all__ if each not in ("Channel", "Guess")])
    cls = getattr(channels, kind)
    good = {"epsilon": 1.0, "delta": 1e-5, "range": RANGE, "bits": 4, "sd": 1.0, "levels": 9}
    known = inspect.signature(cls).parameters
    given = {name: value for name, value in good.items() if name in known}
    if not known:
        given = {}
        return of_arguments(rng)
    argument, value = pick(rng, known), pick(rng, [*VALUES, (1, 0), (0, np.nan), (-1e308, 1e308)])

    def act() -> Any:
        channel = cls(**given | {argument: value})
        return answers(
            eb.GaussianEB(0.5, channel=channel, random_state=0).fit(NUMBERS, groups=GROUPS)
        )

    shown = f"channels.{kind}({argument}={repr(value)[:40]})"
    return Attack(shown, {argument, "channel", kind}, act)


def of_tables(rng: np.random.Generator) -> Attack:
    """Estimates with standard errors."""
    good = {"estimates": RNG_ESTIMATES, "std_errors": np.linspace(0.5, 1.5, 12)}
    given, names, done, same = damage_data(rng, good)
    prior = pick(rng, ["normal", "normal", "point_normal", "npmle", "laplace", "log_spline"])

    def ask(given: dict[str, Any]) -> Any:
        posterior = eb.posterior_from(**given, prior=prior)
        return [posterior.mean, *posterior.interval(0.9)]

    return Attack(
        f"posterior_from({prior}), {done}", names, lambda: ask(given),
        (lambda: ask(good)) if same else None,
    )  # fmt: skip


RNG_ESTIMATES = np.random.default_rng(5).normal(size=12)

TABLE = pd.DataFrame(FEATURES, columns=["x", "z w"]).assign(y=NUMBERS, g=GROUPS, b=BITS, n=COUNTS)
FORMULAS = [
    "y ~ x + (1 + x | g)", "y ~ x | g", "b ~ 1 + (1 | g)", "y | g", "y ~ log(n + 1) + (1 | g)",
    "y ~ x * `z w` + (0 + x || g)", "y ~ C(b) + (1 | g)", "y ~ poly(x, 2) + (1 | g)", "n | g",
    "y ~ I(x ** 2) + (1 | g)", "y ~ bs(x, df=4) + (1 | g)", "y ~ x + n + (1 | g)",
]  # fmt: skip
TOKENS = [
    "(", ")", "|", "||", "~", "+", "-", "*", ":", "^", "**", "/", "%in%", "%%", ",", "`", "'", '"',
    "1", "0", "-1", "1e308", "10**9", "x", "y", "g", "b", "`z w`", "nothing", "$x$", "log(", "I(",
    "C(", "poly(", "np.log(", "__import__", "lambda", "{", "}", "[", "]", "\\", "\n", "\t", "\0",
    "\u00e9", "\u20ac", ".", "..", "=", "==", "!", "#", ";", "@", "&", " ", "if", "for", "True",
    "None", "(1 | g)",
]  # fmt: skip


def of_formulas(rng: np.random.Generator) -> Attack:
    formula = pick(rng, FORMULAS)
    for _ in range(rng.integers(1, 4)):
        at, to = sorted(rng.integers(0, len(formula) + 1, 2).tolist())
        how = rng.integers(3)
        token = pick(rng, TOKENS)
        if how == 0:
            formula = formula[:at] + token + formula[at:]
        elif how == 1:
            formula = formula[:at] + formula[min(to, at + 3) :]
        else:
            formula = formula[:at] + token + formula[min(to, at + 2) :]
    family = pick(rng, [None, None, "gaussian", "binomial", "poisson"])

    def act() -> Any:
        return answers(eb.from_formula(formula, TABLE, family=family).estimator_)

    return Attack(f"from_formula({formula!r}, family={family})", {"formula", "y", "X"}, act)


def of_frames(rng: np.random.Generator) -> Attack:
    """A good formula, and a bad frame."""
    formula, column = pick(rng, FORMULAS), pick(rng, TABLE.columns)
    given, _, done, _ = damage_data(rng, {column: TABLE[column].to_numpy()})
    try:
        table = TABLE.assign(**{"z w": TABLE["z w"]}).copy()
        table[column] = list(given[column]) if isinstance(given[column], tuple) else given[column]
        assert len(table[column]) == N  # pandas takes columns that it cannot show
    except Exception:
        return of_formulas(rng)

    def act() -> Any:
        return answers(eb.from_formula(formula, table).estimator_)

    return Attack(
        f"from_formula({formula!r}) with {done}", {column, "formula", "X", "y", "groups"}, act
    )


def of_commands(rng: np.random.Generator) -> Attack:
    """`ebfed fit` on a damaged file, or with wrong options."""
    text = TABLE.round(3).to_csv(index=False)
    content = bytearray(text.encode())
    for _ in range(rng.integers(0, 3)):
        at = int(rng.integers(len(content)))
        new = pick(
            rng, [b",", b'"', b"\n", b"\0", b"\xff", b"nan", b"1e400", b";", b"'", b"=1", b""]
        )
        content[at : at + int(rng.integers(0, 5))] = new
    if rng.random() < 0.1:
        del content[int(rng.integers(len(content))) :]
    options = {"--group": "g", "--value": "y"}
    if rng.random() < 0.3:
        options = {"--formula": pick(rng, FORMULAS)}
    for _ in range(rng.integers(0, 3)):
        option = pick(rng, ["--group", "--value", "--level", "--prior", "--family", "--exposure",
                            "--formula", "--out"])  # fmt: skip
        options[option] = pick(rng, ["", "g", "y", "nothing", "0.5", "2", "nan", "-1", "normal",
                                     "npmle", "poisson", "binomial", "out.csv", "x/y.csv", "$x$",
                                     "out.parquet", "é", "rows.csv", "."])  # fmt: skip

    def act() -> Any:
        from typer.testing import CliRunner

        from ebfed.cli.app import app

        with tempfile.TemporaryDirectory() as folder:
            before = os.getcwd()
            os.chdir(folder)
            try:
                Path("rows.csv").write_bytes(content)
                words = [word for pair in options.items() for word in pair]
                result = CliRunner().invoke(app, ["fit", "rows.csv", *words])
                if result.exit_code == 0:
                    out = Path(options.get("--out", "nothing"))
                    if out.suffix == ".csv":
                        return [pd.read_csv(out)["estimate"].to_numpy(float)]
                    return []
            finally:
                os.chdir(before)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        if result.exit_code != 2:
            raise RuntimeError(f"exit code {result.exit_code}")
        raise ValueError(f"{result.stderr}")

    options_named = {option.strip("-") for option in options}
    shown = " ".join(f"{option} {value!r}" for option, value in options.items())
    return Attack(
        f"ebfed fit {shown} ({len(content)} bytes)", options_named | {"file", "y", "X"}, act
    )


KINDS = [of_fit, of_fit, of_fit, of_reading, of_reading, of_arguments, of_arguments, of_channels,
         of_tables, of_formulas, of_frames, of_commands]  # fmt: skip


def attack(number: int) -> Attack:
    """Return the attack of this number."""
    rng = np.random.default_rng([SEED, number])
    with quiet():
        return KINDS[number % len(KINDS)](rng)


# The judge ---------------------------------------------------------------------------------------


@contextmanager
def limited() -> Any:
    """Stop what takes too long, and refuse memory by the gigabyte."""
    import resource

    def stop(*_: Any) -> None:
        raise Hang

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGALRM, stop)
    resource.setrlimit(resource.RLIMIT_AS, (used + GIBIBYTES * 2**30, hard))
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGALRM, before)


def names_it(message: str, names: set[str]) -> bool:
    """Return whether a message names one of the arguments."""
    words = "|".join(NAMES.get(name, re.escape(name)) for name in names)
    return bool(re.search(rf"(?<![A-Za-z])({words})(?![A-Za-z])", message))


def verdict(case: Attack) -> str | None:
    """Return what is wrong with the outcome of an attack; None: it is clear, or right."""
    with limited(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = case.act()
        except Hang:
            return "hang"
        except MemoryError as error:
            return f"memory: {place(error)}"
        except ERRORS as error:
            if isinstance(error, np.linalg.LinAlgError):
                return f"obscure LinAlgError: {place(error)}"
            if case.expected is not None:
                return f"refused form: {error}"
            if not str(error).strip():
                return f"empty {type(error).__name__}: {place(error)}"
            if not names_it(str(error), case.names):
                return f"obscure {type(error).__name__}: {str(error)[:150]!r} {place(error)}"
            found = None
        except Exception as error:
            return f"obscure {type(error).__name__}: {str(error)[:150]!r} {place(error)}"
    for each in caught:
        if issubclass(each.category, RuntimeWarning | DeprecationWarning | FutureWarning):
            at = f"{Path(each.filename).name}:{each.lineno}"
            return f"{each.category.__name__}: {str(each.message)[:80]} {at}"
    if found is None:
        return None
    for values in found:
        values = np.asarray(values)
        if values.dtype.kind == "f" and np.isnan(values).any():
            return "silent NaN"
    if case.expected is not None:
        with quiet():
            for values, right in zip(found, case.expected(), strict=True):
                if np.asarray(values).dtype.kind not in "biuf":
                    if not np.array_equal(np.asarray(values), np.asarray(right)):
                        return "another answer"
                elif not np.allclose(values, right, rtol=1e-6, atol=1e-9, equal_nan=True):
                    return "another answer"
    return None


def place(error: BaseException) -> str:
    """Return the last line of the package in a traceback."""
    frames = [
        each for each in traceback.extract_tb(error.__traceback__) if "/ebfed/" in each.filename
    ]
    return f"at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "outside"


def failures(numbers: Any) -> dict[int, tuple[str, str]]:
    """Return what was attacked and what is wrong, by the numbers of attacks that failed."""
    found = {}
    for number in numbers:
        case = attack(int(number))
        wrong = verdict(case)
        if wrong is not None:
            found[int(number)] = (case.what, wrong)
    return found


if __name__ == "__main__":
    first, last = (int(word) for word in [*sys.argv[1:], "0", "5000"][:2])
    wrong = failures(range(first, last))
    classes = defaultdict(list)
    for number, (what, why) in wrong.items():
        classes[why.split(":")[0]].append(f"  {number}: {what}\n      {why}")
    for name, lines in classes.items():
        print(f"{name}: {len(lines)}", *lines, sep="\n")
    print(Counter({name: len(lines) for name, lines in classes.items()}), last - first, "attacks")
