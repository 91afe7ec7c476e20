"""The wiring of each process; the only importer of the reactor beside the ``iop`` command."""
