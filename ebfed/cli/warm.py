"""The command `ebfed warm`."""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["warm"]


def warm() -> None:
    """Compile all kernels now, so that the first fit is fast.

    Compiled code is stored on disk: run this once after installing, or while an image is built. If
    the folder of the package is read-only, set the environment variable NUMBA_CACHE_DIR.
    """
    from ebfed import kernels

    everything = [getattr(kernels, name) for name in kernels.__all__]
    compiled = [kernel for kernel in everything if hasattr(kernel, "stats")]
    if not compiled:
        typer.echo("Nothing to compile: NUMBA_DISABLE_JIT switches compilation off.")
        return
    start = time.perf_counter()
    _fit_every_kind()
    seconds = time.perf_counter() - start
    new = sum(sum(kernel.stats.cache_misses.values()) for kernel in compiled)
    ready = sum(len(kernel.signatures) for kernel in compiled)
    typer.echo(f"{ready} compiled functions are ready, {new} of them new, after {seconds:.1f} s.")
    for path in sorted({kernel.stats.cache_path for kernel in compiled}):
        typer.echo(f"Cache: {path}")


def _fit_every_kind() -> None:
    """Fit tiny tables of every kind of label and value that kernels are compiled for."""
    import numpy as np

    from ebfed.engines.sums import add_fixed, fixed_point, total
    from ebfed.learning import FedAvg
    from ebfed.location import (
        BernoulliEB,
        CategoricalEB,
        GaussianEB,
        NegativeBinomialEB,
        PoissonEB,
        VarianceEB,
        posterior_from,
    )
    from ebfed.models import MLP
    from ebfed.regression import AdaMixClassifier, CrossedEB, GeneralizedEB, LinearEB, LogisticEB
    from ebfed.streams import Stream, make_key
    from ebfed.tables.labels import SHORT, number_integers

    def frozen(array: NDArray) -> NDArray:
        array = array.copy()
        array.flags.writeable = False
        return array

    values = np.tile([0.0, 1.0, 1.0], 4)
    near = np.repeat(np.arange(4), 3)
    far = near * 10**9  # too far apart to be tabulated
    words = near.astype(str).astype(object)
    many = np.arange(SHORT + 1)  # too many to be sorted: they are hashed
    number_integers(many), number_integers(frozen(many))
    # columns of frames are read-only, which is another type to the compiler
    for X in (values, frozen(values)):
        for groups in (near, frozen(near), far, frozen(far), words):
            GaussianEB().fit(X, groups=groups)
            GaussianEB().fit(np.column_stack([X, X]), groups=groups).predict()
        BernoulliEB().fit(X, groups=near).predict()
        BernoulliEB().fit(X, groups=near, covariates=[0.0, 1.0, 3.0, 4.0])
        CategoricalEB().fit(X, groups=near)
        PoissonEB().fit(X, groups=near)  # without spread between groups
        NegativeBinomialEB(dispersion=1.0).fit(X, groups=near)
        NegativeBinomialEB().fit(X, groups=near)
        VarianceEB().fit(np.arange(12) ** 2, groups=near).posterior().interval()
    PoissonEB().fit(np.tile([0, 1], len(many)), exposure=np.arange(1.0, 1 + 2 * len(many)))
    total(fixed_point(values[:, None], 1))
    for dtype in ("float64", "float32"):
        add_fixed(values[:, None].astype(dtype), np.zeros((1, 1)), 1)
        learner = FedAvg(MLP(2), n_rounds=2, local_steps=2, dtype=dtype)
        learner.fit(values[:, None], near % 2, groups=near)
        few = np.arange(6) % 2  # rows of each group, fewer than features: steps are along them
        wide = FedAvg(MLP(2), n_rounds=1, local_steps=10, batch_size=2, dtype=dtype)
        wide.fit(np.eye(6, 20), few, groups=np.arange(6) // 3)
    stream = Stream(make_key(0), 0)
    stream.uniforms(1), stream.normals(1), stream.bernoulli([0.5]), stream.add_normals([1.0], 1.0)
    for prior in (
        "npmle",
        "log_spline",
        "point_normal",
        "laplace",
        "point_laplace",
        "scale_mixture",
    ):
        shrunk = posterior_from(stream.normals(24)[:, 0], np.ones(24), prior=prior)
        shrunk.interval(), shrunk.local_false_sign_rate()
    for prior in ("normal", "point_normal", "scale_mixture"):
        posterior_from(stream.normals(24)[:, 0], np.ones(24), prior=prior, df=5)
    # so many are summed and interpolated over nodes of a lattice
    posterior_from(stream.normals(20_001)[:, 0], np.ones(20_001), df=5)
    X, groups = stream.normals(60, 1), np.repeat(np.arange(6), 10)
    y = X[:, 0] + stream.normals(60)[:, 0]
    LinearEB("full").fit(X, y, groups=groups)
    LinearEB("full").fit(X, y, groups=[groups // 2, groups])
    crossed = [groups, np.tile(np.arange(4), 15)]
    CrossedEB().fit(X, y, groups=crossed).predict_interval(X, groups=crossed)
    CrossedEB(family="poisson").fit(X, np.round(np.exp(y)), groups=crossed)
    GeneralizedEB("poisson", varying=["intercept"]).fit(X, np.round(np.exp(y)), groups=groups)
    GeneralizedEB("poisson", "full").fit(stream.normals(60, 4), np.round(np.exp(y)), groups=groups)
    with warnings.catch_warnings():  # so few rows do not identify everything
        warnings.simplefilter("ignore")
        for method in ("aghq", "ep"):
            LogisticEB(method=method).fit(X, y > 0, groups=groups).predict(X, groups=groups)
        kinds = np.digitize(y, [-0.5, 0.5])
        AdaMixClassifier(1, n_rounds=3).fit(X, kinds, groups=groups).predict(X, groups=groups)
