"""`fedgsp node`: a Flower node that stays warm, so that a hop costs its training and its bytes and little else."""
