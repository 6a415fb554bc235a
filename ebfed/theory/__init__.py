"""Risks and bounds in closed form: one file per setting, each under its own name space."""

from ebfed.theory import opt_out
from ebfed.theory.location import (
    bayes_risk,
    binomial_bayes_risk,
    binomial_local_risk,
    binomial_moment_weight,
    binomial_risk,
    binomial_risk_bound,
    hybrid_variance,
    laplace_variance,
    leave_one_out_risk,
    local_risk,
    mean_risk,
    nonparticipant_risk,
    one_bit_variance,
    piecewise_variance,
    quantizer_variance,
    reporting_range,
    shrinkage_weight,
)

__all__ = [
    "bayes_risk",
    "binomial_bayes_risk",
    "binomial_local_risk",
    "binomial_moment_weight",
    "binomial_risk",
    "binomial_risk_bound",
    "hybrid_variance",
    "laplace_variance",
    "leave_one_out_risk",
    "local_risk",
    "mean_risk",
    "nonparticipant_risk",
    "one_bit_variance",
    "opt_out",
    "piecewise_variance",
    "quantizer_variance",
    "reporting_range",
    "shrinkage_weight",
]
