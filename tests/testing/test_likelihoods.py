"""The contract of likelihoods notices what is wrong."""

import numpy as np
import pytest

from ebfed.likelihoods import Gaussian
from ebfed.testing import check_likelihood


class OtherLocal(Gaussian):
    @property
    def local(self):
        return super().local + 0.5


class ShapeOfLogpdf(Gaussian):
    def logpdf(self, theta):
        return super().logpdf(theta)[:, :1]


class LosesClients(Gaussian):
    def compress(self):
        rows, counts = super().compress()
        return rows, counts - 1


@pytest.mark.parametrize(
    ("likelihood", "sentence"),
    [
        (OtherLocal, "log_peak|Not equal|must maximise"),
        (ShapeOfLogpdf, r"logpdf must have shape \(n, k\)"),
        (LosesClients, "compress must count every client with data"),
    ],
)
def test_faults_of_likelihoods(likelihood, sentence):
    with pytest.raises(AssertionError, match=sentence):
        check_likelihood(likelihood(np.array([[0.0], [1.0]]), np.array([[1.0], [2.0]])))
