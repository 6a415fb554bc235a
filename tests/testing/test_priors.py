"""The contract of priors notices what is wrong."""

import numpy as np
import pytest

from ebfed.likelihoods import Gaussian
from ebfed.priors import Normal
from ebfed.testing import check_prior

LIKELIHOOD = Gaussian(np.random.default_rng(0).normal(size=(50, 1)), np.full((50, 1), 0.5))


class DependsOnOrder(Normal):
    def fit(self, likelihood, covariates=None, **options):
        super().fit(likelihood, covariates, **options)
        self.mean_ = self.mean_ + likelihood.local[0]
        return self


class WideDraws(Normal):
    def sample(self, size, random_state=None, **options):
        draws = super().sample(size, random_state, **options)
        return self.mean_ + 1.1 * (draws - self.mean_)


class ReturnsNothing(Normal):
    def fit(self, likelihood, covariates=None, **options):
        super().fit(likelihood, covariates, **options)


@pytest.mark.parametrize(
    ("prior", "sentence"),
    [
        (DependsOnOrder, "order must not matter"),
        (WideDraws, "draws must have the fitted variance"),
        (ReturnsNothing, "fit must return self"),
    ],
)
def test_faults_of_priors(prior, sentence):
    with pytest.raises(AssertionError, match=sentence):
        check_prior(prior(), LIKELIHOOD)
