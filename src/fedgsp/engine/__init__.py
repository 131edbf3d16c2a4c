"""Where chains run: one scheduler over transports (this process, worker processes, a Ray cluster, sites over Flower)."""

from fedgsp.engine.base import Engine, WorkerSetup
from fedgsp.engine.messages import EngineEvent, HopDone, WorkerLost, WorkerSlow
from fedgsp.engine.transports.inline import InlineEngine
from fedgsp.engine.transports.processes import ProcessEngine

__all__ = ["Engine", "EngineEvent", "HopDone", "InlineEngine", "ProcessEngine", "WorkerLost", "WorkerSetup", "WorkerSlow"]
