"""Strengths of personalisation with privacy: personal_strengths_private.csv, in some three hours.

`python personal_strengths_private.py [DIR]`; what is finished is kept in DIR.
"""

import sys
from pathlib import Path

import pandas as pd

sys.path.append(str(Path(__file__).parents[2] / "vignettes" / "papers"))
from beyond import personal_strengths

tables = [
    personal_strengths.PersonalStrengthsStudy.run(
        settings=["three60"],
        m=800,
        epsilon=epsilon,
        reps=3,
        keep=sys.argv[1] if len(sys.argv) > 1 else None,
    ).table
    for epsilon in (3.0, 8.0)
]
pd.concat(tables).round(6).to_csv(
    Path(__file__).with_name("personal_strengths_private.csv"), index=False, float_format="%g"
)
