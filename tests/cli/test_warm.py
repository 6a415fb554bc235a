"""`ebfed warm`: nothing is left to compile."""

import os

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import ebfed as eb
from ebfed import kernels
from ebfed.cli.app import app


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled")
def test_warm_leaves_nothing_to_compile(rows, file):
    result = invoke("warm")
    assert result.exit_code == 0, result.output
    assert "Cache: " in result.stdout
    ready = {name: list(getattr(kernels, name).signatures) for name in kernels.__all__}
    assert all(ready.values()), "ebfed warm reaches every kernel"
    eb.GaussianEB().fit(rows[["score", "won"]], groups=rows["number"]).predict()
    eb.GaussianEB().fit(rows["score"], groups=rows["number"] * 10**9)
    eb.BernoulliEB().fit(rows[["won", "fips"]], groups="fips").predict()
    eb.GaussianEB().fit(rows["score"].to_list(), groups=rows["fips"].to_list())
    many = np.arange(10_000) * 10**9
    for groups in (many, pd.Series(many)):
        eb.GaussianEB(1.0).fit(np.sqrt(np.arange(10_000)), groups=groups)
    for group in ("number", "fips"):
        invoke("fit", file, "--group", group, "--value", "score")
    assert ready == {name: list(getattr(kernels, name).signatures) for name in kernels.__all__}
