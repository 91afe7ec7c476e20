"""The ``iop`` command."""
