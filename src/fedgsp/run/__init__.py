"""The loop around it all: configuration, the round loop, and a run directory that never loses work."""

from fedgsp.core.callable_module import make_callable

make_callable(__name__, "fedgsp.api", "run_config")  # fedgsp.run(...)
