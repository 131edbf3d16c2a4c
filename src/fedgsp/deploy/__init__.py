"""Real clients: the loop behind Flower's server, and all that operating such a deployment needs."""
