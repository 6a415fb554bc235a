"""An R that is ready, and has its tables, before a clock starts."""

import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest

FOLDER = Path(mkdtemp())


class R:
    """An R with a package, which is asked line by line."""

    def __init__(self, package):
        asked = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(["R", "--no-echo", "--no-save", "--vanilla"], **asked)
        self.known = set()
        self.run(f"suppressMessages(library({package}))")

    def run(self, code):
        """Run code, and return what it prints."""
        self.process.stdin.write(f"{{ {code} }}\ncat('\\n<done>\\n')\n")
        self.process.stdin.flush()
        lines = []
        while (line := self.process.stdout.readline()) != "<done>\n":
            if not line:
                raise RuntimeError(f"R stopped at {code!r}.")
            lines.append(line)
        return "".join(lines)

    def give(self, name, table, factors=()):
        """Give R a table, once."""
        if name in self.known:
            return
        path = FOLDER / f"{name}.csv"
        table.to_csv(path, index=False)
        made = "".join(f"{name}${each} <- factor({name}${each});" for each in factors)
        self.run(f"{name} <- read.csv('{path}'); {made}")
        self.known.add(name)


@cache
def r(package):
    """Return the R of a package; skip without one."""
    if shutil.which("R") is None:
        pytest.skip("R is not installed")
    return R(package)
