"""Compiled loops: every numba function of the package and nothing else.

A kernel is a module-level function on contiguous arrays and scalars. It keeps no random state (a
draw is a function of the number it is given), holds no objects and does only what its docstring
says; each has a NumPy reference of a few lines in ``tests/kernels``. Kernels compile at their first
call and are cached on disk from then on (``ebfed warm`` fills the cache).
"""

from typing import TYPE_CHECKING

from ebfed.lazily import at_first_use

if TYPE_CHECKING:
    from ebfed.kernels.covariances import bounded_entries as bounded_entries
    from ebfed.kernels.covariances import covariance_root as covariance_root
    from ebfed.kernels.covariances import least_covariance as least_covariance
    from ebfed.kernels.covariances import quasi_newton_step as quasi_newton_step
    from ebfed.kernels.covariances import scoring_step as scoring_step
    from ebfed.kernels.crossed import block_products as block_products
    from ebfed.kernels.crossed import level_inverses as level_inverses
    from ebfed.kernels.crossed import predictor_rows as predictor_rows
    from ebfed.kernels.crossed import row_products as row_products
    from ebfed.kernels.crossed import shape_rows as shape_rows
    from ebfed.kernels.crossed import subtract_products as subtract_products
    from ebfed.kernels.crossed import table_times as table_times
    from ebfed.kernels.crossed import table_totals as table_totals
    from ebfed.kernels.crossed import twist_rows as twist_rows
    from ebfed.kernels.factors import triangular_factors as triangular_factors
    from ebfed.kernels.factors import whiten as whiten
    from ebfed.kernels.factors import with_column as with_column
    from ebfed.kernels.groups import add_cells as add_cells
    from ebfed.kernels.groups import add_entries as add_entries
    from ebfed.kernels.groups import add_rows as add_rows
    from ebfed.kernels.groups import number_below as number_below
    from ebfed.kernels.groups import number_more as number_more
    from ebfed.kernels.groups import order_distinct as order_distinct
    from ebfed.kernels.groups import products_of_clients as products_of_clients
    from ebfed.kernels.groups import summarise_rows as summarise_rows
    from ebfed.kernels.groups import sums_of_clients as sums_of_clients
    from ebfed.kernels.interpolation import interpolating_weights as interpolating_weights
    from ebfed.kernels.joint import joint_modes as joint_modes
    from ebfed.kernels.lattice import lattice_errors as lattice_errors
    from ebfed.kernels.lattice import lattice_sums as lattice_sums
    from ebfed.kernels.lattice import lattice_values as lattice_values
    from ebfed.kernels.logistic import expectation_propagation as expectation_propagation
    from ebfed.kernels.logistic import log_logistic_normal as log_logistic_normal
    from ebfed.kernels.mixed import curvature_in_covariance as curvature_in_covariance
    from ebfed.kernels.mixed import least_squares as least_squares
    from ebfed.kernels.mixed import slope_in_covariance as slope_in_covariance
    from ebfed.kernels.mixed import whitened_products as whitened_products
    from ebfed.kernels.modes import laplace as laplace
    from ebfed.kernels.moments import weighted_moments as weighted_moments
    from ebfed.kernels.nested import below as below
    from ebfed.kernels.nested import nested_products as nested_products
    from ebfed.kernels.nested import stacked_factors as stacked_factors
    from ebfed.kernels.networks import cross_entropy as cross_entropy
    from ebfed.kernels.networks import gate as gate
    from ebfed.kernels.networks import move_down as move_down
    from ebfed.kernels.networks import rectify as rectify
    from ebfed.kernels.networks import scatter_rows as scatter_rows
    from ebfed.kernels.networks import step_down as step_down
    from ebfed.kernels.overdispersed import negative_binomial_gamma as negative_binomial_gamma
    from ebfed.kernels.posteriors import mixture_below as mixture_below
    from ebfed.kernels.posteriors import mixture_quantiles as mixture_quantiles
    from ebfed.kernels.quadrature import quadrature_derivatives as quadrature_derivatives
    from ebfed.kernels.quadrature import quadrature_moments as quadrature_moments
    from ebfed.kernels.rates import rate_derivatives as rate_derivatives
    from ebfed.kernels.rising import dirichlet_profiles as dirichlet_profiles
    from ebfed.kernels.rising import dirichlet_values as dirichlet_values
    from ebfed.kernels.rising import negative_binomial_profiles as negative_binomial_profiles
    from ebfed.kernels.rising import negative_binomial_values as negative_binomial_values
    from ebfed.kernels.rising import rising_sums as rising_sums
    from ebfed.kernels.shrinkage import shrink as shrink
    from ebfed.kernels.slabs import gains_of_weights as gains_of_weights
    from ebfed.kernels.slabs import point_and_slab as point_and_slab
    from ebfed.kernels.softmax import laplace_softmax as laplace_softmax
    from ebfed.kernels.softmax import softmax_normal as softmax_normal
    from ebfed.kernels.sparse import count_fill as count_fill
    from ebfed.kernels.sparse import entry_places as entry_places
    from ebfed.kernels.sparse import factor_entries as factor_entries
    from ebfed.kernels.sparse import fill_rows as fill_rows
    from ebfed.kernels.sparse import inverse_entries as inverse_entries
    from ebfed.kernels.sparse import multiply_entries as multiply_entries
    from ebfed.kernels.sparse import products_among as products_among
    from ebfed.kernels.sparse import solve_backward as solve_backward
    from ebfed.kernels.sparse import solve_forward as solve_forward
    from ebfed.kernels.sparse import subtract_among as subtract_among
    from ebfed.kernels.streams import add_normals as add_normals
    from ebfed.kernels.streams import fill_bernoulli as fill_bernoulli
    from ebfed.kernels.streams import fill_normals as fill_normals
    from ebfed.kernels.streams import fill_uniforms as fill_uniforms
    from ebfed.kernels.student import student_blurred as student_blurred
    from ebfed.kernels.student import student_log_density as student_log_density
    from ebfed.kernels.student import student_moments as student_moments
    from ebfed.kernels.student import student_normal as student_normal
    from ebfed.kernels.student import student_normals as student_normals
    from ebfed.kernels.student import student_sizes as student_sizes
    from ebfed.kernels.student import student_slab as student_slab
    from ebfed.kernels.sums import add_shortened as add_shortened
    from ebfed.kernels.sums import column_sums as column_sums
    from ebfed.kernels.sums import largest_size as largest_size
    from ebfed.kernels.sums import shorten_digits as shorten_digits
    from ebfed.kernels.tallies import bell_shapes as bell_shapes
    from ebfed.kernels.tallies import gaussian_tally as gaussian_tally
    from ebfed.kernels.tallies import pick_members as pick_members
    from ebfed.kernels.trigamma import inverse_trigamma as inverse_trigamma

__getattr__ = at_first_use(__name__)
