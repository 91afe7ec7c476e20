"""HTTP to model backends: Twisted's Agent under our caps and deadlines, and the pure readers of what comes back."""
