"""What happens once before round 1 (rare): augmentation, shared data, a warm-up model, a pool at the server, seeds."""

from fedgsp.prepare.augment import AugmentMean, AugmentZScore
from fedgsp.prepare.data_sharing import ShareData
from fedgsp.prepare.faug import FAugGAN, FAugOversample
from fedgsp.prepare.meta import MetaSet
from fedgsp.prepare.pool import PoolData
from fedgsp.prepare.preparation import Preparation, Prepared, WarmUp
from fedgsp.prepare.preparation_cache import Once

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
]
