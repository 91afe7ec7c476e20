"""The one link protocol: node to edge, and edge to control plane."""
