"""The picture of two groups."""

import numpy as np

import ebfed as eb


def test_curves_are_those_of_the_result():
    rng = np.random.default_rng(0)
    z = rng.normal(size=2000)
    z[:100] += 4
    result = eb.two_groups(z)
    ax = result.plot(eb.report.new_axes()[0])
    everything, null, marks = ax.get_lines()
    np.testing.assert_array_equal(everything.get_ydata(), result.density(everything.get_xdata()))
    expected = result.p0 * result.null_density(null.get_xdata())
    np.testing.assert_array_equal(null.get_ydata(), expected)
    assert len(marks.get_xdata()) == len(result.select(0.05))
    assert ax.get_title(loc="left").startswith("p0 = 0.9")


def test_no_marks_without_discoveries():
    z = np.random.default_rng(1).normal(size=1000)
    ax = eb.report.plot_two_groups(eb.two_groups(z, "theoretical"), ax=eb.report.new_axes()[0])
    assert len(ax.get_lines()) == 2
