"""IOP, the Inference Operations Platform: run models and command-line agents on the machines a person owns."""
