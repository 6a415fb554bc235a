import matplotlib
import matplotlib.pyplot as plt
import pytest

from ebfed.report import new_axes

matplotlib.use("Agg")


@pytest.fixture
def ax(tmp_path):
    """Axes that are drawn and written after the test, when every warning is an error."""
    open_before = plt.get_fignums()
    (axes,) = new_axes()
    yield axes
    path = tmp_path / "figure.png"
    axes.figure.savefig(path)
    assert path.stat().st_size > 1000
    assert plt.get_fignums() == open_before
