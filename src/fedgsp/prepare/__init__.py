"""What happens once before round 1 (rare): augmentation, shared data, a warm-up model, a pool at the server, seeds."""

from fedgsp.prepare.augment import AugmentMean, AugmentZScore
from fedgsp.prepare.faug import FAugGAN, FAugOversample
from fedgsp.prepare.meta import MetaSet
from fedgsp.prepare.once import Once
from fedgsp.prepare.pool import PoolData
from fedgsp.prepare.preparation import Preparation, Prepared, WarmUp
from fedgsp.prepare.share import ShareData
from fedgsp.prepare.warm_up import warmed_up

__all__ = [
    "AugmentMean",
    "AugmentZScore",
    "FAugGAN",
    "FAugOversample",
    "MetaSet",
    "Once",
    "PoolData",
    "Preparation",
    "Prepared",
    "ShareData",
    "WarmUp",
    "warmed_up",
]
