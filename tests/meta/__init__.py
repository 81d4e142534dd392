"""Planted faults: the suite has to fail."""
