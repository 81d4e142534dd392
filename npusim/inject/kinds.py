"""Op kinds: the words of a rule's ``ops`` and the primitives each stands for."""

import functools

from npusim.inject import _compat

_ELEMENTWISE = """
    abs acos acosh add add_any asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt ceil clamp cos
    cosh digamma div erf erf_inv erfc exp exp2 expm1 floor igamma igamma_grad_a igammac integer_pow
    lgamma log log1p logistic max min mul neg polygamma pow random_gamma_grad
    regularized_incomplete_beta rem round rsqrt sign sin sinh sqrt square sub tan tanh zeta
"""
_REDUCE = """
    cumlogsumexp cummax cummin cumprod cumsum reduce_max reduce_min reduce_prod reduce_sum
    reduce_window_max reduce_window_min reduce_window_sum select_and_scatter_add
"""
_INDEX = "gather scatter scatter-add scatter-max scatter-min scatter-mul scatter-sub"

_KINDS: dict[str, tuple[str, ...]] = {
    "matmul": (_compat.MATMUL, _compat.RAGGED),
    "conv": (_compat.CONV,),
    "elementwise": tuple(_ELEMENTWISE.split()),
    "reduce": tuple(_REDUCE.split()),
    "convert": (_compat.CONVERT,),
    "index": tuple(_INDEX.split()),
}
# Comparisons, selects and what only moves values (reshape, slice) round nothing and are no kind.

OP_KINDS: dict[str, tuple[str, ...]] = {
    **_KINDS,
    "all": tuple(name for members in _KINDS.values() for name in members),
}
"""Op kinds of rules and the primitives they stand for. A new kind is a row."""

BOUNDARY = "boundary"
"""The word for a whole scope: what enters and leaves it is cast, its inside is left alone."""

CUBE_KINDS = ("matmul", "conv")
"""Kinds whose operations are listed and watched even where no rule speaks of them."""

_CONTROL = ("scan", "while", "cond", "jit", "remat2", "custom_jvp_call", "custom_vjp_call", "call")


@functools.cache
def kind_of(primitive: str) -> str:
    """Return the op kind that a primitive belongs to, or its own name.

    Example:
        >>> kind_of("tanh"), kind_of("dot_general"), kind_of("fft")
        ('elementwise', 'matmul', 'fft')
    """
    return next((kind for kind, members in _KINDS.items() if primitive in members), primitive)


@functools.cache
def known_primitives() -> frozenset[str]:
    """Return the names of the primitives that a rule may speak of."""
    return frozenset(_compat.primitive_names() - set(_CONTROL)) | frozenset(OP_KINDS["all"])
