"""Compiled loops: every numba function of the package and nothing else.

A kernel is a module-level function on contiguous arrays and scalars. It keeps no random state (a
draw is a function of the number it is given), holds no objects and does only what its docstring
says; each has a NumPy reference of a few lines in ``tests/kernels``. Kernels compile at their first
call and are cached on disk from then on (``ebfed warm`` fills the cache).
"""

from typing import TYPE_CHECKING

from ebfed.lazily import at_first_use

if TYPE_CHECKING:
    from ebfed.kernels.covariances import (
        bounded_entries,
        covariance_root,
        least_covariance,
        quasi_newton_step,
        scoring_step,
    )
    from ebfed.kernels.crossed import (
        canonical_rows,
        combination_variances,
        row_products,
        subtract_products,
    )
    from ebfed.kernels.factors import (
        triangular_factors,
        whiten,
        with_column,
    )
    from ebfed.kernels.groups import (
        add_entries,
        add_rows,
        number_below,
        number_more,
        order_distinct,
        products_of_clients,
        summarise_rows,
        sums_of_clients,
    )
    from ebfed.kernels.interpolation import interpolating_weights
    from ebfed.kernels.joint import joint_modes
    from ebfed.kernels.lattice import lattice_errors, lattice_sums, lattice_values
    from ebfed.kernels.logistic import (
        expectation_propagation,
        importance,
        log_logistic_normal,
    )
    from ebfed.kernels.mixed import (
        curvature_in_covariance,
        least_squares,
        slope_in_covariance,
        whitened_products,
    )
    from ebfed.kernels.modes import laplace
    from ebfed.kernels.nested import below, nested_products, stacked_factors
    from ebfed.kernels.networks import (
        cross_entropy,
        gate,
        move_down,
        rectify,
        scatter_rows,
        step_down,
    )
    from ebfed.kernels.overdispersed import negative_binomial_gamma
    from ebfed.kernels.posteriors import mixture_below, mixture_quantiles
    from ebfed.kernels.quadrature import quadrature_derivatives, quadrature_moments
    from ebfed.kernels.rates import rate_derivatives
    from ebfed.kernels.rising import (
        beta_binomial_profiles,
        beta_binomial_values,
        dirichlet_profile,
        negative_binomial_profiles,
        negative_binomial_values,
        rising_sums,
    )
    from ebfed.kernels.slabs import laplace_slab, normal_slab
    from ebfed.kernels.softmax import laplace_softmax, softmax_normal
    from ebfed.kernels.streams import add_normals, fill_bernoulli, fill_normals, fill_uniforms
    from ebfed.kernels.student import (
        student_blurred,
        student_log_density,
        student_moments,
        student_normal,
        student_normals,
        student_sizes,
        student_slab,
    )
    from ebfed.kernels.sums import add_shortened, column_sums, largest_size, shorten_digits
    from ebfed.kernels.tallies import count_members, gaussian_tally
    from ebfed.kernels.trigamma import inverse_trigamma

__all__ = [
    "add_entries",
    "add_normals",
    "add_rows",
    "add_shortened",
    "below",
    "beta_binomial_profiles",
    "beta_binomial_values",
    "bounded_entries",
    "canonical_rows",
    "column_sums",
    "combination_variances",
    "count_members",
    "covariance_root",
    "cross_entropy",
    "curvature_in_covariance",
    "dirichlet_profile",
    "expectation_propagation",
    "fill_bernoulli",
    "fill_normals",
    "fill_uniforms",
    "gate",
    "gaussian_tally",
    "importance",
    "interpolating_weights",
    "inverse_trigamma",
    "joint_modes",
    "laplace",
    "laplace_slab",
    "laplace_softmax",
    "largest_size",
    "lattice_errors",
    "lattice_sums",
    "lattice_values",
    "least_covariance",
    "least_squares",
    "log_logistic_normal",
    "mixture_below",
    "mixture_quantiles",
    "move_down",
    "negative_binomial_gamma",
    "negative_binomial_profiles",
    "negative_binomial_values",
    "nested_products",
    "normal_slab",
    "number_below",
    "number_more",
    "order_distinct",
    "products_of_clients",
    "quadrature_derivatives",
    "quadrature_moments",
    "quasi_newton_step",
    "rate_derivatives",
    "rectify",
    "rising_sums",
    "row_products",
    "scatter_rows",
    "scoring_step",
    "shorten_digits",
    "slope_in_covariance",
    "softmax_normal",
    "stacked_factors",
    "step_down",
    "student_blurred",
    "student_log_density",
    "student_moments",
    "student_normal",
    "student_normals",
    "student_sizes",
    "student_slab",
    "subtract_products",
    "summarise_rows",
    "sums_of_clients",
    "triangular_factors",
    "whiten",
    "whitened_products",
    "with_column",
]

__getattr__ = at_first_use(__name__)
