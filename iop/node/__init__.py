"""The node: the executor on one machine."""
