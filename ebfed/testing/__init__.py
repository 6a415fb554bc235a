"""Contracts: what every likelihood, prior, channel and estimator must obey, shipped to users.

Each `check_*` takes an instance (and data to try it on) and raises AssertionError with a sentence
if a contract is broken. The package runs them over everything it registers; run them on your own
prior or channel before you trust it. Checks that draw random numbers use a fixed seed and bounds
of five standard errors, a false alarm rate below 1e-6 for each figure checked.
"""

from typing import TYPE_CHECKING

from ebfed.lazily import at_first_use

if TYPE_CHECKING:
    from ebfed.testing.channels import check_channel as check_channel
    from ebfed.testing.estimators import check_estimator_contract as check_estimator_contract
    from ebfed.testing.estimators import check_regression_contract as check_regression_contract
    from ebfed.testing.learners import check_learner_contract as check_learner_contract
    from ebfed.testing.likelihoods import check_likelihood as check_likelihood
    from ebfed.testing.priors import check_prior as check_prior

__getattr__ = at_first_use(__name__)
