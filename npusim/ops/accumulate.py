"""Products summed in a stated order: the contraction behind every Cube operator.

``fast`` leaves the order to XLA. The ordered forms are sums of elementwise products, in an order
that no compiler pass changes: XLA does not reassociate floats, and a contraction of multiply and
add cannot be seen where the product is exact, which it is for operands of at most 12 significant
bits (half precision, HF32 and everything narrower).
"""

import functools
import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import Array, lax

from npusim._errors import UnknownNameError, message

Accumulate = Literal["fast", "sequential"] | tuple[Literal["blocked"], int]
"""How the products of a matrix multiplication are summed."""

HIGHEST = lax.Precision.HIGHEST
_CHUNK = 16  # products of one fused loop: fewer re-read the accumulator, more only compile longer

Dims = tuple[tuple[tuple[int, ...], tuple[int, ...]], tuple[tuple[int, ...], tuple[int, ...]]]


def check_accumulate(accumulate: Any) -> Accumulate:
    """Return ``accumulate`` if it names a form; a list from a configuration file becomes a tuple.

    Raises:
        UnknownNameError: it does not.

    Example:
        >>> check_accumulate(["blocked", 16])
        ('blocked', 16)
    """
    if accumulate in ("fast", "sequential"):
        return accumulate
    if isinstance(accumulate, list | tuple) and len(accumulate) == 2:
        name, k = accumulate
        if name == "blocked" and isinstance(k, int) and not isinstance(k, bool) and k > 0:
            return ("blocked", k)
    raise UnknownNameError(
        message(
            f"accumulate={accumulate!r}",
            "'fast', 'sequential', ('blocked', k) with a positive integer k",
            "Pass one of these; 'fast' is the default.",
        )
    )


def normal_dims(dimension_numbers: Any) -> Dims:
    """Dimension numbers of lax.dot_general as nested tuples of int."""
    (lc, rc), (lb, rb) = dimension_numbers
    a, b, c, d = (tuple(int(i) for i in part) for part in (lc, rc, lb, rb))
    return ((a, b), (c, d))


@functools.partial(jax.custom_jvp, nondiff_argnums=(2, 3))
def ordered_dot(lhs: Array, rhs: Array, dims: Dims, accumulate: Accumulate) -> Array:
    """Return the contraction of float32 operands, summed in the order that is asked for.

    ``sequential``: ``acc = acc + lhs[k] * rhs[k]`` for k = 0, 1, ..., every step rounded to
    float32; several contracted axes count in the order of the dimension numbers. ``("blocked",
    k)``: the products of each k are summed so from zero, then the block is added to the sum.

    Shape: that of `jax.lax.dot_general`.

    Special values: those of float32 arithmetic; subnormals follow the backend.

    Gradient: the products of the derivative run in the fast form.

    Source: none: the Cube's own order is undocumented, these are npusim's.

    Example:
        >>> x = jnp.array([2.0**24, 1.0, 1.0])
        >>> dims = normal_dims((((0,), (0,)), ((), ())))
        >>> ordered_dot(x, jnp.ones(3), dims, "sequential")
        Array(1.6777216e+07, dtype=float32)
    """
    if accumulate == "fast":
        return lax.dot_general(lhs, rhs, dims, precision=HIGHEST)
    return _ordered(lhs, rhs, dims, accumulate)


@ordered_dot.defjvp
def _ordered_dot_jvp(dims: Dims, accumulate: Accumulate, primals: Any, tangents: Any):
    (lhs, rhs), (dl, dr) = primals, tangents
    fast = functools.partial(lax.dot_general, dimension_numbers=dims, precision=HIGHEST)
    return ordered_dot(lhs, rhs, dims, accumulate), fast(dl, rhs) + fast(lhs, dr)


def _ordered(lhs: Array, rhs: Array, dims: Dims, accumulate: Accumulate) -> Array:
    (lc, rc), (lb, rb) = dims
    left = [i for i in range(lhs.ndim) if i not in (*lc, *lb)]
    right = [i for i in range(rhs.ndim) if i not in (*rc, *rb)]
    batch = [lhs.shape[i] for i in lb]
    shape = [*batch, *(lhs.shape[i] for i in left), *(rhs.shape[i] for i in right)]
    depth = math.prod(lhs.shape[i] for i in lc)
    if 0 in (*shape, depth):
        return jnp.zeros(shape, jnp.float32)
    a = lhs.transpose(*lc, *lb, *left).reshape(depth, math.prod(batch), -1)
    b = rhs.transpose(*rc, *rb, *right).reshape(depth, math.prod(batch), -1)
    zero = jnp.zeros((a.shape[1], a.shape[2], b.shape[2]), jnp.float32)
    if accumulate == "sequential":
        out = _running(zero, *_split(a, b, min(_CHUNK, depth)))
    else:
        block = min(int(accumulate[1]), depth)
        a, b = _split(a, b, block)

        def add_block(acc: Array, pair: tuple[Array, Array]) -> tuple[Array, None]:
            return acc + _running(zero, *_split(*pair, min(_CHUNK, block))), None

        out, _ = lax.scan(add_block, zero, (a, b))
    return out.reshape(shape)


def _split(a: Array, b: Array, size: int) -> tuple[Array, Array]:
    """Leading axis in groups; the zeros that fill the last one add nothing."""
    groups = -(-a.shape[0] // size)
    fill = groups * size - a.shape[0]
    pads = ((0, fill), (0, 0), (0, 0))
    if fill:
        a, b = jnp.pad(a, pads), jnp.pad(b, pads)
    return a.reshape(groups, size, *a.shape[1:]), b.reshape(groups, size, *b.shape[1:])


def _running(start: Array, a: Array, b: Array) -> Array:
    """``start`` plus the products of all groups, one after the other."""

    def add_group(acc: Array, pair: tuple[Array, Array]) -> tuple[Array, None]:
        x, y = pair
        for k in range(x.shape[0]):
            acc = acc + x[k, :, :, None] * y[k, :, None, :]
        return acc, None

    if a.shape[0] == 1:
        return add_group(start, (a[0], b[0]))[0]
    return lax.scan(add_group, start, (a, b))[0]
