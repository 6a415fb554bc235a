"""Control variates: their average is shared, whoever takes part, and so the minimum is reached."""

import numpy as np
import pytest

from ebfed.learning import Scaffold
from ebfed.models import Linear

M, ROWS = 12, 10
GROUPS = np.repeat(np.arange(M), ROWS)


@pytest.mark.parametrize("sampling", ["fixed", "poisson"])
def test_the_minimum_of_the_average_loss_is_reached(sampling):
    """Also where each round has another number of clients: c is the mean of all c_i."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=M * ROWS) * (1 + GROUPS % 3)
    y = rng.normal(size=M)[GROUPS] * x + 0.1 * rng.normal(size=M * ROWS)
    design = np.column_stack([x, np.ones(M * ROWS)])
    minimum = np.linalg.lstsq(design, y, rcond=None)[0]  # clients have equally many rows
    fit = Scaffold(
        Linear(),
        n_rounds=400,
        learning_rate=0.05,
        local_steps=5,
        sample_rate=0.5,
        sampling=sampling,
        random_state=0,
    ).fit(x[:, None], y, groups=GROUPS)
    np.testing.assert_allclose(fit.shared_["w"], minimum, atol=1e-6)
    control = fit._memory["own"]["control"].mean(axis=0)
    np.testing.assert_allclose(fit.shared_["c"], control, atol=1e-10)
