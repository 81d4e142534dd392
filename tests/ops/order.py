"""Matrix products in a stated order, one float32 operation at a time, in NumPy."""

import numpy as np


def running(a, b, start=None):
    """(m, k) times (k, n): products added one after the other."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float32) if start is None else start
    for k in range(a.shape[1]):
        total = total + a[:, k, None] * b[None, k]
    return total


def blocked(a, b, size):
    """Blocks of ``size`` products, each summed from zero, then added one after the other."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(0, a.shape[1], size):
        total = total + running(a[:, k : k + size], b[k : k + size])
    return total


def ordered(a, b, accumulate):
    """The product in the order that ``accumulate`` names."""
    return running(a, b) if accumulate == "sequential" else blocked(a, b, accumulate[1])
