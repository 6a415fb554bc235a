"""A predictor for every group, learned in rounds: one file per method."""

from ebfed.learning import canaries as canaries  # registers how learners are audited
from ebfed.learning.adaped import AdaPeD, DPAdaPeD
from ebfed.learning.base import Learner
from ebfed.learning.ditto import Ditto
from ebfed.learning.dp_fed_avg import DPFedAvg
from ebfed.learning.fed_avg import FedAvg
from ebfed.learning.fed_bn import FedBN
from ebfed.learning.fed_mutual import FedMutual
from ebfed.learning.fed_prox import FedProx
from ebfed.learning.fed_rep import FedRep
from ebfed.learning.feo2 import FeO2
from ebfed.learning.hierarchical_eb import HierarchicalEB
from ebfed.learning.joint_dp import JointDPSGD
from ebfed.learning.local_only import LocalOnly
from ebfed.learning.per_fed_avg import PerFedAvg
from ebfed.learning.pfedme import PFedMe
from ebfed.learning.ppsgd import PPSGD
from ebfed.learning.privacy import ClientPrivacy
from ebfed.learning.quped import QuPeD
from ebfed.learning.rounds import LearnerRounds
from ebfed.learning.scaffold import Scaffold
from ebfed.learning.schedule import RateSchedule

__all__ = [
    "PPSGD",
    "AdaPeD",
    "ClientPrivacy",
    "DPAdaPeD",
    "DPFedAvg",
    "Ditto",
    "FeO2",
    "FedAvg",
    "FedBN",
    "FedMutual",
    "FedProx",
    "FedRep",
    "HierarchicalEB",
    "JointDPSGD",
    "Learner",
    "LearnerRounds",
    "LocalOnly",
    "PFedMe",
    "PerFedAvg",
    "QuPeD",
    "RateSchedule",
    "Scaffold",
]
