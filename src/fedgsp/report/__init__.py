"""What a person looks at: data inspected, pictures of runs and studies. The only room that draws (extra `plot`)."""

from fedgsp.core.callable_module import make_callable

make_callable(__name__, "fedgsp.report.build", "make_report")  # fedgsp.report(...)
