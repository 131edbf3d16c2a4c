"""Readers: one file for each kind of source, and what they share. Each ends in `data.assemble.federate`."""
