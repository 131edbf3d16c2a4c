"""What happens once before round 1 (rare): augmentation here; shared data and warm-up models fit the same shape."""

from fedgsp.prepare.augment import AugmentMean, AugmentZScore
from fedgsp.prepare.meta import MetaSet
from fedgsp.prepare.preparation import Preparation, Prepared

__all__ = ["AugmentMean", "AugmentZScore", "MetaSet", "Preparation", "Prepared"]
