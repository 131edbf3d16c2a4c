"""Chains on a Ray cluster: for simulations that outgrow one machine. The only room that knows Ray."""
