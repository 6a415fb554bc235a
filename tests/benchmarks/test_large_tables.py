"""Tables larger than memory, each contender in a process of its own; conftest.py prints the ratios.

The peer is the engine's own group-by of count, mean and variance over the same file: less than is
needed where means are large, and no fit. Only work on the file is timed: a process has imported
what it needs, started its engine, and done the same with a thousand rows before. A command of the
shell is timed with its imports, which take two seconds. Peak memory of the process stands beside
each name, and includes Spark's JVM; Linux does not say less than that of the process which started
it. The files take 2.2 GB of disk at most, one at a time.
"""

import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from test_speed import Contender

BATCH, FEW = 10**6, 1000


@dataclass(frozen=True)
class Rows:
    """A file of rows: their number, that of groups, and what a label looks like if it is text."""

    n_rows: int
    n_groups: int
    label: str = ""
    limit: float = np.inf  # of the memory of a fit, in MB

    def write(self, path, n_rows):
        rng = np.random.default_rng(0)
        means = rng.normal(5.0, 1.0, self.n_groups)
        groups = range(self.n_groups)
        labels = pa.array([self.label.format(g) for g in groups] if self.label else groups)
        schema = pa.schema([("g", labels.type), ("x", pa.float64())])
        with parquet.ParquetWriter(path, schema) as writer:
            for start in range(0, n_rows, BATCH):
                codes = rng.integers(0, self.n_groups, min(BATCH, n_rows - start))
                columns = [labels.take(pa.array(codes)), pa.array(rng.normal(means[codes], 2.0))]
                writer.write_table(pa.table(columns, schema), row_group_size=BATCH)


# A process: it starts, runs on a few rows, says that it is ready, and runs when it is told to.
PROCESS = """
from pathlib import Path

{start}

def run(path):
    {run}

def peaks():
    children = Path("/proc/thread-self/children").read_text().split()
    for process in ["self", *children]:
        lines = Path("/proc", process, "status").read_text().splitlines()
        yield next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

{warm}
print("\\nready", flush=True)
input()
run({file!r})
print("\\npeak", sum(peaks()), flush=True)
"""
COMMAND = """
    import sys
    from ebfed.cli.app import app
    sys.argv = ["ebfed", "fit", path, "--group", "g", "--value", "x"]
    app(standalone_mode=False)
"""
SPARK = """
from pyspark.sql import SparkSession, functions
options = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
session = SparkSession.builder.master("local[2]").config(map=options).getOrCreate()
session.sparkContext.setLogLevel("ERROR")
table = session.read.parquet
"""
# How an engine starts and opens a file, and its group-by.
ENGINES = {
    "DuckDB": (
        "from duckdb import read_parquet as table",
        "table(path).aggregate('g, count(*), avg(x), var_samp(x)', 'g').to_arrow_table()",
    ),
    "polars": (
        "from polars import scan_parquet as table, col, len",
        "table(path).group_by('g').agg(len(), col('x').mean().alias('mean'), "
        "col('x').var().alias('variance')).collect(engine='streaming')",
    ),
    "Dask": (
        "from dask.dataframe import read_parquet as table",
        "table(path).groupby('g')['x'].agg(['count', 'mean', 'var']).compute()",
    ),
    "Spark": (
        SPARK,
        "table(path).groupBy('g').agg(functions.count('x'), functions.mean('x'), "
        "functions.var_samp('x')).toArrow()",
    ),
}


def beside(engine):
    """A fit of an engine's table, and the engine's own group-by."""
    start, group_by = ENGINES[engine]
    fit = "ebfed.GaussianEB().fit(table(path), groups='g')"
    return [
        Contender(f"ebfed on {engine}", (f"{start}\nimport ebfed", fit)),
        Contender(f"{engine} group-by", (start, group_by), 1.3),
    ]


LARGE = Rows(2 * 10**8, 10**5, limit=1000)
WORKLOADS = {
    ("fit a file of 2e8 rows", LARGE): [
        Contender("ebfed fit FILE", (None, COMMAND)),
        beside("DuckDB")[1],
    ],
    ("fit a relation of 2e8 rows", LARGE): beside("DuckDB"),
}
for rows, groups in [
    (Rows(5 * 10**7, 10**5), "1e5 groups"),
    (Rows(5 * 10**7, 10**6, "client-{:07d}"), "1e6 strings"),
]:
    WORKLOADS |= {(f"{name}, 5e7 rows, {groups}", rows): beside(name) for name in ENGINES}
CASES = [
    pytest.param(rows, workload, each, id=f"{workload}-{each.name}")
    for (workload, rows), contenders in WORKLOADS.items()
    for each in contenders
]


@pytest.fixture(scope="module")
def files(request, tmp_path_factory):
    """The rows, and their paths: all of them, and a few."""
    rows = request.param
    paths = [tmp_path_factory.mktemp("large") / name for name in ("all.parquet", "few.parquet")]
    for path, n_rows in zip(paths, (rows.n_rows, FEW), strict=True):
        rows.write(path, n_rows)
    yield rows, *map(str, paths)
    for path in paths:
        path.unlink()


@pytest.mark.parametrize(("files", "workload", "contender"), CASES, indirect=["files"])
def test_large_tables(benchmark, files, workload, contender):
    rows, file, few = files
    start, run = contender.run
    warm = f"run({few!r})" if start else ""
    code = PROCESS.format(start=start or "", run=run, warm=warm, file=file)
    process, peak = None, 0.0

    def ready():
        nonlocal process
        if process:
            process.communicate()
        command = [sys.executable, "-c", code]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        read("ready")

    def read(word):
        for line in process.stdout:
            if line.startswith(word):
                return line
        raise RuntimeError(f"a process ended with {process.wait()}")

    def work():
        nonlocal peak
        process.stdin.write("\n")
        process.stdin.flush()
        peak = int(read("peak").split()[1]) / 1e3

    benchmark.group = workload
    benchmark.extra_info = {
        "contender": contender.name,
        "target": contender.target,
        "statistic": "min",
    }
    benchmark.pedantic(work, setup=ready, rounds=3)
    process.communicate()
    speed = rows.n_rows / benchmark.stats.stats.min / 1e6
    benchmark.extra_info["contender"] += f" {peak:.0f} MB {speed:.0f} M/s"
    print(f"{workload}, {contender.name}: {peak:.0f} MB, {speed:.1f} million rows a second")
    assert peak < rows.limit
