"""Chains on real clients, over Flower: what is sent, what a site does with it, and the transport beside the server.

Every message to a client starts a new process there, so what it does first is kept small: samples are mapped, not read.
"""
