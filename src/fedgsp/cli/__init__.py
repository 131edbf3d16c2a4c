"""The command line: thin commands, no logic of their own."""
