"""Exact reference for formats and casts, written from the documents: Fraction and int only.

Nothing below this package imports JAX or the package under test.
"""
