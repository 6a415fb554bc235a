"""Engines in one process, and on a Dask cluster: the same numbers everywhere."""

import numpy as np
import pytest
from sklearn.base import clone

import ebfed as eb
from ebfed import channels as ch
from ebfed.engines import Dask, Local

RNG = np.random.default_rng(4)
GROUPS = np.repeat(np.arange(200), RNG.integers(1, 6, 200))
X = RNG.normal(RNG.normal(0, 1, 200)[GROUPS], 1.0)
CHOICE = np.where(GROUPS % 4 == 0, "open", "private")
COVARIATE = RNG.normal(size=200)
GUESS = eb.channels.Guess(mean=(-1, 1), spread=1)

FITS = {
    "gaussian": (eb.GaussianEB(), X, {}),
    "gaussian through noise": (
        eb.GaussianEB(1.0, channel=ch.Laplace(2, (-4, 4)), random_state=1),
        X,
        {},
    ),
    "gaussian in waves": (
        eb.GaussianEB(1.0, channel=ch.TwoBit(2, range="private"), guess=GUESS, random_state=1),
        X,
        {},
    ),
    "gaussian with covariates": (eb.GaussianEB(), X, {"covariates": COVARIATE}),
    "rates": (eb.BernoulliEB(), X > 0, {}),
    "rates with covariates": (eb.BernoulliEB(), X > 0, {"covariates": COVARIATE}),
    "rates of the paper": (eb.BernoulliEB(method="paper"), X > 0, {}),
    "rates through noise": (eb.BernoulliEB(channel=ch.TwoBit(2), random_state=1), X > 0, {}),
    "mixture": (eb.MixtureEB(2, components="spherical", random_state=1), X, {}),
    "clustering": (eb.MixtureEB(2, solver="clustering", random_state=1), X, {}),
    "private mixture": (
        eb.MixtureEB(
            2,
            variances=1.0,
            channel=ch.Clip(radius=4.0),
            trust="server",
            epsilon=2.0,
            delta=1e-5,
            random_state=1,
        ),
        X,
        {},
    ),
    "opting out": (eb.OptOutMean(1, 1, 0.1, random_state=1), X, {"consent": CHOICE}),
}


@pytest.fixture(scope="module")
def cluster():
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as it,
        distributed.Client(it) as client,
    ):
        yield client


def same(engine, name):
    estimator, rows, more = FITS[name]
    expected = clone(estimator).fit(rows, groups=GROUPS, **more)
    fitted = clone(estimator).set_params(engine=engine).fit(rows, groups=GROUPS, **more)
    np.testing.assert_array_equal(fitted.predict(), expected.predict())
    np.testing.assert_array_equal(fitted.posterior().sd, expected.posterior().sd)
    assert fitted.log_likelihood_ == expected.log_likelihood_ or np.isnan(expected.log_likelihood_)


@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize("engine", [Local(13), Local(threads=2), Local(13, threads=3)])
def test_local(engine, name):
    same(engine, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", FITS)
def test_dask(cluster, name):
    same(Dask(cluster), name)
    same(Dask(cluster, n_blocks=13), name)


def test_blocks_by_threads():
    assert Local(threads=3).n_blocks == 3
    assert Local(5, threads=3).n_blocks == 5


@pytest.mark.parametrize("arguments", [{"n_blocks": 0}, {"threads": 0}])
def test_wrong_numbers(arguments):
    with pytest.raises(ValueError, match="must be at least 1"):
        Local(**arguments)


def test_dask_needs_a_client():
    with pytest.raises(TypeError, match=r"distributed.Client.*ebfed\[dask\]"):
        Dask("scheduler:8786")
