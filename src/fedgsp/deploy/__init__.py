"""Real clients: what ties the loop to a Flower deployment, and all that operating one needs."""
