"""Operator rows and the Cube."""
