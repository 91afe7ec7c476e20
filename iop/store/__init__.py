"""History and the record of runs: the only importer of SQLAlchemy."""
