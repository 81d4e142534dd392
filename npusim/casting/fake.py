"""`fake_cast` and `grad_cast`: casts that stay in a float, with straight-through gradients."""

import dataclasses
import functools
from typing import Any, Literal, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from npusim import dtypes, numerics
from npusim._errors import CarrierError, InputError, UnknownNameError, message
from npusim.casting.cast import check_static, static_dtype
from npusim.casting.npuarray import NpuArray
from npusim.casting.resolve import (
    ResolvedCast,
    Step,
    check_target,
    is_exact,
    resolve_cast,
    warn_fallback,
)
from npusim.casting.run import run_steps
from npusim.casting.storage import parts, source
from npusim.dtypes import DT_DOUBLE, DT_FP32, DataType
from npusim.modes import LABORATORY, CastMode, SaturationMode, Target
from npusim.numerics import FormatParams, words
from npusim.numerics.integers import float_to_int
from npusim.numerics.words import F32, F64

Ste = Literal["identity", "clip", "zero"]
STE_RULES: tuple[Ste, ...] = ("identity", "clip", "zero")


def fake_cast(
    x: Any,
    dtype: Any,
    mode: CastMode | str | None = None,
    satmode: SaturationMode | str | bool | None = None,
    *,
    target: Target = LABORATORY,
    ste: Ste = "identity",
) -> Array:
    """Round to the values of a format and keep the result in a float: the differentiable cast.

    Shape: that of ``x``.

    Special values: those of `npusim.cast`; integer formats are meant by value, their zero is +0.

    Gradient: straight-through, in reverse and forward mode and to every order. ``ste="identity"``
    passes every tangent; ``"clip"`` passes it where the value stayed in range (the bound itself
    included) and gives zero where it overflowed or was infinite or NaN; ``"zero"`` gives zero.
    No gradient flows into integer inputs or into ``dtype``.

    Args:
        x: float, integer, bool or complex array (both parts are cast), or a Python number.
        dtype: a data type or a name of one, or `npusim.FormatParams`, which bring mode and
            saturation and may be traced.
        mode: rounding; None: RINT in the laboratory, else the entry point's default.
        satmode: saturation; None: ON in the laboratory, else the entry point's default.
        target: chip and entry point; by default the laboratory.
        ste: the gradient rule.

    Returns:
        The dtype of ``x`` where the format's values fit it, else float32 (complex64). Integer
        inputs give float32, FormatParams give float32 for 16-bit inputs.

    Raises:
        CarrierError: the float cannot hold the format (INT32, INT64, UINT32, FP64 in float32).
        UnsupportedCastError: ``target`` lacks the pair or the mode.
        InputError: no array of numbers, or a mode beside FormatParams.
        UnknownNameError: an unknown name.

    Source: as `npusim.cast`; the straight-through rule is Bengio, Leonard and Courville, 2013.

    Example:
        >>> import jax, npusim as npu
        >>> npu.fake_cast(jnp.array([1.1, 500.0]), "fp8_e4m3")
        Array([  1.125, 448.   ], dtype=float32)
        >>> jax.grad(lambda v: 0.3 * npu.fake_cast(v, "fp4_e2m1"))(2.2)
        Array(0.3, dtype=float32, weak_type=True)
    """
    if ste not in STE_RULES:
        raise UnknownNameError(
            message(f"ste={ste!r}", ", ".join(STE_RULES), "Pass one of these names.")
        )
    check_target(target)
    x, src = source(x)
    if src.kind == "complex" and not isinstance(x, NpuArray):
        x = jnp.asarray(x)
        part = functools.partial(fake_cast, mode=mode, satmode=satmode, target=target, ste=ste)
        real_type = dtype if isinstance(dtype, FormatParams) else _part_type(dtype, target)
        return jax.lax.complex(part(jnp.real(x), real_type), part(jnp.imag(x), real_type))
    if isinstance(dtype, FormatParams):
        return _fake_params(x, src, dtype, mode, satmode, target, ste)
    fmt = static_dtype(dtype, "fake_cast")
    check_static(mode=mode, satmode=satmode)
    fmt = fmt.part
    resolved = resolve_cast(src, fmt, mode, satmode, target)
    warn_fallback(resolved, stacklevel=3)
    carrier = _carrier(src, fmt)
    if src.kind != "float" or isinstance(x, NpuArray):
        return _from_codes(parts(x, src), resolved, carrier)
    x = jnp.asarray(x)
    if not resolved.steps:
        return x
    return _fake(_Plan(resolved, carrier, ste), x)


def _part_type(dtype: Any, target: Target) -> DataType:
    del target
    return static_dtype(dtype, "fake_cast").part


def _carrier(src: DataType, fmt: DataType) -> str:
    """Name of the float dtype the result comes in."""
    own = src if src.kind == "float" and src.jax_name is not None else DT_FP32
    if own.bits >= 16 and is_exact(fmt, own):
        return cast(str, own.jax_name)
    wide = DT_DOUBLE if own is DT_DOUBLE else DT_FP32
    if is_exact(fmt, wide):
        return cast(str, wide.jax_name)
    holds = [row.short for row in dtypes.DTYPES if is_exact(row, wide)]
    raise CarrierError(
        message(
            f"{fmt.short} in a {wide.jax_name} carrier",
            ", ".join(holds),
            f"Use npusim.cast(x, {fmt.short!r}), which returns the type itself.",
        )
    )


@dataclasses.dataclass(frozen=True)
class _Plan:
    """What `_fake` needs to know at trace time."""

    resolved: ResolvedCast
    carrier: str
    ste: Ste

    @property
    def direct(self) -> bool:
        """Whether the float kernel does it in one pass."""
        (*before, step) = self.resolved.steps
        plain = step.kind == "convert" and not step.through_bits and not step.inf_wraps
        fits = step.dst.kind in ("float", "scale") or (
            step.dst.kind == "int" and step.dst.bits <= 16
        )
        return not before and plain and fits and step.dst is not DT_DOUBLE


def _forward(plan: _Plan, x: Array) -> tuple[Array, Array]:
    """Values in the carrier, and where the input was out of range, infinite or NaN."""
    step = plan.resolved.steps[-1]
    soc = str(plan.resolved.target.soc)
    if plan.direct:
        values, outside = numerics.quantize(x, step.dst, step.mode, step.saturate, soc=soc)
        return _into(values, plan.carrier), outside
    src = plan.resolved.src
    codes = run_steps(parts(x, src), plan.resolved.steps, soc, None)
    return _value_of(codes[0], step.dst, plan.carrier), _outside(x, step, soc)


def _outside(x: Array, step: Step, soc: str) -> Array:
    word = numerics.float_words(x)
    layout = F64 if word.dtype == np.uint64 else F32
    if step.dst.kind == "int":
        grid = numerics.int_grid(step.dst)
        return float_to_int(word, grid, step.mode, step.saturate)[1]
    if step.dst.kind == "float" and step.dst not in (DT_DOUBLE, DT_FP32):
        return numerics.quantize(x, step.dst, step.mode, step.saturate, soc=soc)[1]
    return (word & layout.magnitude) >= layout.inf


def _value_of(codes: Array, fmt: DataType, carrier: str) -> Array:
    """The values of codes in the carrier, exactly."""
    if fmt is DT_DOUBLE:
        return words.from_words(codes, np.dtype(np.float64))
    if fmt.kind in ("int", "bool"):
        wide = DT_DOUBLE if carrier == "float64" else DT_FP32
        word = numerics.convert(codes, fmt, wide, CastMode.CAST_RINT, False)
        return words.from_words(word, np.dtype(wide.jax_name))
    word = numerics.decode(codes, fmt)
    return _into(words.from_words(word, np.dtype(np.float32)), carrier)


def _into(values: Array, carrier: str) -> Array:
    """Float32 values as another float type that holds them, by integers."""
    if carrier == "float32":
        return values
    fmt = dtypes.dtype(carrier)
    word = words.as_words(values)
    codes = words.widen(word) if fmt is DT_DOUBLE else numerics.encode(word, fmt)
    return words.from_words(codes, np.dtype(fmt.jax_dtype))


@functools.partial(jax.jit, static_argnums=(0,), inline=True)
def _kernel(plan: _Plan, x: Array) -> Array:
    return _forward(plan, x)[0]


@functools.partial(jax.jit, static_argnums=(1, 2))
def _from_codes(codes: tuple[Array, ...], resolved: ResolvedCast, carrier: str) -> Array:
    if not resolved.steps:
        return _value_of(codes[0], resolved.dst, carrier)
    soc = str(resolved.target.soc)
    out = run_steps(codes, resolved.steps, soc, jnp.float32(1))
    return _value_of(out[0], resolved.dst, carrier)


_fake = jax.custom_jvp(_kernel, nondiff_argnums=(0,))


@_fake.defjvp
def _fake_jvp(plan: _Plan, primals: tuple[Array], tangents: tuple[Array]):
    (x,), (tangent,) = primals, tangents
    out = _fake(plan, x)
    outside = _forward(plan, x)[1] if plan.ste == "clip" else None
    return out, _pass_tangent(plan.ste, tangent, out, outside)


def _pass_tangent(ste: Ste, tangent: Array, out: Array, outside: Array | None) -> Array:
    tangent = tangent.astype(out.dtype)
    if ste == "zero":
        return jnp.zeros_like(tangent)
    if outside is not None:
        return jnp.where(outside, jnp.zeros_like(tangent), tangent)
    return tangent


def _fake_params(
    x: Any, src: DataType, params: FormatParams, mode: Any, satmode: Any, target: Target, ste: Ste
) -> Array:
    if mode is not None or satmode is not None:
        raise InputError(
            message(
                "a mode or satmode beside FormatParams",
                "FormatParams alone",
                "FormatParams.of(dtype, mode, satmode) brings both.",
            )
        )
    if target.api != "numerics":
        raise InputError(
            message(
                f"FormatParams with {target}",
                "the laboratory, Target(api='numerics')",
                "A chip's table needs the static dtype: pass its name.",
            )
        )
    if src.kind != "float":
        if isinstance(x, NpuArray) or (src.kind == "int" and src.bits > 16):
            raise InputError(
                message(
                    f"{src.short} with FormatParams",
                    "float inputs, bool and integers of at most 16 bits",
                    "Convert the input to float32 first, or pass the static dtype.",
                )
            )
        x = jnp.asarray(x).astype(jnp.float32)  # exact
    return _fake_traced(ste, jnp.asarray(x), params)


def _forward_traced(x: Array, params: FormatParams) -> tuple[Array, Array]:
    values, outside = numerics.quantize(x, params)
    return _into(values, "float64" if x.dtype == jnp.float64 else "float32"), outside


@functools.partial(jax.jit, static_argnums=(0,), inline=True)
def _kernel_traced(ste: Ste, x: Array, params: FormatParams) -> Array:
    del ste
    return _forward_traced(x, params)[0]


_fake_traced = jax.custom_jvp(_kernel_traced, nondiff_argnums=(0,))


@_fake_traced.defjvp
def _fake_traced_jvp(ste: Ste, primals: tuple[Array, FormatParams], tangents: tuple[Array, Any]):
    x, params = primals
    out = _fake_traced(ste, x, params)
    outside = _forward_traced(x, params)[1] if ste == "clip" else None
    tangent = _pass_tangent(ste, tangents[0], out, outside)
    if ste != "identity":  # a format of its own type is no cast, as in the static form
        own = params.is_type_of(x)
        tangent = jnp.where(own, tangents[0].astype(out.dtype), tangent)
    return out, tangent


def grad_cast(
    x: Any,
    dtype: Any,
    mode: CastMode | str | None = None,
    satmode: SaturationMode | str | bool | None = None,
    *,
    target: Target = LABORATORY,
) -> Array:
    """Return ``x`` unchanged, and round its cotangent to a format on the way back.

    Shape: that of ``x``.

    Special values: those of `npusim.fake_cast`, applied to the cotangent.

    Gradient: the cotangent goes through `npusim.fake_cast`, so second derivatives are
    straight-through. Reverse mode only.

    Args:
        x: a float array.
        dtype: a data type, a name of one, or `npusim.FormatParams`.
        mode: as for `npusim.fake_cast`.
        satmode: as for `npusim.fake_cast`.
        target: as for `npusim.fake_cast`.

    Raises:
        CarrierError: the dtype of ``x`` cannot hold the format.
        InputError: ``x`` is no float array.

    Source: as `npusim.cast`.

    Example:
        >>> import jax, npusim as npu
        >>> jax.grad(lambda v: 1.1 * npu.grad_cast(v, "fp8_e5m2"))(3.0)
        Array(1., dtype=float32)
    """
    x, src = source(x)
    if src.kind not in ("float", "complex") or isinstance(x, NpuArray):
        raise InputError(
            message(
                f"{src.short} for grad_cast",
                "float and complex arrays",
                "Only floats have cotangents; decode the array first.",
            )
        )
    x = jnp.asarray(x)
    if isinstance(dtype, FormatParams):
        if src.bits == 16:
            raise CarrierError(
                message(
                    f"FormatParams for the cotangent of a {src.jax_name} array",
                    "float32 and float64 arrays",
                    "Convert the array to float32 first: any format must fit its cotangent.",
                )
            )
        _check_traced_arguments(mode, satmode, target)
        return _grad_traced(x, dtype)
    fmt = static_dtype(dtype, "grad_cast").part
    check_static(mode=mode, satmode=satmode)
    own = src.part
    if not is_exact(own, fmt) and not is_exact(fmt, own):
        raise CarrierError(
            message(
                f"{fmt.short} for the cotangent of a {own.jax_name} array",
                ", ".join(row.short for row in dtypes.DTYPES if is_exact(row, own)),
                "Convert the array to float32 first.",
            )
        )
    resolve_cast(own, fmt, mode, satmode, target)
    return _grad((fmt, mode, satmode, target), x)


def _check_traced_arguments(mode: Any, satmode: Any, target: Target) -> None:
    if mode is not None or satmode is not None or target.api != "numerics":
        raise InputError(
            message(
                "a mode, satmode or chip beside FormatParams",
                "FormatParams alone, in the laboratory",
                "FormatParams.of(dtype, mode, satmode) brings both.",
            )
        )


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _grad(spec: tuple[Any, ...], x: Array) -> Array:
    del spec
    return x


def _grad_fwd(spec: tuple[Any, ...], x: Array):
    return _grad(spec, x), None


def _grad_bwd(spec: tuple[Any, ...], _residual: None, cotangent: Array):
    fmt, mode, satmode, target = spec
    out = fake_cast(cotangent, fmt, mode, satmode, target=target)
    return (out.astype(cotangent.dtype),)


_grad.defvjp(_grad_fwd, _grad_bwd)


@jax.custom_vjp
def _grad_traced(x: Array, params: FormatParams) -> Array:
    del params
    return x


def _grad_traced_fwd(x: Array, params: FormatParams):
    return _grad_traced(x, params), params


def _grad_traced_bwd(params: FormatParams, cotangent: Array):
    return fake_cast(cotangent, params), None


_grad_traced.defvjp(_grad_traced_fwd, _grad_traced_bwd)
