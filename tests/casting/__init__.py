"""Casts as users call them, against the vendor tables and the oracle."""
