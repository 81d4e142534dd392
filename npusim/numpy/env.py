"""From operands to a kernel call: derive, cast, compute, round, convert; never by JAX's rules."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from npusim import dtypes
from npusim.casting import NpuArray, cast
from npusim.casting.storage import check_x64, source
from npusim.dtypes import DataType
from npusim.modes import LABORATORY, OverflowMode, Target
from npusim.numpy.bodies import Function
from npusim.numpy.scalar import host_scalar
from npusim.ops import OperatorRow, check_output, operator_row
from npusim.ops.arithmetic import stored, widen
from npusim.promotion import Scalar, result_type

DEFAULT = Target("950PR", "aclnn")

_ZEROS = {"bool": False, "int": 0, "float": 0.0, "complex": 0j}


@dataclasses.dataclass(frozen=True)
class Env:
    """Whose rules hold: the chip with its entry point for casts, and the derivation table."""

    target: Target
    rules: str

    @property
    def saturate(self) -> bool:
        """Whether a 16-bit float result that overflows becomes MAX."""
        return self.target.overflow is OverflowMode.SATURATE


def env(target: Target | str, rules: str) -> Env:
    """The Env of a call; a chip's name means its aclnn entry point."""
    return Env(target if isinstance(target, Target) else Target(target, "aclnn"), rules)


@dataclasses.dataclass(frozen=True)
class Kernel:
    """The static part of a call.

    Attributes:
        body: works on arrays of type ``compute``.
        row: the operator's row.
        at: whose rules.
        out: the output's type.
        brings: whether the operands are cast to the row's type first.
        options: keywords of ``body``.
    """

    body: Callable[..., Any]
    row: OperatorRow
    at: Env
    out: DataType
    brings: bool
    options: tuple[tuple[str, Any], ...]


@functools.partial(jax.jit, static_argnums=(0,))
def _run(kernel: Kernel, *operands: Any) -> Any:
    row, at = kernel.row, kernel.at
    if kernel.brings:
        operands = tuple(brought(x, row.dtype, at) for x in operands)
    arrays = [widen(x, row.compute) for x in operands]
    # Strict: a body in which two types meet fails, so that no JAX rule ever decides one.
    with jax.numpy_dtype_promotion("strict"):
        value = kernel.body(*arrays, **dict(kernel.options))
    return converted(stored(value, row.result, at.saturate), kernel.out, row.result, at)


Body = Callable[..., Any] | Function


def run(
    row: OperatorRow,
    at: Env,
    body: Body,
    operands: Sequence[Any],
    *,
    out: DataType | None = None,
    brings: bool = True,
    **options: Any,
) -> Any:
    """Bring, widen, compute, store and convert: one compiled loop."""
    if isinstance(body, Function):
        body = body.body(row.compute, row.result)
    kernel = Kernel(body, row, at, out or row.result, brings, tuple(options.items()))
    return _run(kernel, *operands)


def is_scalar(x: Any) -> bool:
    """Whether ``x`` is a Python number, or one that JAX has wrapped (also under a trace)."""
    if isinstance(x, np.generic | NpuArray):
        return False
    weak = getattr(x, "weak_type", False) and getattr(x, "shape", None) == ()
    return isinstance(x, bool | int | float | complex | Scalar) or bool(weak)


def _kind(x: Any) -> Scalar:
    """The scalar ``x`` without its value."""
    if isinstance(x, Scalar):
        return Scalar(None, x.dtype)
    if hasattr(x, "dtype"):
        return Scalar(None, Scalar(_ZEROS[dtypes.dtype(x.dtype).kind]).dtype)
    return Scalar(None, Scalar(x).dtype)


def tensors(operands: Sequence[Any]) -> list[Any]:
    """The operands as arrays and scalars; scalars alone become arrays, as JAX makes them."""
    if all(is_scalar(x) for x in operands):
        alone = [jnp.asarray(host_scalar_of(x)) for x in operands]
        return [jnp.asarray(x, dtype=x.dtype) for x in alone]  # a named dtype is not weak
    return [x if is_scalar(x) else source(x)[0] for x in operands]


def host_scalar_of(x: Any) -> Any:
    """The number in a Scalar, anything else as it is."""
    return x.value if isinstance(x, Scalar) else x


def derive(
    operands: Sequence[Any], at: Env, op: str | None, out: DataType | None
) -> tuple[DataType, DataType]:
    """The type that an operator brings its operands to, and the one a result has by default.

    The two differ where a scalar bears on the first by its value or its declared width; the
    framework above aclnn chooses the output by category only.

    Args:
        operands: arrays and scalars, at least one an array.
        at: whose rules.
        op: the operator's name in the scalar tables, None where it has no row there: then the
            category counts.
        out: the output's type, if asked for.
    """
    named = {"rules": at.rules, "target": at.target}
    if not any(is_scalar(x) for x in operands):
        derived = result_type(*operands, op=op, **named)
        return derived, derived
    category = [_kind(x) if is_scalar(x) else x for x in operands]
    natural = result_type(*category, rules=at.rules, target=DEFAULT)
    if op is None:
        return natural, natural
    return result_type(*operands, op=op, out=out or natural, **named), natural


def on_host(x: Any, dtype: DataType, at: Env) -> Any:
    """A Python number in the derived type, rounded once; an array as it is."""
    check_x64(dtype, "an operand")
    number = x.value if isinstance(x, Scalar) else x
    if isinstance(number, bool | int | float | complex) and not isinstance(number, np.generic):
        return host_scalar(number, dtype, at.saturate)
    return x


def brought(x: Any, dtype: DataType, at: Env) -> Array | NpuArray:
    """An array in the derived type: as the target casts it; a wrapped scalar is rounded once."""
    check_x64(dtype, "an operand")
    own = source(x)[1]
    if own is dtype:
        return x.unpack() if isinstance(x, NpuArray) else jnp.asarray(x, dtype=dtype.jax_dtype)
    if is_scalar(x):
        return cast(x, dtype, "RINT", at.saturate, target=LABORATORY)
    return cast(x, dtype, target=at.target)


def converted(x: Any, out: DataType, result: DataType, at: Env) -> Array | NpuArray:
    """The result in the output's type."""
    if out is result:
        return x
    check_x64(out, "an output")
    return cast(x, out, target=at.target)


def call(
    name: str,
    body: Body,
    operands: Sequence[Any],
    at: Env,
    *,
    op: str | None = None,
    dtype: Any = None,
    **options: Any,
) -> Any:
    """Run an elementwise operator."""
    asked = None if dtype is None else dtypes.dtype(dtype)
    given = tensors(operands)
    derived, natural = derive(given, at, op, asked)
    row = operator_row(name, at.target.soc, derived)
    scalar = any(is_scalar(x) for x in given)
    if asked is None:
        own = row if natural is derived else operator_row(name, at.target.soc, natural)
        out = own.result
    else:
        out = asked
        check_output(row, out, at.rules, scalar)
    arrays = [on_host(x, derived, at) for x in given]
    return run(row, at, body, arrays, out=out, **options)
