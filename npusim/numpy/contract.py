"""Products of arrays over shared axes, made by the Cube."""

import string
from typing import Any

import jax.numpy as jnp
from jax import Array

from npusim._errors import InputError, message
from npusim.casting import NpuArray
from npusim.casting.storage import source
from npusim.modes import Target
from npusim.numpy.elementwise import multiply
from npusim.numpy.env import DEFAULT, env
from npusim.numpy.reductions import sum as sum_over
from npusim.ops import Accumulate
from npusim.ops import dot_general as cube_dot
from npusim.ops import matmul as cube_matmul


def matmul(
    a: Any,
    b: Any,
    *,
    precision: Any = None,
    preferred_element_type: Any = None,
    dtype: Any = None,
    cube_math_type: int = 0,
    accumulate: Accumulate = "fast",
    target: Target | str = DEFAULT,
    rules: str = "documented",
) -> Array:
    """Multiply matrices; see `npusim.ops.matmul`.

    Shape: that of `jax.numpy.matmul`.

    Special values: those of `npusim.ops.dot_general`.

    Gradient: that of `npusim.ops.dot_general`.

    Args:
        a: array or NpuArray.
        b: array or NpuArray.
        precision: accepted and ignored: it is always the highest.
        preferred_element_type: type of the output, as ``dtype``.
        dtype: type of the output.
        cube_math_type: see `npusim.ops.dot_general`.
        accumulate: likewise.
        target: the chip and the overflow mode.
        rules: as for `add`; the Cube's pairs have a table of their own.

    Raises:
        InputError: shapes that do not fit, or types that the chip's Cube does not take.
        ConversionError: an output type that the result does not become.

    Source: as `npusim.ops.matmul`.

    Example:
        >>> matmul(jnp.ones((2, 3), jnp.int8), jnp.ones(3, jnp.int8))
        Array([3, 3], dtype=int32)
    """
    del precision
    out = preferred_element_type if dtype is None else dtype
    at = env(target, rules)
    return cube_matmul(
        a, b, dtype=out, cube_math_type=cube_math_type, target=at.target, accumulate=accumulate
    )


def dot(
    a: Any,
    b: Any,
    *,
    precision: Any = None,
    preferred_element_type: Any = None,
    cube_math_type: int = 0,
    accumulate: Accumulate = "fast",
    target: Target | str = DEFAULT,
    rules: str = "documented",
) -> Any:
    """Multiply as `jax.numpy.dot`: the last axis of a with the last but one of b.

    Shape: the other axes of a, then those of b; a number multiplies elementwise.

    Special values: those of `npusim.ops.dot_general`.

    Gradient: that of `npusim.ops.dot_general`.

    Args:
        a: array, NpuArray or number.
        b: likewise.
        precision: accepted and ignored.
        preferred_element_type: type of the output.
        cube_math_type: see `npusim.ops.dot_general`; two vectors ignore it.
        accumulate: likewise.
        target: as for `add`.
        rules: as for `add`.

    Raises:
        InputError: types that the chip's Cube does not take, or shapes that do not fit.
        ConversionError: an output type that the result does not become.

    Source: as `npusim.ops.matmul`.

    Example:
        >>> dot(jnp.ones((2, 3), jnp.float16), jnp.ones((3, 1), jnp.float16)).ravel()
        Array([3., 3.], dtype=float16)
    """
    del precision
    at = env(target, rules)
    a, b = source(a)[0], source(b)[0]
    out = preferred_element_type
    if a.ndim == 0 or b.ndim == 0:
        return multiply(a, b, dtype=out, target=at.target, rules=rules)
    options = {"cube_math_type": cube_math_type, "accumulate": accumulate, "target": at.target}
    if b.ndim <= 2:
        return cube_matmul(a, b, dtype=out, **options)
    dims = (((a.ndim - 1,), (b.ndim - 2,)), ((), ()))
    return cube_dot(a, b, dims, preferred_element_type=out, **options)


def _bad(subscripts: str, why: str) -> InputError:
    return InputError(
        message(
            f"subscripts {subscripts!r} ({why})",
            "letters and ... for each operand, separated by commas, and -> with the output's",
            "See jax.numpy.einsum for the notation.",
        )
    )


def _parse(subscripts: str, ranks: list[int]) -> tuple[list[str], str]:
    """Labels of every operand and of the output; those of an ellipsis are spare letters."""
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise _bad(subscripts, f"{len(terms)} terms for {len(ranks)} operands")
    spare = [c for c in string.ascii_letters if c not in text]
    labels: list[str] = []
    longest = 0
    for term, rank in zip(terms, ranks, strict=True):
        count = rank - len(term.replace("...", ""))
        if count < 0 or (count and "..." not in term):
            raise _bad(subscripts, f"{term!r} for an operand of rank {rank}")
        longest = max(longest, count)
        labels.append(term.replace("...", "".join(spare[:count][::-1])))
    hidden = "".join(spare[:longest][::-1])
    if arrow:
        out = right.replace("...", hidden)
    else:
        every = "".join(labels)
        out = hidden + "".join(sorted(c for c in set(every) - set(hidden) if every.count(c) == 1))
    known = set("".join(labels))
    if not all(c in string.ascii_letters for c in (*known, *out)) or set(out) - known:
        raise _bad(subscripts, "an output label that no operand has, or a stray character")
    if len(set(out)) != len(out):
        raise _bad(subscripts, "a label twice in the output")
    return labels, out


def _diagonal(x: Array, labels: str) -> tuple[Array, str]:
    """Every label once: a repeated one means the diagonal of its axes."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            x = jnp.diagonal(x, axis1=first, axis2=second)
            rest = "".join(c for i, c in enumerate(labels) if i not in (first, second))
            labels = rest + label
    return x, labels


def _without(x: Array, labels: str, keep: set[str], options: dict[str, Any]) -> tuple[Array, str]:
    """Sum over the labels that nobody else needs."""
    gone = tuple(i for i, c in enumerate(labels) if c not in keep)
    if not gone:
        return x, labels
    own = source(x)[1]
    total = sum_over(x, gone, own if own.kind != "bool" else None, **options)
    return total, "".join(c for c in labels if c in keep)


def einsum(
    subscripts: str,
    /,
    *operands: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
    cube_math_type: int = 0,
    accumulate: Accumulate = "fast",
    target: Target | str = DEFAULT,
    rules: str = "documented",
) -> Any:
    """Evaluate Einstein's sum, pair by pair from the left, each pair by the Cube.

    A label that stands in one operand alone is summed before, by `sum`; the result of a pair is
    rounded to its output type before the next, as a chain of operators does it.

    Shape: that of `jax.numpy.einsum`.

    Special values: those of `npusim.ops.dot_general`.

    Gradient: that of `npusim.ops.dot_general`.

    Args:
        subscripts: as for `jax.numpy.einsum`; ellipses and repeated labels are taken.
        *operands: arrays.
        precision: accepted and ignored.
        preferred_element_type: type of the last pair's output.
        cube_math_type: see `npusim.ops.dot_general`.
        accumulate: likewise.
        target: as for `add`.
        rules: as for `add`.

    Raises:
        InputError: subscripts that do not fit, or types that the chip's Cube does not take.
        ConversionError: an output type that the result does not become.

    Source: as `npusim.ops.dot_general`.

    Example:
        >>> x = jnp.arange(6, dtype=jnp.float16).reshape(2, 3)
        >>> einsum("ij,kj->ik", x, x)
        Array([[ 5., 14.],
               [14., 50.]], dtype=float16)
    """
    del precision
    at = env(target, rules)
    common = {"target": at.target, "rules": rules}
    given = [source(x)[0] for x in operands]
    labels, out = _parse(subscripts, [x.ndim for x in given])
    sizes: dict[str, int] = {}
    for x, term in zip(given, labels, strict=True):
        for label, size in zip(term, x.shape, strict=True):
            if sizes.setdefault(label, size) == 1:
                sizes[label] = size
            if size not in (1, sizes[label]):
                raise _bad(subscripts, f"sizes {sizes[label]} and {size} of one label")
    arrays: list[tuple[Any, str]] = []
    for x, term in zip(given, labels, strict=True):
        full = tuple(sizes[c] for c in term)
        if not isinstance(x, NpuArray):
            x = jnp.broadcast_to(x, full)
            x, term = _diagonal(x, term)
        arrays.append((x, term))
    result, have = arrays[0]
    for index, (other, term) in enumerate(arrays[1:], start=1):
        later = set(out).union(*(set(rest) for _, rest in arrays[index + 1 :]))
        result, have = _without(result, have, later | set(term), common)
        other, term = _without(other, term, later | set(have), common)
        shared = [c for c in have if c in term]
        batch = [c for c in shared if c in later]
        inner = [c for c in shared if c not in later]
        dims = tuple(
            (tuple(have.index(c) for c in part), tuple(term.index(c) for c in part))
            for part in (inner, batch)
        )
        result = cube_dot(
            result,
            other,
            dims,
            preferred_element_type=preferred_element_type if index == len(arrays) - 1 else None,
            target=at.target,
            cube_math_type=cube_math_type,
            accumulate=accumulate,
        )
        have = "".join(batch) + "".join(c for c in have + term if c not in shared)
    result, have = _without(result, have, set(out), common)
    return jnp.transpose(result, [have.index(c) for c in out])
