"""The fast path of local training: the same SGD at the same numbers, without a framework between two steps."""

from fedgsp.fast.choose import PLAIN, Kernel, Mode, Obstacles, candidates
from fedgsp.fast.compiled import Step
from fedgsp.fast.fused import FusedNet
from fedgsp.fast.lazy import lazy_linears

__all__ = ["PLAIN", "FusedNet", "Kernel", "Mode", "Obstacles", "Step", "candidates", "lazy_linears"]
