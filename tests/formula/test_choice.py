"""Which estimator a formula is of."""

import pytest

from ebfed.formula.choice import model_of_columns


@pytest.mark.parametrize(
    ("terms", "varying"),
    [
        ("(1 + x | g)", ["intercept", "x"]),
        ("(1 | g) + (0 + x + z | g)", [["intercept"], ["x", "z"]]),
    ],
)
@pytest.mark.parametrize("family", ["gaussian", "binomial", "poisson"])
def test_correlated_terms_of_nodes(terms, varying, family):
    """Of binary rows they were refused at nodes, where frames had them."""
    estimator, rows = model_of_columns(f"y ~ x + z + {terms}", family)
    assert estimator.covariance == "full"
    assert estimator.varying == varying
    assert rows == {"groups": "g", "X": ["x", "z"], "y": "y"}
