"""Contracts: what every likelihood, prior, channel and estimator must obey, shipped to users.

Each `check_*` takes an instance (and data to try it on) and raises AssertionError with a sentence
if a contract is broken. The package runs them over everything it registers; run them on your own
prior or channel before you trust it. Checks that draw random numbers use a fixed seed and bounds
of five standard errors, a false alarm rate below 1e-6 for each figure checked.
"""

from ebfed.testing.channels import check_channel
from ebfed.testing.estimators import check_estimator_contract, check_regression_contract
from ebfed.testing.learners import check_learner_contract
from ebfed.testing.likelihoods import check_likelihood
from ebfed.testing.priors import check_prior

__all__ = [
    "check_channel",
    "check_estimator_contract",
    "check_learner_contract",
    "check_likelihood",
    "check_prior",
    "check_regression_contract",
]
