"""Print what fits of a large table cost beside its engine's own group-by, and how exact they are.

    python tests/benchmarks/lazy_tables.py [--rows 20000000] [--engines polars DuckDB Dask Spark]

Makes a Parquet file in a temporary folder (0.7 GB; two minutes for each engine, six for Spark).
Each workload has a process of its own, which first fits a thousand rows, so that neither imports
nor compilers nor Spark's start are timed. The engine's group-by adds up the same columns. Peak
memory includes that of children, such as Spark's JVM. The last column is the largest difference
to the fit of the first million rows in memory, over the spread of these figures.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

QUERY = """
COPY (
    WITH drawn AS (
        SELECT range AS i, hash(range) % {groups} AS g,
            (hash(range + 1e9::bigint) % 999983) / 999983 AS a,
            (hash(range + 2e9::bigint) % 999979) / 999979 AS b,
            (hash(range + 3e9::bigint) % 999961) / 999961 AS c
        FROM range({rows})
    ), normal AS (
        SELECT *, sqrt(-2 * ln(a + 1e-6)) * cos(6.2831853 * b) AS x,
            sqrt(-2 * ln(a + 1e-6)) * sin(6.2831853 * b) AS e,
            (hash(g + 5) % 1000) / 1000 - 0.5 AS own
        FROM drawn
    )
    SELECT g::bigint AS g, x, 1 + own + (2 + own) * x + e AS y,
        (c < 1 / (1 + exp(-own - x / 2)))::int AS won, 0.5 + a AS years,
        floor(exp(own) * (0.5 + a) * (0.3 + 2 * c))::int AS events,
        ['blue', 'green', 'red'][(1 + (i + g) % 3)::bigint] AS kind
    FROM normal
) TO '{file}' (FORMAT parquet)
"""


def encoder(table: Any) -> Any:
    import ebfed as eb

    return eb.GroupEncoder().fit(table, "y")


def formula(text: str, **settings: Any) -> Callable[[Any], Any]:
    def fit(table: Any) -> Any:
        import ebfed as eb

        return eb.from_formula(text, table, **settings)

    return fit


def estimator(name: str, *args: Any, **options: Any) -> Callable[[Any], Any]:
    def fit(table: Any) -> Any:
        import ebfed as eb

        return getattr(eb, name)().fit(table, *args, groups="g", **options)

    return fit


# Columns that a workload reads, and the fit.
FITS: dict[str, tuple[list[str], Callable[[Any], Any]]] = {
    "GaussianEB": (["y"], estimator("GaussianEB")),
    "BernoulliEB": (["won"], estimator("BernoulliEB")),
    "PoissonEB": (["events", "years"], estimator("PoissonEB", exposure="years")),
    "LinearEB": (["x", "y"], estimator("LinearEB", "y")),
    "CategoricalEB": (["kind"], estimator("CategoricalEB")),
    "y ~ x + (1 + x | g)": (["x", "y"], formula("y ~ x + (1 + x | g)")),
    "y ~ x * kind + (1 | g)": (["x", "y", "kind"], formula("y ~ x * kind + (1 | g)")),
    "GroupEncoder": (["y"], encoder),
    "won ~ 1 + (1 | g)": (["won"], formula("won ~ 1 + (1 | g)", family="binomial")),
}
PREDICTED = "predict, y ~ x + (1 + x | g)"
WORKLOADS = [*FITS, PREDICTED]


def table_of(engine: str, file: str, columns: list[str]) -> Any:
    """Return a lazy table of a Parquet file."""
    if engine == "polars":
        import polars as pl

        return pl.scan_parquet(file).select(columns)
    if engine == "DuckDB":
        import duckdb

        return duckdb.read_parquet(file).project(", ".join(columns))
    if engine == "Dask":
        import dask.dataframe as dd

        return dd.read_parquet(file, columns=columns, blocksize="64MiB")
    from pyspark.sql import SparkSession

    options = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "3g",
        "spark.sql.shuffle.partitions": "8",
    }
    session = SparkSession.builder.master("local[*]").config(map=options).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session.read.parquet(file).select(*columns)


def grouped(table: Any, columns: list[str]) -> None:
    """Add up columns in each group, and count text, by the engine alone."""
    import narwhals as nw

    table = nw.from_native(table)
    schema = table.collect_schema()
    sums = [nw.col(x).sum() for x in columns if schema[x].is_numeric()]
    keys = ["g", *(x for x in columns if not schema[x].is_numeric())]
    found = table.group_by(*keys).agg(nw.len().alias("n"), *sums)
    found.collect(**({"engine": "streaming"} if table.implementation.is_polars() else {}))


def predicted(table: Any, fit: Any) -> None:
    """Let the engine compute predictions, and add them up."""
    import narwhals as nw

    found = nw.from_native(fit.predict(table)).select(nw.col(".fitted").sum())
    found.collect(**({"engine": "streaming"} if found.implementation.is_polars() else {}))


def seconds(run: Callable[[], Any], times: int = 2) -> float:
    """Return the shortest of some times."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return min(found)


def peak_memory() -> float:
    """Return the most gibibytes that this process and its children had."""
    total = 0
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            text = dict(line.split(":\t", 1) for line in status.read_text().splitlines())
        except (OSError, ValueError):
            continue
        if str(_own()) in (text["Pid"].strip(), text["PPid"].strip()):
            total += int(text.get("VmHWM", "0 kB").split()[0])
    return total / 2**20


def _own() -> int:
    import os

    return os.getpid()


def figures(fit: Any) -> np.ndarray:
    """Return the estimates of the groups of a fit, sorted: categories have no other order."""
    if hasattr(fit, "tidy") and not hasattr(fit, "posterior"):
        return np.sort(fit.tidy()["estimate"].to_numpy())
    return np.asarray(getattr(fit, "estimator_", fit).posterior().mean)


def measured(engine: str, workload: str, folder: Path) -> dict[str, float]:
    """Time a workload beside the group-by, and compare it with rows in memory."""
    import polars as pl

    columns, fit = FITS["y ~ x + (1 + x | g)" if workload == PREDICTED else workload]
    names = ["g", *columns]
    large, medium, small = (
        table_of(engine, str(folder / f"{size}.parquet"), names)
        for size in ("large", "medium", "small")
    )
    grouped(small, columns)
    few = fit(small)
    if workload == PREDICTED:
        predicted(small, few)
        base = seconds(lambda: grouped(large, columns))
        took = seconds(lambda: predicted(large, few))
        return {"base": base, "fit": took, "peak": peak_memory(), "difference": np.nan}
    base = seconds(lambda: grouped(large, columns))
    took = seconds(lambda: fit(large))
    peak = peak_memory()
    rows = pl.read_parquet(folder / "medium.parquet", columns=names)
    if workload == "GroupEncoder":
        import ebfed as eb

        expected = figures(eb.GroupEncoder().fit(rows.drop("y"), rows["y"]))
    else:
        expected = figures(fit(rows))
    apart = np.abs(figures(fit(medium)) - expected).max() / np.std(expected)
    return {"base": base, "fit": took, "peak": peak, "difference": float(apart)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--groups", type=int, default=100_000)
    parser.add_argument("--engines", nargs="+", default=["polars", "DuckDB", "Dask", "Spark"])
    parser.add_argument("--workloads", nargs="+", default=WORKLOADS)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one is not None:
        warnings.simplefilter("ignore")
        found = measured(given.engines[0], given.workloads[0], Path(given.one))
        print(json.dumps(found))
        return
    import duckdb

    with tempfile.TemporaryDirectory() as folder:
        for size, rows in (("large", given.rows), ("medium", 1_000_000), ("small", 1000)):
            groups = max(min(given.groups, rows // 10), 1)
            file = Path(folder, f"{size}.parquet")
            duckdb.execute(QUERY.format(rows=rows, groups=groups, file=file))
        print(f"{given.rows:,} rows of {given.groups:,} groups")
        print("engine  workload                       group-by    fit  ratio  peak GiB  difference")
        for engine in given.engines:
            for workload in given.workloads:
                command = [sys.executable, __file__, "--one", folder]
                command += ["--engines", engine, "--workloads", workload]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode:
                    reason = (done.stderr.strip().splitlines() or ["killed"])[-1]
                    print(f"{engine:7} {workload:30} {reason[:100]}", flush=True)
                    continue
                each = json.loads(done.stdout.splitlines()[-1])
                print(
                    f"{engine:7} {workload:30} {each['base']:8.2f} {each['fit']:6.2f} "
                    f"{each['fit'] / each['base']:6.1f} {each['peak']:9.2f} "
                    f"{each['difference']:11.1g}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
