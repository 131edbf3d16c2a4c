"""Chains on real clients, over Flower: what is sent, what a site does with it, and the pump beside the server.

Nothing is imported here: a client's process is started anew for every message, and must not load more than it needs.
"""
