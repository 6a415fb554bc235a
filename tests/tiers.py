"""Choose which tests `pytest` runs at once, and which only the thorough set has.

    pytest -m "not slow" -n 2 -vv --durations=0 > durations.log
    python tests/tiers.py durations.log

writes `tests/thorough.txt`: a line for each test function that is left out of the quick set. The
quick set has the cheapest functions, up to `QUICK` seconds of one core, and the cheapest of every
file, unless that or a fixture of the file takes more than `MOST` seconds. Marks are set by `tests/conftest.py`.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path

FILE = Path(__file__).with_name("thorough.txt")
QUICK, MOST = 50.0, 2.0  # seconds, where the log was made
LINE = re.compile(r"([\d.]+)s (call|setup|teardown) +(\S.*)")


def function_of(test: str) -> str:
    """Return the name of a test without its parameters."""
    return test.split("[", 1)[0].strip()


def read(log: str) -> dict[str, float]:
    """Return the seconds that each function took, all its parameters together.

    A fixture that all functions of a file share is counted for the first only; so the longest is
    counted for each of them, where it takes more than `MOST` seconds.
    """
    seconds: dict[str, float] = defaultdict(float)
    fixture: dict[str, float] = defaultdict(float)
    for took, when, test in LINE.findall(log):
        name = function_of(test)
        if when == "setup":
            file = name.split("::")[0]
            fixture[file] = max(fixture[file], float(took))
        else:
            seconds[name] += float(took)
    return {
        name: took + (longest if (longest := fixture[name.split("::")[0]]) > MOST else 0.0)
        for name, took in seconds.items()
    }


def choose(seconds: dict[str, float]) -> list[str]:
    """Return the functions that are left to the thorough set."""
    left, thorough, files = QUICK, [], set()
    for name, took in sorted(seconds.items(), key=lambda item: (item[1], item[0])):
        file = name.split("::")[0]
        if took <= left:
            left -= took
        elif file in files or took > MOST:
            thorough.append(name)
        files.add(file)
    return sorted(thorough)


if __name__ == "__main__":
    seconds = read(Path(sys.argv[1]).read_text())
    thorough = choose(seconds)
    FILE.write_text("".join(f"{name}\n" for name in thorough))
    total = sum(seconds.values())
    print(f"{len(thorough)} of {len(seconds)} functions, {sum(map(seconds.get, thorough)):.0f} of")
    print(f"{total:.0f} seconds, are left to the thorough set.")
