"""Tests, intervals and diagnostics of fitted mixed models."""

from ebfed.inference.contrasts import contrast_tests, term_tests
from ebfed.inference.degrees_of_freedom import inference_of

__all__ = ["contrast_tests", "inference_of", "term_tests"]
