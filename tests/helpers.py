"""What tests of bits share: comparing words, and telling what differs."""

import jax
import numpy as np

from npusim.numerics import words

SHOWN = 20


def host_words(x) -> np.ndarray:
    """The unsigned words of an array, one an element; a complex number as (real, imaginary)."""
    if jax.numpy.issubdtype(x.dtype, np.complexfloating):
        x = jax.numpy.stack([jax.numpy.real(x), jax.numpy.imag(x)], axis=-1)
    return np.asarray(words.as_words(jax.numpy.asarray(x)))


def same_words(inputs, got, want, what, *, nan_from=None):
    """Fail, with input bits, got and want of at most 20 elements, unless all words are equal.

    Args:
        inputs: unsigned words that went in, in the shape of the results (or broadcastable to it).
        got: unsigned words.
        want: unsigned words.
        what: says which cast it was.
        nan_from: smallest magnitude word that is NaN: from there on, words count as one class.
    """
    inputs, got, want = (np.asarray(a) for a in (inputs, got, want))
    assert got.shape == want.shape, f"{what}: shape {got.shape}, want {want.shape}"
    assert got.dtype == want.dtype, f"{what}: dtype {got.dtype}, want {want.dtype}"
    differ = got != want
    if nan_from is not None:
        kind = got.dtype.type
        magnitude = kind(np.iinfo(kind).max >> 1)
        differ &= ~(((got & magnitude) >= nan_from) & ((want & magnitude) >= nan_from))
    if not differ.any():
        return
    inputs = np.broadcast_to(inputs, got.shape)
    bad = np.argwhere(differ)
    lines = [
        f"  input {inputs[tuple(at)]:#x}  got {got[tuple(at)]:#x}  want {want[tuple(at)]:#x}"
        for at in bad[:SHOWN]
    ]
    paste = ", ".join(f"{inputs[tuple(at)]:#x}" for at in bad[:SHOWN])
    raise AssertionError(
        "\n".join([f"{what}: {len(bad)} of {got.size} differ", *lines, f"  inputs: [{paste}]"])
    )


def smallest_nan(dtype) -> int | None:
    """The smallest magnitude word that is NaN in a 16, 32 or 64-bit float type."""
    inf = {"float16": 0x7C00, "bfloat16": 0x7F80, "float32": 0x7F80_0000, "float64": 0x7FF << 52}
    return inf[dtype.name] + 1 if dtype.name in inf else None


def same_arrays(got, want, what, inputs=None, *, nan_class=False):
    """Fail unless two pytrees of arrays have the same structure, types and bits."""
    got_leaves, got_tree = jax.tree.flatten(got)
    want_leaves, want_tree = jax.tree.flatten(want)
    assert got_tree == want_tree, f"{what}: {got_tree}, want {want_tree}"
    for a, b in zip(got_leaves, want_leaves, strict=True):
        assert a.dtype == b.dtype, f"{what}: {a.dtype}, want {b.dtype}"
        assert a.shape == b.shape, f"{what}: {a.shape}, want {b.shape}"
        given = host_words(b) if inputs is None else np.asarray(inputs)
        nan_from = smallest_nan(b.dtype) if nan_class else None
        same_words(given, host_words(a), host_words(b), what, nan_from=nan_from)
