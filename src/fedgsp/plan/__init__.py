"""Who trains with whom: growth functions, groupers, planners, and how unlike two class distributions are."""

from fedgsp.plan.divergence import (
    PairwiseSum,
    cpd,
    distributions,
    emd,
    group_sums,
    js,
    kl,
    mean_emd,
    mmd_squared,
    objective_z,
    pairwise_cpd,
)
from fedgsp.plan.greedy_kl import GreedyKL
from fedgsp.plan.groupers import NOBODY, Fitted, Fixed, Grouper, GroupEstimator, GroupShape, Random
from fedgsp.plan.growth import MOST_GROUPS, Constant, Exp, Growth, Linear, Log, Singletons
from fedgsp.plan.icg import ICG, Clustering, ClusterShape, deal, equal_size_clusters
from fedgsp.plan.mediators import Mediators
from fedgsp.plan.planner import Grouped, Planner, Schedule

__all__ = [
    "ICG",
    "MOST_GROUPS",
    "NOBODY",
    "ClusterShape",
    "Clustering",
    "Constant",
    "Exp",
    "Fitted",
    "Fixed",
    "GreedyKL",
    "GroupEstimator",
    "GroupShape",
    "Grouped",
    "Grouper",
    "Growth",
    "Linear",
    "Log",
    "Mediators",
    "PairwiseSum",
    "Planner",
    "Random",
    "Schedule",
    "Singletons",
    "cpd",
    "deal",
    "distributions",
    "emd",
    "equal_size_clusters",
    "group_sums",
    "js",
    "kl",
    "mean_emd",
    "mmd_squared",
    "objective_z",
    "pairwise_cpd",
]
