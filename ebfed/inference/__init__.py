"""Tests, intervals and diagnostics of fitted mixed models."""

from typing import TYPE_CHECKING

from ebfed.lazily import at_first_use

if TYPE_CHECKING:
    from ebfed.inference.contrasts import contrast_tests as contrast_tests
    from ebfed.inference.contrasts import term_tests as term_tests
    from ebfed.inference.degrees_of_freedom import inference_of as inference_of

__getattr__ = at_first_use(__name__)
