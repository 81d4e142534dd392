"""Choosing, joining, casting and making arrays: values are moved, none is computed."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from npusim import casting, dtypes
from npusim._errors import InputError, message
from npusim.casting import NpuArray
from npusim.casting.storage import check_x64, source
from npusim.dtypes import DT_BOOL, DT_UINT8
from npusim.modes import Target
from npusim.numpy.env import DEFAULT, Env, brought, converted, derive, env, on_host, tensors
from npusim.ops import check_output, operator_row


def _codes(x: Any) -> Any:
    return x.codes if isinstance(x, NpuArray) else x


def _moved(
    name: str, operands: Sequence[Any], dtype: Any, at: Env, move: Callable[..., Any]
) -> Any:
    asked = None if dtype is None else dtypes.dtype(dtype)
    given = tensors(operands)
    derived, _ = derive(given, at, None, asked)
    row = operator_row(name, at.target.soc, derived)
    out = row.result if asked is None else asked
    check_output(row, out, at.rules)
    arrays = [_codes(brought(on_host(x, derived, at), derived, at)) for x in given]
    with jax.numpy_dtype_promotion("strict"):
        value = move(*arrays)
    value = NpuArray(value, derived) if derived.stored_as == "codes" else value
    return converted(value, out, row.result, at)


def where(
    condition: Any,
    x: Any,
    y: Any,
    /,
    *,
    dtype: Any = None,
    target: Target | str = DEFAULT,
    rules: str = "documented",
) -> Any:
    """Return x where the condition holds, y elsewhere, in the type derived from both.

    Shape: the three operands broadcast.

    Special values: bits are kept, NaN payloads included, where no cast is needed.

    Gradient: to the operand that is chosen.

    Args:
        condition: bool or uint8.
        x: an array, NpuArray or number.
        y: likewise.
        dtype: type of the output: any that the result can be cast to.
        target: as for `add`.
        rules: as for `add`.

    Raises:
        InputError: another type of condition, or types that the operator does not take.
        PromotionError: no type can be derived for x and y.

    Source: hicann/ops-math s_where.

    Example:
        >>> where(jnp.array([True, False]), jnp.array([1, 2], jnp.int8), jnp.float16(0.5))
        Array([1. , 0.5], dtype=float16)
    """
    test, own = source(condition)
    if own not in (DT_BOOL, DT_UINT8):
        raise InputError(
            message(f"a condition of type {own}", "bool, uint8", "Compare it with 0 first.")
        )
    chosen = jnp.asarray(test)
    chosen = chosen if own is DT_BOOL else chosen != np.uint8(0)
    move = lambda a, b: jnp.where(chosen, a, b)  # noqa: E731
    return _moved("where", [x, y], dtype, env(target, rules), move)


def concatenate(
    arrays: Sequence[Any],
    axis: int | None = 0,
    dtype: Any = None,
    *,
    target: Target | str = DEFAULT,
    rules: str = "documented",
) -> Any:
    """Return arrays joined along an axis, in the type derived from all of them.

    Shape: that of the arrays, their lengths along ``axis`` added; flat if ``axis`` is None.

    Special values: bits are kept where no cast is needed.

    Gradient: to every array its part.

    Args:
        arrays: arrays or NpuArrays, of any type.
        axis: the axis.
        dtype: type of the output: any that the result can be cast to.
        target: as for `add`.
        rules: as for `add`.

    Raises:
        PromotionError: no type can be derived for the arrays, or their order matters.

    Source: the operator's rows (assumed).

    Example:
        >>> concatenate([jnp.array([1], jnp.int8), jnp.array([200], jnp.uint8)])
        Array([  1, 200], dtype=int16)
    """
    return _moved(
        "concatenate",
        list(arrays),
        dtype,
        env(target, rules),
        lambda *parts: jnp.concatenate(parts, axis),
    )


def stack(
    arrays: Sequence[Any],
    axis: int = 0,
    dtype: Any = None,
    *,
    target: Target | str = DEFAULT,
    rules: str = "documented",
) -> Any:
    """Return arrays joined along a new axis, in the type derived from all of them.

    Shape: that of the arrays with a new axis.

    Special values: bits are kept where no cast is needed.

    Gradient: to every array its part.

    Args:
        arrays: arrays or NpuArrays, of any type.
        axis: where the new axis goes.
        dtype: type of the output: any that the result can be cast to.
        target: as for `add`.
        rules: as for `add`.

    Raises:
        PromotionError: no type can be derived for the arrays, or their order matters.

    Source: the operator's rows (assumed).

    Example:
        >>> stack([jnp.array([1], jnp.int8), jnp.array([2.5], jnp.float16)]).dtype
        dtype('float16')
    """
    return _moved(
        "stack", list(arrays), dtype, env(target, rules), lambda *parts: jnp.stack(parts, axis)
    )


def astype(
    x: Any,
    dtype: Any,
    /,
    *,
    mode: Any = None,
    satmode: Any = None,
    target: Target | str = DEFAULT,
    rules: str = "documented",
) -> Any:
    """Return x cast to another type: `npusim.cast`, by default as aclnnCast.

    Shape: that of ``x``.

    Special values: those of `npusim.cast`.

    Gradient: that of `npusim.cast`.

    Args:
        x: an array, NpuArray or number.
        dtype: the type.
        mode: rounding; aclnn has no choice.
        satmode: saturation; aclnn has no choice.
        target: chip and entry point.
        rules: as for `add`; a cast derives nothing.

    Raises:
        UnsupportedCastError: the target lacks the pair or the mode.
        X64RequiredError: a 64-bit type while x64 is off.

    Source: as `npusim.cast`.

    Example:
        >>> astype(jnp.array([300.7, -1.5]), jnp.int8)
        Array([44, -1], dtype=int8)
    """
    at = env(target, rules)
    return casting.cast(x, dtype, mode, satmode, target=at.target)


def asarray(a: Any, dtype: Any = None) -> Any:
    """Return an array, in a type if one is named: Python numbers as JAX makes them.

    Shape: that of ``a``.

    Special values: those of `npusim.array`.

    Gradient: 1 where no type is named.

    Raises:
        X64RequiredError: a 64-bit type while x64 is off, NumPy arrays included.

    Source: `npusim.array`; a traced array is cast by the laboratory's rules.

    Example:
        >>> asarray([1.1, 2.0], "bf16")
        Array([1.10156, 2], dtype=bfloat16)
    """
    if isinstance(a, NpuArray | jax.Array | np.ndarray | np.generic):
        source(a)
    if dtype is None:
        return a if isinstance(a, NpuArray) else jnp.asarray(a)
    if isinstance(a, jax.Array | NpuArray):
        return casting.cast(a, dtype, target=Target(api="numerics"))
    return casting.array(a, dtype)


array = asarray


def _filled(name: str, does: str) -> Callable[..., Any]:
    fill = getattr(jnp, name)

    def make(*args: Any, dtype: Any = None, **options: Any) -> Any:
        for x in args:
            if isinstance(x, np.ndarray | np.generic):
                source(x)
        if dtype is None:
            return fill(*args, **options)
        row = dtypes.dtype(dtype)
        check_x64(row, "an array")
        if row.jax_dtype is None or row.stored_as == "codes":
            wide = fill(*args, dtype=np.float32, **options)
            return casting.cast(wide, row, target=Target(api="numerics"))
        return fill(*args, dtype=row.jax_dtype, **options)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = (
        f"Return {does}: `jax.numpy.{name}` with any name of a data type for ``dtype``.\n\n"
        "Raises:\n    X64RequiredError: a 64-bit type while x64 is off.\n"
    )
    return make


zeros = _filled("zeros", "zeros of a shape")
ones = _filled("ones", "ones of a shape")
full = _filled("full", "one value in a shape")
arange = _filled("arange", "evenly spaced numbers")
zeros_like = _filled("zeros_like", "zeros like an array")
ones_like = _filled("ones_like", "ones like an array")
full_like = _filled("full_like", "one value like an array")


def _view(name: str) -> Callable[..., Any]:
    view = getattr(jnp, name)

    def move(a: Any, /, *args: Any, **options: Any) -> Any:
        x = source(a)[0]
        if isinstance(x, NpuArray):
            x = x.unpack()
            return NpuArray(view(x.codes, *args, **options), x.dtype)
        return view(x, *args, **options)

    move.__name__ = move.__qualname__ = name
    move.__doc__ = (
        f"Return the elements in another arrangement: `jax.numpy.{name}`, NpuArrays too.\n\n"
        "Raises:\n    X64RequiredError: a 64-bit NumPy array while x64 is off.\n"
    )
    return move


reshape = _view("reshape")
transpose = _view("transpose")
swapaxes = _view("swapaxes")
moveaxis = _view("moveaxis")
expand_dims = _view("expand_dims")
squeeze = _view("squeeze")
ravel = _view("ravel")
broadcast_to = _view("broadcast_to")
flip = _view("flip")
roll = _view("roll")
tile = _view("tile")
repeat = _view("repeat")
take = _view("take")
