"""The edge: the controller of one local group of nodes."""
