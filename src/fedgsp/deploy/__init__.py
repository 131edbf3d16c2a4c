"""Runs on real clients: what ties the loop to a Flower deployment."""
