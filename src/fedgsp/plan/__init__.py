"""Who trains with whom: growth functions, groupers, planners, and how unlike two class distributions are."""

from fedgsp.plan.balanced import Balanced, balanced_within
from fedgsp.plan.divergence import (
    PairSummary,
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
    pairwise_kl,
    summarise_pairs,
)
from fedgsp.plan.greedy_kl import GreedyKL
from fedgsp.plan.groupers import NOBODY, Fixed, Grouper, GroupShape, Random
from fedgsp.plan.growth import MOST_GROUPS, Constant, Exp, Growth, Linear, Log, Singletons
from fedgsp.plan.growth_by_size import OfLength, Proportional
from fedgsp.plan.hand_over import HandOver
from fedgsp.plan.icg import ICG, Clustering, ClusterShape, deal, equal_size_clusters
from fedgsp.plan.mediators import Mediators
from fedgsp.plan.planner import Grouped, Planner, RoundSizes
from fedgsp.plan.privacy import private_counts
from fedgsp.plan.profiling import feature_profiles, quantile_profiles
from fedgsp.plan.sequence import OneChain, Switch
from fedgsp.plan.stratified import Stratified
from fedgsp.plan.superclients import Superclients
from fedgsp.plan.with_pool import WithPool

__all__ = [
    "ICG",
    "MOST_GROUPS",
    "NOBODY",
    "Balanced",
    "ClusterShape",
    "Clustering",
    "Constant",
    "Exp",
    "Fixed",
    "GreedyKL",
    "GroupShape",
    "Grouped",
    "Grouper",
    "Growth",
    "HandOver",
    "Linear",
    "Log",
    "Mediators",
    "OfLength",
    "OneChain",
    "PairSummary",
    "PairwiseSum",
    "Planner",
    "Proportional",
    "Random",
    "RoundSizes",
    "Singletons",
    "Stratified",
    "Superclients",
    "Switch",
    "WithPool",
    "balanced_within",
    "cpd",
    "deal",
    "distributions",
    "emd",
    "equal_size_clusters",
    "feature_profiles",
    "group_sums",
    "js",
    "kl",
    "mean_emd",
    "mmd_squared",
    "objective_z",
    "pairwise_cpd",
    "pairwise_kl",
    "private_counts",
    "quantile_profiles",
    "summarise_pairs",
]
