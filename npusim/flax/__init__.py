"""Thin adapters for Flax: `linen` and `nnx`. Each imports Flax when it is imported itself."""
