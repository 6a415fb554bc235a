"""Choose which tests `pytest` runs at once, and which only the thorough set has.

    pytest -m "not slow" -n 2 -vv --durations=0 > durations.log
    python tests/tiers.py durations.log

writes `tests/thorough.txt`: a line for each test function, or file, that is left out of the quick
set. The quick set has the cheapest functions, up to `QUICK` seconds of one core, and the cheapest
of every file, unless that or a fixture of the file takes more than `MOST` seconds. It also writes
`tests/slow.txt`: the cases that take more than `LONG` seconds, which are slow, unless they guard
what nothing else does. Marks are set by `tests/conftest.py`.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path

FILE = Path(__file__).with_name("thorough.txt")
SLOW = Path(__file__).with_name("slow.txt")
QUICK, MOST, LONG = 50.0, 2.0, 5.0  # seconds, where the log was made
ESSENTIAL = (  # types, the house, and what is compared with an oracle or a proof
    "ebfed/",  # examples; what is long is the compiling
    "tests/test_package.py",
    "tests/test_house.py",
    "tests/test_readme.py",
    "tests/test_words.py",
    "tests/test_benchmarks.py",
    "tests/fuzz/",
    "tests/adversary/",
    "tests/doors/",
    "tests/privacy/",
    "tests/priors/test_weights_npmle.py",
    "tests/engines/",
)
LINE = re.compile(r"([\d.]+)s (call|setup|teardown) +(\S.*)")


def function_of(test: str) -> str:
    """Return the name of a test without its parameters."""
    return test.split("[", 1)[0].strip()


def read(log: str) -> tuple[dict[str, float], set[str]]:
    """Return the seconds of each function, with all its parameters, and files of long fixtures."""
    seconds: dict[str, float] = defaultdict(float)
    files = set()
    for took, when, test in LINE.findall(log):
        name = function_of(test)
        if when == "setup" and float(took) > MOST:
            files.add(name.split("::")[0])
        seconds[name] += float(took)
    return seconds, files


def long(log: str) -> list[str]:
    """Return the cases that take too long for the thorough set."""
    cases: dict[str, float] = defaultdict(float)
    for took, _, test in LINE.findall(log):
        cases[test.strip()] += float(took)
    return sorted(
        test for test, took in cases.items() if took > LONG and not test.startswith(ESSENTIAL)
    )


def choose(seconds: dict[str, float], files: set[str]) -> list[str]:
    """Return the files and functions that are left to the thorough set."""
    left, thorough, tried = QUICK, sorted(files), set(files)
    for name, took in sorted(seconds.items(), key=lambda item: (item[1], item[0])):
        file = name.split("::")[0]
        if file in files:
            continue
        if took <= left:
            left -= took
        elif file in tried or took > MOST:
            thorough.append(name)
        tried.add(file)
    return sorted(thorough)


if __name__ == "__main__":
    log = Path(sys.argv[1]).read_text()
    thorough, slow = choose(*read(log)), long(log)
    for file, names in ((FILE, thorough), (SLOW, slow)):
        file.write_text("".join(f"{name}\n" for name in names))
    print(f"{len(thorough)} files and functions are thorough, {len(slow)} cases are slow.")
