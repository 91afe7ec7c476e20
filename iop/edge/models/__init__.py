"""The model APIs: what a client asks in its own API becomes a run, and what a run does is told in that API."""
