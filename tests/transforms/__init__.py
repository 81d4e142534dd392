"""The same bits and types under every transform of JAX, and for formats as data."""
