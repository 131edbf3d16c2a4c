"""The words every room shares: chains, plans, reports, state, seeds, exact sums and errors. No logic of any method."""

__version__ = "0.2.0"
