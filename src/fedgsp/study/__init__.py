"""Studies: many runs that answer one question. Each unit is a run directory, so a study can be stopped and gone on with."""

from fedgsp.core.callable_module import make_callable

make_callable(__name__, "fedgsp.study.paper.conduct", "study")  # fedgsp.study(...)
