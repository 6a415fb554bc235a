"""Optional packages: each extra installs alone, and does what it is for; what is missing is named.

The slow tests make an environment for each extra, from the package index.
"""

import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

import ebfed as eb

ROOT = Path(__file__).parents[1]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

HEAVY = (
    "dask",
    "distributed",
    "duckdb",
    "formulaic",
    "pyspark",
    "polars",
    "pyarrow",
    "flwr",
    "opendp",
    "pooch",
    "torch",
)
ALONE = f"import ebfed, sys; found = set({HEAVY!r}) & set(sys.modules); assert not found, found\n"
ROWS = """
import ebfed, pandas as pd
rows = pd.DataFrame({"g": ["a", "a", "b", "b", "c"], "x": [1.0, 2.0, 4.0, 5.0, 9.0]})
expected = ebfed.GaussianEB().fit(rows, groups="g").predict()
def check(table):
    found = ebfed.GaussianEB().fit(table, groups="g").predict()
    assert abs(found - expected).max() < 1e-9
"""
USES = {
    "torch": "from ebfed.models import Torch\nfrom ebfed.models.torch import lenet\n"
    "assert Torch(lenet(), (1, 28, 28)).bind(784, 10).size == 44426\n",
    "data": "import ebfed, pooch",
    "parquet": ROWS + "rows.to_parquet('rows.parquet')\n"
    "from ebfed.tables.files import Path, summarise\n"
    "found, _ = summarise([Path('rows.parquet')], 'g', 'x')\n"
    "assert abs(ebfed.GaussianEB().fit(found.summary).predict() - expected).max() < 1e-9\n",
    "polars": ROWS
    + "import polars as pl\ncheck(pl.LazyFrame({n: rows[n].to_list() for n in rows}))\n",
    "duckdb": ROWS + "import duckdb\ncheck(duckdb.sql('SELECT * FROM rows'))\n",
    "dask": ROWS + "import dask.dataframe as dd\ncheck(dd.from_pandas(rows, npartitions=2))\n",
    "spark": ROWS + "from pyspark.sql import SparkSession\n"
    "spark = SparkSession.builder.master('local[1]').getOrCreate()\n"
    "check(spark.createDataFrame(list(rows.itertuples(index=False)), ['g', 'x']))\n",
    "secure": "import ebfed\n"
    "summary = ebfed.Summary.from_counts([1, 2], [4, 4])\n"
    "ebfed.channels.TwoBit(1, .5, (0, 1)).encode(summary, 'secure')\n",
    "flower": "from ebfed.engines.flower import client_app, server_app\n"
    "from ebfed import GaussianEB\n"
    "client_app(GaussianEB(), dict)\n"
    "server_app(GaussianEB(), 2, quorum=1.0, deadline=9.0, out='out')\n",
}


def test_every_extra_is_tried():
    assert USES.keys() == EXTRAS.keys() - {"test", "bench", "docs"}


@pytest.mark.slow
@pytest.mark.parametrize("extra", USES)
def test_an_extra_installs_alone(extra, tmp_path):
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    install = [python, "-m", "pip", "install", "-q", f"{ROOT}[{extra}]"]
    subprocess.run(install, check=True)
    for code in (ALONE, USES[extra]):
        subprocess.run([python, "-W", "ignore", "-c", code], check=True, cwd=tmp_path)


MISSING = {
    "torch": ("torch", "from ebfed.models.torch import lenet; lenet()"),
    "opendp.prelude": ("secure", "eb.channels.TwoBit(1.23, .5, (0, 1)).encode(SUMMARY, 'secure')"),
    "flwr": ("flower", "from ebfed.engines.flower import client_app; client_app(None, dict)"),
    "polars": ("polars", "FITTED.set_output(transform='polars').posterior().to_frame()"),
    "pooch": ("data", "eb.datasets.fetch_county_returns()"),
}


@pytest.mark.parametrize("package", MISSING)
def test_what_is_missing_is_named(package, monkeypatch, tmp_path):
    extra, code = MISSING[package]
    monkeypatch.setenv("EBFED_DATA", str(tmp_path))
    summary = eb.Summary.from_counts([1, 2, 4], [4, 4, 5])
    fitted = eb.BernoulliEB().fit(summary)
    for name in [*sys.modules]:
        if name == package or name.startswith(f"{package}."):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"ebfed\[{extra}\]"):
        exec(code, {"eb": eb, "SUMMARY": summary, "FITTED": fitted})
