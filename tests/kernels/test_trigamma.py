"""The inverse of the trigamma function."""

import numpy as np
from scipy.special import polygamma

from ebfed.kernels import inverse_trigamma


def test_inverse_trigamma():
    x = np.geomspace(1e-3, 1e14, 200)
    # SciPy's own trigamma is exact to some rounding errors
    np.testing.assert_allclose(inverse_trigamma(polygamma(1, x)), x, rtol=1e-13)
