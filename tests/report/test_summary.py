"""Parameters of populations that are no normal, in tables and summaries."""

import numpy as np
import pytest

import ebfed as eb
from ebfed.priors import Normal

RNG = np.random.default_rng(0)
GROUPS = np.repeat(np.arange(60), 5)
TRUTH = np.where(np.arange(60) % 3, 0, RNG.normal(0, 3, 60))
X = TRUTH[GROUPS] + RNG.normal(size=300)


@pytest.mark.parametrize(
    ("prior", "terms"),
    [
        ("point_normal", ["pi0", "scale"]),
        ("point_laplace", ["pi0", "scale"]),
        ("laplace", ["scale"]),
        ("scale_mixture", ["pi0"]),
        ("npmle", []),
    ],
)
def test_shapes_of_populations(prior, terms):
    est = eb.GaussianEB(prior=prior).fit(X, groups=GROUPS)
    tidy = est.tidy().set_index("term")["estimate"]
    assert tidy.index.tolist() == ["mean", "sd__mean", "sd__Observation", *terms]
    if "scale" in terms:
        assert tidy["scale"] == est.prior_.scale_
    if "pi0" in terms:
        assert 0.4 < tidy["pi0"] < 0.8
    lines = str(est.summary()).splitlines()
    assert all(any(line.startswith(term) for line in lines) for term in terms)
    counted = {"scale_mixture": "Components: ", "npmle": "Atoms: "}
    if prior in counted:
        number = f"{counted[prior]}{len(est.prior_.weights_)};"
        assert any(line.startswith(number) for line in lines)


def test_numbers_of_parameters():
    """Equal columns have noise variances of their own, though these are equal."""
    for columns, prior, expected in [
        (X[:, None], Normal(), 3),
        (np.column_stack([X, X]), Normal(), 6),
        (np.column_stack([X, X]), Normal(covariance="spherical"), 4),
        (np.column_stack([X, 2 * X]), Normal(covariance="spherical"), 4),
        (np.column_stack([X, X]), Normal(variance=1.0), 4),
    ]:
        assert eb.GaussianEB(prior=prior).fit(columns, groups=GROUPS).n_parameters_ == expected
    known = eb.GaussianEB(1.0, prior=Normal()).fit(np.column_stack([X, X]), groups=GROUPS)
    assert known.n_parameters_ == 4
