"""jax.numpy's names with Ascend's rules: derive, cast, compute, round once, convert.

    >>> import jax.numpy as jnp, npusim.numpy as nnp
    >>> nnp.add(jnp.array([100], jnp.int8), jnp.array([200], jnp.uint8))
    Array([300], dtype=int16)

Every function takes ``target`` (chip, entry point of the operand casts, overflow mode; a chip's
name means its aclnn entry point) and ``rules`` (the derivation table). `bind` fixes both:

    >>> a2 = nnp.bind("A2A3")
    >>> a2.add(jnp.array([100], jnp.int8), 100)
    Array([-56], dtype=int8)

JAX's own promotion never decides a type inside; code outside is not affected, and that includes
Python's operators: ``x * y`` of two jax.Arrays is JAX's. There is no global and no context-manager
state, so jit caches see everything.
"""

from typing import Any

from npusim._errors import message
from npusim.numpy.bind import Bound as Bound
from npusim.numpy.bind import bind as bind
from npusim.numpy.contract import dot as dot
from npusim.numpy.contract import einsum as einsum
from npusim.numpy.contract import matmul as matmul
from npusim.numpy.elementwise import abs as abs
from npusim.numpy.elementwise import add as add
from npusim.numpy.elementwise import bitwise_and as bitwise_and
from npusim.numpy.elementwise import bitwise_not as bitwise_not
from npusim.numpy.elementwise import bitwise_or as bitwise_or
from npusim.numpy.elementwise import bitwise_xor as bitwise_xor
from npusim.numpy.elementwise import ceil as ceil
from npusim.numpy.elementwise import clip as clip
from npusim.numpy.elementwise import cos as cos
from npusim.numpy.elementwise import divide as divide
from npusim.numpy.elementwise import equal as equal
from npusim.numpy.elementwise import erf as erf
from npusim.numpy.elementwise import exp as exp
from npusim.numpy.elementwise import expm1 as expm1
from npusim.numpy.elementwise import floor as floor
from npusim.numpy.elementwise import floor_divide as floor_divide
from npusim.numpy.elementwise import gelu as gelu
from npusim.numpy.elementwise import greater as greater
from npusim.numpy.elementwise import greater_equal as greater_equal
from npusim.numpy.elementwise import isfinite as isfinite
from npusim.numpy.elementwise import isinf as isinf
from npusim.numpy.elementwise import isnan as isnan
from npusim.numpy.elementwise import less as less
from npusim.numpy.elementwise import less_equal as less_equal
from npusim.numpy.elementwise import log as log
from npusim.numpy.elementwise import log1p as log1p
from npusim.numpy.elementwise import logical_and as logical_and
from npusim.numpy.elementwise import logical_not as logical_not
from npusim.numpy.elementwise import logical_or as logical_or
from npusim.numpy.elementwise import logical_xor as logical_xor
from npusim.numpy.elementwise import maximum as maximum
from npusim.numpy.elementwise import minimum as minimum
from npusim.numpy.elementwise import multiply as multiply
from npusim.numpy.elementwise import negative as negative
from npusim.numpy.elementwise import not_equal as not_equal
from npusim.numpy.elementwise import power as power
from npusim.numpy.elementwise import reciprocal as reciprocal
from npusim.numpy.elementwise import relu as relu
from npusim.numpy.elementwise import remainder as remainder
from npusim.numpy.elementwise import round as round
from npusim.numpy.elementwise import rsqrt as rsqrt
from npusim.numpy.elementwise import sigmoid as sigmoid
from npusim.numpy.elementwise import sign as sign
from npusim.numpy.elementwise import silu as silu
from npusim.numpy.elementwise import sin as sin
from npusim.numpy.elementwise import sqrt as sqrt
from npusim.numpy.elementwise import square as square
from npusim.numpy.elementwise import subtract as subtract
from npusim.numpy.elementwise import tanh as tanh
from npusim.numpy.elementwise import trunc as trunc
from npusim.numpy.normalise import layer_norm as layer_norm
from npusim.numpy.normalise import log_softmax as log_softmax
from npusim.numpy.normalise import rms_norm as rms_norm
from npusim.numpy.normalise import softmax as softmax
from npusim.numpy.reductions import cumsum as cumsum
from npusim.numpy.reductions import mean as mean
from npusim.numpy.reductions import sum as sum
from npusim.numpy.reductions import var as var
from npusim.numpy.selections import all as all
from npusim.numpy.selections import any as any
from npusim.numpy.selections import argmax as argmax
from npusim.numpy.selections import argmin as argmin
from npusim.numpy.selections import max as max
from npusim.numpy.selections import min as min
from npusim.numpy.structure import arange as arange
from npusim.numpy.structure import array as array
from npusim.numpy.structure import asarray as asarray
from npusim.numpy.structure import astype as astype
from npusim.numpy.structure import astype as cast
from npusim.numpy.structure import broadcast_to as broadcast_to
from npusim.numpy.structure import concatenate as concatenate
from npusim.numpy.structure import expand_dims as expand_dims
from npusim.numpy.structure import flip as flip
from npusim.numpy.structure import full as full
from npusim.numpy.structure import full_like as full_like
from npusim.numpy.structure import moveaxis as moveaxis
from npusim.numpy.structure import ones as ones
from npusim.numpy.structure import ones_like as ones_like
from npusim.numpy.structure import ravel as ravel
from npusim.numpy.structure import repeat as repeat
from npusim.numpy.structure import reshape as reshape
from npusim.numpy.structure import roll as roll
from npusim.numpy.structure import squeeze as squeeze
from npusim.numpy.structure import stack as stack
from npusim.numpy.structure import swapaxes as swapaxes
from npusim.numpy.structure import take as take
from npusim.numpy.structure import tile as tile
from npusim.numpy.structure import transpose as transpose
from npusim.numpy.structure import where as where
from npusim.numpy.structure import zeros as zeros
from npusim.numpy.structure import zeros_like as zeros_like

__all__ = [
    "Bound",
    "abs",
    "add",
    "all",
    "any",
    "arange",
    "argmax",
    "argmin",
    "array",
    "asarray",
    "astype",
    "bind",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "broadcast_to",
    "cast",
    "ceil",
    "clip",
    "concatenate",
    "cos",
    "cumsum",
    "divide",
    "dot",
    "einsum",
    "equal",
    "erf",
    "exp",
    "expand_dims",
    "expm1",
    "flip",
    "floor",
    "floor_divide",
    "full",
    "full_like",
    "gelu",
    "greater",
    "greater_equal",
    "isfinite",
    "isinf",
    "isnan",
    "layer_norm",
    "less",
    "less_equal",
    "log",
    "log1p",
    "log_softmax",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "matmul",
    "max",
    "maximum",
    "mean",
    "min",
    "minimum",
    "moveaxis",
    "multiply",
    "negative",
    "not_equal",
    "ones",
    "ones_like",
    "power",
    "ravel",
    "reciprocal",
    "relu",
    "remainder",
    "repeat",
    "reshape",
    "rms_norm",
    "roll",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "silu",
    "sin",
    "softmax",
    "sqrt",
    "square",
    "squeeze",
    "stack",
    "subtract",
    "sum",
    "swapaxes",
    "take",
    "tanh",
    "tile",
    "transpose",
    "trunc",
    "var",
    "where",
    "zeros",
    "zeros_like",
]


def __getattr__(name: str) -> Any:
    raise AttributeError(
        message(
            f"npusim.numpy.{name}",
            ", ".join(__all__),
            f"jax.numpy.{name}, if there is one, works too, but by JAX's rules.",
        )
    )
