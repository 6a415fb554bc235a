"""Run the experiments of the papers again: ``python vignettes/papers/run.py NAME``.

Without a name it lists the studies; `ledger` prints each numbered item of the papers and what was
found. Results are the same for the same seed and number of runs, on any number of processor cores;
an interrupted study continues from the folder of ``--out``.
"""

import argparse
import importlib
import inspect
import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path

import ledger

# The folder of each paper, which is also its key in `vignettes/paper/paper.bib`.
LETTERS = {"ozkara2023": "E", "aldaghri2021": "O", "bietti2022": "P", "huang2023": "J"}
PAPERS = {
    **{folder: f"[{letter}] {ledger.PAPERS[letter]}" for folder, letter in LETTERS.items()},
    "beyond": "Beyond the papers: methods of ebfed alone",
    "ebfed.evaluation": "Part of ebfed: `from ebfed.evaluation import coverage`",
}
STUDIES = {
    "ozkara2023": {
        "private-means": "means under local privacy, error against epsilon (Figures 1a, 3a, 3b)",
        "private-rates": "rates under local privacy, gain against epsilon (section K.2)",
        "bits": "means in k bits, error against k (Theorem 2)",
        "regression": "linear models of many clients, error against dimension (section K.2)",
        "mixture": "means of three kinds, clustering against EM (appendix D)",
        "adamix": "linear models of two kinds, error against steps (Table 3)",
        "logistic": "logistic regression for each of many clients, error against rows (section 3)",
        "personalization": "images of few classes each, AdaPeD and others (Tables 1, 2, Figure 2)",
    },
    "aldaghri2021": {
        "opt-out": "opting out of privacy, gains of server and client (Figures 1-4)",
        "opt-out-learning": "opting out while a network learns digits (Tables 4 and 5)",
    },
    "bietti2022": {"ppsgd": "personalisation and the price of privacy (Figures 1a, 1d and 2)"},
    "huang2023": {
        "joint-dp": "joint privacy between owners, error by their number (Tables 1, 2, 4, Figure 1)"
    },
    "beyond": {
        "personal-strengths": "how much to personalise, HierarchicalEB and tuned rivals",
        "private-frequencies": "shares of categories of a few kinds of clients, error by epsilon",
        "budgets": "opting out with a noise of one's own, error by number of clients",
        "kinds": "number of kinds of clients, how often it is right and what it costs",
        "subspaces": "personal principal components around shared ones, error by their spread",
        "mixed-models": "coverage of intervals of mixed models, with 6, 15 and 40 groups",
    },
    "ebfed.evaluation": {
        "coverage": "coverage and width of 95 % intervals, by prior, likelihood and channel"
    },
}
FOLDERS = {name: folder for folder, studies in STUDIES.items() for name in studies}


def find(name):
    """Import a study, a class."""
    if name not in FOLDERS:
        raise ValueError(f"no study {name!r}; there are {', '.join(FOLDERS)}")
    module = importlib.import_module(f"{FOLDERS[name]}.{name.replace('-', '_')}")
    (study,) = (each for each in vars(module).values() if getattr(each, "name", "") == name)
    return study


def listed():
    """Return the papers with their studies, as text."""
    lines = []
    for folder, studies in STUDIES.items():
        lines += ["", PAPERS[folder], *(f"  {name:<19} {studies[name]}" for name in studies)]
    return "\n".join(lines[1:])


def read(arguments):
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="run.py",
        description=__doc__.split("\n\n")[1],
        epilog=listed(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", nargs="?", default="list", help="name of the study, list or ledger")
    parser.add_argument("--all", action="store_true", help="run all studies, one after the other")
    parser.add_argument("--quick", action="store_true", help="run a small version")
    parser.add_argument("--model", choices=["cnn"], help="train the paper's convolutional network")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME=VALUE,…", help="run these cells alone"
    )
    parser.add_argument("--reps", type=int, help="number of runs, each with new clients")
    parser.add_argument("--seed", type=int, default=0, help="seed of all random numbers")
    parser.add_argument("--out", type=Path, help="folder for tables and figures")
    parser.add_argument("--data", help="folder with files of data, in place of EBFED_DATA")
    parser.add_argument("--store", action="store_true", help="keep the table for the ledger")
    parser.add_argument("--json", action="store_true", help="print results for other programs")
    return parser.parse_args(arguments)


def main(arguments=None):
    """Run a study; returns the exit code."""
    given = read(arguments)
    if given.name == "list" and not given.all:
        print(listed())
        return 0
    if given.name == "ledger":
        rows = [asdict(row) for row in ledger.rows()] if given.json else None
        print(ledger.to_text() if rows is None else json.dumps(rows, indent=2, ensure_ascii=False))
        return 0
    if given.all and given.name != "list":
        print(f"run.py: give a name or --all, not both; got {given.name}", file=sys.stderr)
        return 2
    if given.data is not None:
        os.environ["EBFED_DATA"] = given.data
    try:
        if given.out is not None:
            given.out.mkdir(parents=True, exist_ok=True)
        run_all(given) if given.all else run_one(given.name, given)
    except (OSError, ValueError, ImportError) as error:
        print(f"run.py: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


def run_one(name, given):
    """Run a study, print its page, and write its files where a folder is given."""
    study, more = find(name), {}
    if given.model is not None:
        if "model" not in inspect.signature(study.cells).parameters:
            raise ValueError(f"{name} has no choice of a model")
        more["model"] = given.model
    if given.only:
        if not all("=" in each for each in given.only):
            raise ValueError(f"--only is NAME=VALUE; got {' '.join(given.only)}")
        more["only"] = dict(each.split("=", 1) for each in given.only)
    results = study.run(given.reps, given.seed, quick=given.quick, keep=given.out, **more)
    plain = given.reps is None and given.seed == 0 and not more
    if given.store or (given.all and given.quick and plain):
        options = " --quick" * given.quick + "".join(f" --only {each}" for each in given.only)
        for option in ("model", "reps"):
            value = getattr(given, option)
            options += f" --{option} {value}" * (value is not None)
        tables = results.frames()
        ledger.store(name + options, (tables[each] for each in tables if each != "runs"))
    print(json.dumps(results.to_dict(), indent=2) if given.json else results.to_text())
    for path in results.save(given.out) if given.out is not None else ():
        print(f"Wrote {path}", file=sys.stderr if given.json else sys.stdout)


def run_all(given):
    """Run all studies, and print how long each took."""
    seconds = {}
    for name in FOLDERS:
        start = time.monotonic()
        run_one(name, given)
        seconds[name] = time.monotonic() - start
        print(flush=True)
    for name, each in seconds.items():
        print(f"{name:<19} {each / 60:6.1f} minutes", file=sys.stderr)
    print(f"{'all':<19} {sum(seconds.values()) / 60:6.1f} minutes", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
