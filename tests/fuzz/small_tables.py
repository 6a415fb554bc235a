"""Random tables of 3 to 8 groups, the models fitted to them, and a judge of all that a fit says.

`python tests/fuzz/small_tables.py [first] [last]` fits the tables of these numbers, and lists what
is wrong by kind. Table i is drawn from the seed i alone, so a failure is repeated by its number:

    python tests/fuzz/small_tables.py 17
"""

from __future__ import annotations

import importlib.util
import pickle
import sys
import tempfile
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone

import ebfed as eb


def neighbour(name: str) -> Any:
    """Return a module of this folder, which is no package."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


attacks, oracles = neighbour("attacks"), neighbour("oracles")

SEED = 23

# Tables ------------------------------------------------------------------------------------------

RANDOM = {
    "one way": "(1 | g)",
    "intercepts": "(1 | g)",
    "slopes": "(1 + x | g)",
    "separate slopes": "(1 + x || g)",
    "slopes alone": "(0 + x | g)",
    "nested": "(1 | s/g)",
    "crossed": "(1 | g) + (1 | h)",
    "crossed slopes": "(1 + x | g) + (1 | h)",
}
FAMILIES = ("gaussian", "binomial", "poisson", "negative_binomial", "gamma", "ordinal")
TURN = len(RANDOM) * len(FAMILIES)  # tables that have all structures of all families
FIXED = ("x", "x", "x", "f", "x + f", "x * f", "f * b", "x + b")
# What a table may be beside random: each is drawn with the probability.
ODD = {
    "one row": 0.25,  # some groups have one
    "alike": 0.2,  # no variance between groups
    "far apart": 0.15,
    "ties": 0.15,  # values of the response are few
    "exact": 0.08,  # no noise
    "flat": 0.04,  # all responses are equal
    "constant": 0.1,  # a column
    "collinear": 0.1,
    "empty cell": 0.15,
    "apart": 0.2,  # a column separates classes, or zeros
    "zeros": 0.05,  # all counts are zero, or all classes alike
    "units": 0.25,
    "far": 0.1,  # columns, and responses of numbers, are far from zero
    "weights": 0.15,
    "offset": 0.2,
    "counts": 0.3,  # of successes and trials
    "names": 0.1,  # labels are numbers, or categories
    "twice": 0.1,  # rows are repeated
}


@dataclass
class SmallTable:
    """A table, and the model that is to be fitted to it."""

    number: int
    frame: pd.DataFrame
    formula: str
    options: dict[str, Any]
    family: str
    structure: str
    odd: set[str] = field(default_factory=set)

    @property
    def code(self) -> str:
        """Lines that repeat the fit."""
        options = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return (
            "import sys; sys.path.insert(0, 'tests/fuzz')\n"
            "import ebfed as eb, small_tables\n"
            f"table = small_tables.table({self.number})  # {', '.join(sorted(self.odd))}\n"
            f"fit = eb.from_formula({self.formula!r}, table.frame{options})\n"
            "print(table.frame, fit.summary())"
        )

    def fit(self) -> Any:
        return eb.from_formula(self.formula, self.frame, **self.options)


def is_crossed(structure: str) -> bool:
    return structure.startswith("crossed")


def labels(rng: np.random.Generator, odd: set[str]) -> tuple[np.ndarray, np.ndarray]:
    """Draw the number of the group of each row, and its parent."""
    k = int(rng.integers(3, 9))
    n = rng.integers(1, 9, k)
    if "one row" in odd:
        n[rng.random(k) < 0.5] = 1
    n[0] = max(n[0], 2)
    if n.sum() < 8:
        n += 2
    groups = np.repeat(np.arange(k), n)
    return groups, groups // int(rng.integers(2, 4))


def columns(rng: np.random.Generator, groups: np.ndarray, odd: set[str]) -> dict[str, np.ndarray]:
    """Draw columns of predictors."""
    n = len(groups)
    x = rng.normal(size=n)
    if rng.random() < 0.2:
        x = rng.normal(size=groups.max() + 1)[groups]  # a column of groups
    elif rng.random() < 0.2:
        x = rng.integers(0, 3, n).astype(float)
    f = np.array(["u", "v", "w"])[rng.integers(0, 3, n)]
    b = np.array(["no", "yes"])[rng.integers(0, 2, n)]
    f[:2], b[:2] = ["u", "v"], ["no", "yes"]
    if "empty cell" in odd:
        f[(f == "v") & (b == "yes")] = "u"
    if "units" in odd:
        x = x * 10.0 ** rng.integers(-8, 9)
    if "far" in odd:
        x = x + np.std(x) * 10.0 ** rng.integers(1, 5)
    return {"x": x, "f": f, "b": b}


def means(
    rng: np.random.Generator, groups: np.ndarray, levels: list, columns: dict, odd: set[str]
) -> np.ndarray:
    """Draw the linear predictor of rows, of the size of one."""
    x = columns["x"]
    x = (x - x.mean()) / (np.std(x) or 1.0)
    spread = 0.0 if "alike" in odd else 6.0 if "far apart" in odd else rng.uniform(0.2, 1.5)
    mean = rng.normal() + rng.normal() * x + rng.normal() * (columns["f"] == "v")
    for codes in levels:
        mean = mean + spread * rng.normal(size=codes.max() + 1)[codes]
    return mean + spread * rng.normal(0, 0.5, groups.max() + 1)[groups] * x


def responses(
    rng: np.random.Generator, family: str, mean: np.ndarray, columns: dict, odd: set[str]
) -> np.ndarray:
    """Draw responses around the linear predictor."""
    n = len(mean)
    if family == "gaussian":
        y = mean + (0 if "exact" in odd else rng.uniform(0.1, 2)) * rng.normal(size=n)
        y = np.full(n, mean[0]) if "flat" in odd else np.rint(y) if "ties" in odd else y
        y = y * 10.0 ** rng.integers(-8, 9) if "units" in odd else y
        return y + np.std(y) * 10.0 ** rng.integers(1, 5) if "far" in odd else y
    if family == "gamma":
        shape = 1e6 if "exact" in odd else rng.uniform(0.5, 20)
        y = np.exp(mean) * rng.gamma(shape, 1 / shape, n)
        y = np.full(n, 2.0) if "flat" in odd else np.rint(y) + 1 if "ties" in odd else y
        return y * 10.0 ** rng.integers(-8, 9) if "units" in odd else y
    apart = (columns["b"] == "yes") if rng.random() < 0.5 else columns["x"] > columns["x"].mean()
    if family == "ordinal":
        noise = 0.01 if "exact" in odd else 1.0
        cuts = np.sort(rng.normal(0, 1.5, rng.integers(1, 4)))
        y = 1 + np.digitize(mean + rng.logistic(0, noise, n), cuts)
        y = np.where(apart, y.max(), y) if "apart" in odd else y
        y[:2] = [1, 2]
        return pd.factorize(y, sort=True)[0] + 1
    if family == "binomial":
        y = (rng.random(n) < 1 / (1 + np.exp(-mean))).astype(int)
        y = apart.astype(int) if "apart" in odd else y
        return np.zeros(n, int) if "zeros" in odd else y
    size = np.exp(np.clip(mean + (6 if "units" in odd else 0), -20, 14))
    if family == "negative_binomial":
        size = size * rng.gamma(1.5, 1 / 1.5, n)
    y = rng.poisson(size)
    y = np.where(apart, 0, y) if "apart" in odd else y
    return np.zeros(n, int) if "zeros" in odd else y


def table(number: int) -> SmallTable:
    """Return the table of this number."""
    rng = np.random.default_rng([SEED, number])
    family = FAMILIES[number % len(FAMILIES)]
    kinds = list(RANDOM)
    structure = kinds[(number // len(FAMILIES)) % len(kinds)]
    odd = {name for name, share in ODD.items() if rng.random() < share}
    groups, parents = labels(rng, odd)
    known = columns(rng, groups, odd)
    other = rng.integers(0, 4, len(groups))
    levels = [
        groups,
        *([parents] if structure == "nested" else [other] if is_crossed(structure) else []),
    ]
    y = responses(rng, family, means(rng, groups, levels, known, odd), known, odd)
    frame = pd.DataFrame({"y": y, **known, "g": groups, "s": parents, "h": other})
    options: dict[str, Any] = {} if family == "gaussian" else {"family": family}
    fixed = "1" if structure == "one way" else FIXED[rng.integers(len(FIXED))]
    if "slopes" in structure and "x" not in fixed.split():
        fixed = f"x + {fixed}"
    if fixed != "1" and "constant" in odd:
        frame["z"], fixed = 3.0, f"{fixed} + z"
    if "x" in fixed.split() and "collinear" in odd and "1 + x |" not in RANDOM[structure]:
        frame["dup"], fixed = 2 * frame["x"] + 1, f"{fixed} + dup"
    response = "y"
    if family == "binomial" and "counts" in odd:
        frame["n"] = frame["y"] + rng.integers(0, 5, len(y)) + 1
        response = "cbind(y, trials=n)"
    elif "weights" in odd and family != "ordinal":
        frame["w"] = rng.integers(1, 4, len(y))
        if family in ("gaussian", "gamma"):
            frame["w"] = rng.uniform(0.2, 5, len(y))
        options["weights"] = "w"
    if "offset" in odd and family in ("poisson", "negative_binomial"):
        frame["le"], fixed = rng.normal(0, 2, len(y)), f"{fixed} + offset(le)"
    if structure == "one way" and family in oracles.ON_LINK and rng.random() < 0.5:
        options["prior"] = oracles.ON_LINK[family]
    names = rng.integers(2) if "names" in odd else 2
    for name in "gsh":
        if names == 1:
            frame[name] = pd.Categorical(frame[name].map("k{}".format))
        elif names == 2:
            frame[name] = frame[name].map((name + "{}").format)
    if "twice" in odd:
        frame = pd.concat([frame, frame.iloc[:4]], ignore_index=True)
    formula = f"{response} ~ {fixed} + {RANDOM[structure]}"
    return SmallTable(number, frame, formula, options, family, structure, odd)


# What a fit is asked ------------------------------------------------------------------------------

Figures = Any


def new_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of a group of the fit and of one that was not in it."""
    rows = frame.head(3).copy()
    for name in "gsh":
        first = rows[name].astype(object)
        unseen = 99 if isinstance(first.iloc[0], int | np.integer) else "unseen"
        rows[name] = pd.Series([*first[:1], *[unseen] * (len(rows) - 1)], index=rows.index)
    return rows.drop(columns="y")


def saved(fit: Any, frame: pd.DataFrame) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        fit.save(f"{folder}/fit.json")
        return eb.load_fit(f"{folder}/fit.json")


COPIES: dict[str, Callable[[Any, pd.DataFrame], Any]] = {
    "pickle": lambda fit, frame: pickle.loads(pickle.dumps(fit)),
    "save": saved,
    "clone": lambda fit, frame: clone(fit).fit(frame),
}


def copies(fit: Any, table: SmallTable, copy: Callable[[Any, pd.DataFrame], Any]) -> Figures:
    """Raise an AssertionError where a copy has other figures."""
    twin, rows = copy(fit, table.frame), table.frame.head(5)
    np.testing.assert_array_equal(twin.predict(rows), fit.predict(rows))
    pd.testing.assert_frame_equal(twin.tidy(), fit.tidy())
    return []


def augmented(fit: Any, frame: pd.DataFrame) -> Figures:
    found = fit.augment()
    assert len(found) == len(frame)
    if ".hat" in found:  # without a row that alone determines a coefficient there is no fit
        alone = found[".hat"] > 1 - 1e-9
        found[".cooksd"] = found[".cooksd"].where(~alone, 0.0)
    return found.drop(columns=[name for name in frame if name in found])


def old_rows(fit: Any, frame: pd.DataFrame) -> Figures:
    """Predictions of the rows of the fit, which do not depend on the order of rows."""
    found = np.asarray(fit.predict(frame))
    again = np.asarray(fit.predict(frame.iloc[::-1]))[::-1]
    np.testing.assert_allclose(again, found, rtol=1e-6, err_msg="order of rows")
    return found


def posteriors(fit: Any, table: SmallTable) -> Figures:
    levels = ["g", "h"] if is_crossed(table.structure) else [None]
    every = [fit.posterior() if level is None else fit.posterior(level=level) for level in levels]
    for each in every:
        low, high = each.interval(0.9)
        assert (low <= high).all(), "ends of a posterior's interval are in the wrong order"
        assert (each.sd >= 0).all(), "a posterior has a negative standard deviation"
    return [[each.mean, each.sd, *each.interval(0.9)] for each in every]


def intervals(fit: Any, table: SmallTable, method: str) -> Figures:
    options = {"n_boot": 3} if method == "bootstrap" else {}
    found = fit.confint(method=method, **options)
    low, high = found["conf.low"].to_numpy(), found["conf.high"].to_numpy()
    assert not (low > high).any(), "ends of an interval are in the wrong order"
    if method == "profile":
        middle = found["estimate"].to_numpy()
        # estimates of REML are not at the maximum of the likelihood, nor those of no convergence
        if table.family != "gaussian" and getattr(fit.estimator_, "converged_", True):
            size = 1e-4 * (np.abs(middle) + np.nan_to_num(high - low, posinf=0))
            assert not ((low > middle + size) | (high < middle - size)).any(), "estimate is outside"
    return found


def tests(fit: Any) -> Figures:
    found = [fit.tests(), fit.tests(type="III")]
    for each in found:
        p = each["p.value"].to_numpy()
        assert not ((p < 0) | (p > 1)).any(), "a p-value is no probability"
    return found


def probabilities(fit: Any, frame: pd.DataFrame) -> Figures:
    found = fit.predict_proba(frame)
    np.testing.assert_allclose(found.sum(1), 1, err_msg="probabilities do not add up to 1")
    return found


def questions(table: SmallTable) -> Iterator[tuple[str, Callable[[Any], Figures]]]:
    """Yield what fits are asked, by name; every question is of some tables of each model.

    What is asked every turn is what is cheap or most often wrong; other questions take turns.
    """
    frame, number = table.frame, table.number
    one_way = table.structure == "one way" and "prior" not in table.options
    regression = not one_way or table.family in ("gamma", "ordinal")
    yield "summary", lambda fit: [str(fit.summary()), fit.glance()][1:]
    yield "tidy", lambda fit: fit.tidy(conf_int=True)
    yield "posterior", lambda fit: posteriors(fit, table)
    turn = number // TURN
    if turn % 2 == number % 2:
        yield "augment", lambda fit: augmented(fit, frame)
        yield "predict new", lambda fit: fit.predict(new_rows(frame))
    else:
        yield "predict", lambda fit: old_rows(fit, frame)
        yield "score", lambda fit: fit.score(frame)
    if turn % 3 == number % 3:
        yield "coef", lambda fit: [fit.coef(), fit.ranef(), fit.fixef()]
        yield "wald", lambda fit: intervals(fit, table, "wald")
    elif turn % 3 == (number + 1) % 3:
        name = list(COPIES)[turn // 3 % len(COPIES)]
        yield name, lambda fit: copies(fit, table, COPIES[name])
    if turn % 24 == number % 24:
        yield "profile", lambda fit: intervals(fit, table, "profile")
    if turn % 8 == number % 8:
        yield "bootstrap", lambda fit: intervals(fit, table, "bootstrap")
    if regression and turn % 2 == number % 2:
        yield "tests", tests
        if table.family in ("gaussian", "poisson") and table.structure != "nested":
            yield "predict_interval", lambda fit: list(fit.predict_interval(frame.head(4)))
    elif regression:
        yield "margins", lambda fit: [fit.margins(each) for each in factors(table)]
        yield "residuals", lambda fit: [fit.residuals(), fit.residuals(kind="pearson")]
    if regression and turn % 8 == (number + 1) % 8:
        # NaN where other groups do not identify a coefficient
        yield "influence", lambda fit: [fit.influence()][1:]
    if table.family in ("binomial", "ordinal") and regression and not is_crossed(table.structure):
        yield "predict_proba", lambda fit: probabilities(fit, frame)


def factors(table: SmallTable) -> list:
    used = table.formula.split("~")[1].split("(")[0]
    return [()] + [name for name in ("f", "b") if name in used.split()]


# The judge ----------------------------------------------------------------------------------------


def numbers_in(found: Figures) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the figures of an answer that must be finite, with names."""
    if isinstance(found, pd.DataFrame):
        effect = found.get("effect")
        for name in found.columns:
            if found[name].dtype.kind in "fc" and name not in ("df", "den.df"):  # infinite of z
                # spreads have no standard errors
                free = effect is not None and name != "estimate"
                yield name, found[name].to_numpy()[(effect == "fixed") if free else slice(None)]
    elif isinstance(found, list | tuple):
        for each in found:
            yield from numbers_in(each)
    elif found is not None and np.asarray(found).dtype.kind in "fc":
        yield "values", np.asarray(found)


def wrong_warning(caught: list) -> str | None:
    for each in caught:
        if issubclass(each.category, RuntimeWarning | DeprecationWarning | FutureWarning):
            at = f"{Path(each.filename).name}:{each.lineno}"
            return f"{each.category.__name__}: {str(each.message)[:80]} {at}"
    return None


def asked(act: Callable[[], Any], names: set[str]) -> tuple[Any, list, str | None]:
    """Return an answer, warnings, and what is wrong with it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = act()
        except AssertionError as error:
            return None, caught, f"contradiction: {' '.join(str(error).split())[:160]}"
        except ValueError as error:
            where = attacks.place(error)
            if isinstance(error, np.linalg.LinAlgError):
                return None, caught, f"LinAlgError: {where}"
            if not attacks.names_it(str(error), names):
                return None, caught, f"obscure ValueError: {str(error)[:150]!r} {where}"
            return None, caught, None  # it says what is wrong with what was given
        except Exception as error:
            where = attacks.place(error)
            return None, caught, f"{type(error).__name__}: {str(error)[:150]!r} {where}"
    return found, caught, wrong_warning(caught)


def verdicts(table: SmallTable, oracle: bool | None = None) -> dict[str, str]:
    """Return what is wrong with the answers of a fit, by question.

    If `oracle` is None, every other table of a model is compared with one; of several factors of
    rows that are not normal, where that takes longer, every fourth.
    """
    if oracle is None:
        several = table.structure == "nested" or is_crossed(table.structure)
        often = 4 if several and table.family != "gaussian" else 2
        oracle = (table.number // TURN + table.number) % often == 1
    # columns of one letter in quotation marks alone: such letters are in other sentences too
    names = {f"'{name}'" if len(name) == 1 else name for name in table.frame}
    names |= {"X", "y", "groups", "formula", "method", "family"}
    fit, caught, wrong = asked(table.fit, names)
    if fit is None:
        return {"fit": wrong} if wrong else {}
    bad = {} if wrong is None else {"fit": wrong}
    # a sentence for all that does not follow from the rows
    said = bool(caught or getattr(fit.estimator_, "notes_", []))
    for question, act in questions(table):
        found, also, wrong = asked(lambda act=act: act(fit), names)
        if wrong is None and not said and not also:
            for name, values in numbers_in(found):
                if not np.isfinite(values).all():
                    wrong = f"silent {values[~np.isfinite(values)][0]} in {name}"
        if wrong is not None:
            bad[question] = wrong
    if oracle:
        _, _, wrong = asked(lambda: oracles.check(table, fit, caught), names)
        if wrong is not None:
            bad["oracle"] = wrong
    return bad


def failures(numbers: Any) -> list[str]:
    """Return what is wrong with tables of these numbers, with lines that repeat it."""
    found = []
    for number in numbers:
        drawn = table(int(number))
        bad = verdicts(drawn)
        if bad:
            listed = "\n".join(f"  {question}: {why}" for question, why in bad.items())
            found.append(f"table {number}\n{listed}\n{drawn.code}")
    return found


if __name__ == "__main__":
    first = int(sys.argv[1]) if sys.argv[1:] else 0
    last = int(sys.argv[2]) if sys.argv[2:] else first + 1
    kinds = defaultdict(list)
    for number in range(first, last):
        drawn = table(number)
        for question, why in verdicts(drawn).items():
            kinds[f"{question}: {why}"[:110]].append(
                f"  {number}: {drawn.formula} {drawn.options} {sorted(drawn.odd)}\n      {why}"
            )
    for lines in sorted(kinds.values(), key=len):
        print(f"{len(lines)} x", *lines[:3], sep="\n")
    print(Counter(len(lines) for lines in kinds.values()), last - first, "tables")
