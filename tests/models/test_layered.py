"""Products of clients' rows with large matrices."""

import numpy as np
import pytest

from ebfed.models.layered import multiply

rng = np.random.default_rng(0)


# few rows and many columns; a number of columns that no part divides; many rows; none; one column
@pytest.mark.parametrize(
    ("n", "d", "h"), [(10, 1000, 200), (3, 40, 131), (60, 900, 70), (0, 5, 7), (4, 9, 1)]
)
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_products_do_not_depend_on_other_clients(n, d, h, shared, dtype):
    X = rng.normal(size=(4, n, d)).astype(dtype)
    A = rng.normal(size=(1 if shared else 4, d, h)).astype(dtype)
    product = multiply(X, A)
    assert product.dtype == dtype
    # d roundings of a sum of squares that is about d
    limit = 8 * np.finfo(dtype).eps * d
    np.testing.assert_allclose(
        product, np.einsum("cnd,cdh->cnh", X, np.broadcast_to(A, (4, d, h))), atol=limit
    )
    for i in range(4):
        alone = multiply(X[i : i + 1], A if shared else A[i : i + 1])
        np.testing.assert_array_equal(product[i], alone[0])
