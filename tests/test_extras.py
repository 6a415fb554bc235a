"""Optional packages: each extra installs alone, and does what it is for; what is missing is named.

The slow tests make an environment for each extra, from the package index.
"""

import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import numpy as np
import pytest

import ebfed as eb

ROOT = Path(__file__).parents[1]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

HEAVY = (
    "cryptography",
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
    "sqlglot",
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
    "accounting": "from ebfed.privacy import accountant, events\n"
    "spent = accountant.epsilon(events.gaussian(2), 1e-4, relation='replace_one', interval=1e-3)\n"
    "assert 3.5 < spent < 4.5, spent\n",
    "sql": "from ebfed import GaussianEB\n"
    "text = GaussianEB(1.0).fit([1.0, 2.0, 4.0], groups=list('aab')).to_sql('spark')\n"
    "assert 'SELECT' in text and '`estimate`' in text\n",
    "secure": "import ebfed\n"
    "summary = ebfed.Summary.from_counts([1, 2], [4, 4])\n"
    "ebfed.channels.TwoBit(1, .5, (0, 1)).encode(summary, 'secure')\n"
    "from ebfed.engines.secure_sum import LocalNodes, secure_sum, terms\n"
    "import numpy as np\n"
    "agreed = terms('run', ['a', 'b'], 1)\n"
    "nodes = LocalNodes(agreed, {'a': np.array([1]), 'b': np.array([2])})\n"
    "assert secure_sum(agreed, 0, nodes.ask).total.tolist() == [3]\n",
    "flower": "from ebfed.engines.flower import server_app\n"
    "from ebfed import GaussianEB\n"
    "rows = {'X': ['x'], 'groups': 'g'}\n"
    "server_app(GaussianEB(), 2, rows=rows, quorum=1.0, deadline=9.0, out='out')\n",
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
    "flwr": ("flower", "from ebfed.engines.flower import need_flower; need_flower()"),
    "cryptography": (
        "secure",
        "from ebfed.engines.secure_sum import terms; terms('r', ['a', 'b'], 1)",
    ),
    "polars": ("polars", "FITTED.set_output(transform='polars').posterior().to_frame()"),
    "pooch": ("data", "eb.datasets.fetch_county_returns()"),
    "dp_accounting": ("accounting", "eb.privacy.events.gaussian(2.0)"),
}


def hide(package, monkeypatch):
    """Let imports of a package fail, as where it is not installed."""
    for name in [*sys.modules]:
        if name == package or name.startswith(f"{package}."):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)


@pytest.mark.parametrize("package", MISSING)
def test_what_is_missing_is_named(package, monkeypatch, tmp_path):
    extra, code = MISSING[package]
    monkeypatch.setenv("EBFED_DATA", str(tmp_path))
    summary = eb.Summary.from_counts([1, 2, 4], [4, 4, 5])
    fitted = eb.BernoulliEB().fit(summary)
    hide(package, monkeypatch)
    with pytest.raises(ImportError, match=rf"ebfed\[{extra}\]"):
        exec(code, {"eb": eb, "SUMMARY": summary, "FITTED": fitted})


CHANNELS = [
    eb.channels.TwoBit(1),
    eb.channels.Piecewise(1),
    eb.channels.Gaussian(1, 1e-6),
    eb.channels.DiscreteGaussian(1, 1e-6),
    eb.channels.RandomizedResponse(1),
]


@pytest.mark.parametrize("channel", CHANNELS, ids=lambda channel: type(channel).__name__)
def test_channels_need_no_accountant(channel, monkeypatch):
    hide("dp_accounting", monkeypatch)
    summary = eb.Summary.from_counts(np.arange(60) % 5, np.full(60, 4))
    private = eb.BernoulliEB(channel=channel, random_state=0).fit(summary)
    assert private.privacy_["epsilon"].tolist() == [1.0]


def test_learners_need_an_accountant_only_for_samples_of_clients(monkeypatch):
    hide("dp_accounting", monkeypatch)
    rng = np.random.default_rng(0)
    x, groups = rng.normal(size=(60, 2)), np.arange(60) % 12
    y = (x.sum(axis=1) > 0).astype(int)
    # a delta of its own: accounts of other tests are kept
    privacy = eb.ClientPrivacy(epsilon=8, delta=3.1e-5)
    all_clients = eb.learning.DPFedAvg(privacy=privacy, n_rounds=2).fit(x, y, groups=groups)
    assert all_clients.privacy_["epsilon"].tolist() == pytest.approx([8.0])
    sampled = eb.learning.DPFedAvg(privacy=privacy, n_rounds=2, sample_rate=0.5)
    with pytest.raises(ImportError, match=r"ebfed\[accounting\]"):
        sampled.fit(x, y, groups=groups)


def test_no_module_imports_the_regressions_that_it_reads():
    files = (ROOT / "ebfed").rglob("*.py")
    found = [
        path.name
        for path in files
        for line in path.read_text().splitlines()
        if re.match(r"\s*(import|from) (statsmodels|linearmodels|pyfixest)\b", line)
        and "statsmodels.nonparametric" not in line  # smooths of pictures, no regression
    ]
    assert not found
