"""Tests, intervals and diagnostics of fitted mixed models."""

from typing import TYPE_CHECKING

from ebfed.lazily import at_first_use

if TYPE_CHECKING:
    from ebfed.inference.contrasts import contrast_tests, term_tests
    from ebfed.inference.degrees_of_freedom import inference_of

__all__ = ["contrast_tests", "inference_of", "term_tests"]

__getattr__ = at_first_use(__name__)
