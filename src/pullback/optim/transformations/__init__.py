"""What is put around a rule: clipping, averaging, masking, conditions."""
