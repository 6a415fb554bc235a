"""One population, 100,000 estimates of unequal precision, for the maximum likelihood of R.

The data are Weyl sequences, not draws, so that they are the same everywhere and need not be stored.
Run as a script, this writes them where `npmle.R` reads them, and `npmle.csv` is what that prints:

    python npmle.py
"""

import subprocess
import tempfile
from pathlib import Path

import numpy as np
from scipy.special import ndtri


def data(m=100_000):
    """Estimates and standard errors: 60 % of parameters are 0, the others N(0, 2**2)."""
    i = np.arange(1, m + 1)
    pick, place, noise, size = (i * np.sqrt(root) % 1 for root in (2, 3, 5, 7))
    theta = np.where(pick < 0.6, 0.0, 2 * ndtri(place))
    errors = 0.3 + 0.7 * size
    return theta + errors * ndtri(noise), errors


def grid(x):
    """Return the 200 atoms of the npmle."""
    return np.linspace(x.min(), x.max(), 200)


if __name__ == "__main__":
    here = Path(__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        x, s = data()
        np.savetxt(f"{folder}/data.csv", np.column_stack([x, s]), delimiter=",", fmt="%.17g")
        np.savetxt(f"{folder}/grid.csv", grid(x), fmt="%.17g")
        out = subprocess.run(
            ["Rscript", here / "npmle.R", folder], check=True, capture_output=True, text=True
        )
    (here / "npmle.csv").write_text(out.stdout)
