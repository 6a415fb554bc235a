"""What a small fit costs beyond its arithmetic, and a process beyond its imports.

python tests/benchmarks/fixed_costs.py

Processor time with one thread, best of many: milliseconds of three fits, and two ratios to peers of
the same run, a REML fit by NumPy of the sums of groups, and a process that only imports what ours
needs. An aim that is missed is printed as MISSED, and nothing fails.
"""

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
from test_speed import FLOOR_OF_FORMULAS, counts, reml_by_numpy, rows
from threadpoolctl import threadpool_limits

import ebfed as eb

ROUNDS, PROCESSES = 60, 9
FORMULA = "Reaction ~ Days + (Days | Subject)"
FILE = Path(__file__).parents[1] / "reference" / "sleepstudy.csv"
PROCESS = f"""
import pandas as pd, ebfed
ebfed.from_formula({FORMULA!r}, pd.read_csv({str(FILE)!r}))
"""
ENVIRONMENT = {name: value for name, value in os.environ.items() if "DONTWRITE" not in name} | {
    "OMP_NUM_THREADS": "1"  # and the bytecode of an installed package
}


def milliseconds(runs):
    """Fastest of each, in turns."""
    times = [[] for _ in runs]
    for _ in range(ROUNDS):
        for run, own in zip(runs, times, strict=True):
            start = time.process_time_ns()
            run()
            own.append(time.process_time_ns() - start)
    return [min(own) / 1e6 for own in times]


def seconds(code):
    """Processor time of a process, its own and of the system."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True, env=ENVIRONMENT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def told(name, value, aim, unit=""):
    """Print a figure beside its aim."""
    missed = "  MISSED" if value > aim else ""
    print(f"{name:<52}{value:8.2f}{unit:3} aim {aim:g}{missed}", flush=True)


def main():
    """Print the five figures."""
    frame = pd.read_csv(FILE)
    days, reaction, subject = (frame[name].to_numpy() for name in ("Days", "Reaction", "Subject"))
    runs = [
        lambda: eb.from_formula(FORMULA, frame),
        lambda: eb.LinearEB("full").fit(days[:, None], reaction, groups=subject),
        lambda: eb.BernoulliEB().fit(eb.Summary.from_counts(*counts(1_000))),
        lambda: eb.GaussianEB().fit(rows(1_000)[0], groups=rows(1_000)[1]),
        lambda: reml_by_numpy(*rows(1_000)),
    ]
    with threadpool_limits(1):
        formula, arrays, binomial, location, peer = milliseconds(runs)
    told("from_formula of sleepstudy", formula, 3, " ms")
    told("LinearEB of its arrays", arrays, 1, " ms")
    told("BernoulliEB of 1,000 counts", binomial, 1, " ms")
    told(f"GaussianEB of 1,000 x 10 rows ({location:.2f} ms), by NumPy", location / peer, 3)
    both = [(seconds(PROCESS), seconds(FLOOR_OF_FORMULAS)) for _ in range(PROCESSES)]
    ours, floor = (min(each) for each in zip(*both, strict=True))
    told(f"a process that fits it ({ours:.2f} s), by its imports", ours / floor, 1.15)


if __name__ == "__main__":
    main()
