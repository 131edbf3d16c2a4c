"""How tasks reach workers: in this process, worker processes, a Ray cluster, sites over Flower."""
