"""Where chains run: the group manager, and the local engine (in this process, or in a pool of worker processes)."""

from fedgsp.engine.inline import InlineEngine
from fedgsp.engine.job import Engine, EngineEvent, HopDone, Job, WorkerLost, WorkerSlow
from fedgsp.engine.pool import PoolEngine

__all__ = ["Engine", "EngineEvent", "HopDone", "InlineEngine", "Job", "PoolEngine", "WorkerLost", "WorkerSlow"]
