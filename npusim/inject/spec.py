"""`CastSpec`: one cast as a rule asks for it, and how it is applied to an array."""

import dataclasses
import functools
import math
from typing import Any, Literal, cast, get_args

import jax
import jax.numpy as jnp
import numpy as np

from npusim._errors import CarrierError, InputError, UnknownNameError, message, nearest
from npusim._grids import ComplexGrid, FloatGrid, IntGrid
from npusim.casting import FormatParams, fake_cast, resolve_cast
from npusim.dtypes import DT_FP32, DataType
from npusim.dtypes import dtype as dtype_of
from npusim.inject import scaling
from npusim.modes import LABORATORY, CastMode, SaturationMode, Target, cast_mode, saturation_mode

Ste = Literal["identity", "clip", "zero"]
STES: tuple[str, ...] = get_args(Ste)
_SIGNIFICANT = 24  # bits of a float32


@dataclasses.dataclass(frozen=True)
class CastSpec:
    """One cast: the format, how it rounds and saturates, and how the tensor is scaled for it.

    Attributes:
        dtype: a format name, a DataType, or `FormatParams` (traced; then ``mode`` and ``satmode``
            are in it). FormatParams whose leaves have a leading axis are one format per layer, for
            the iterations of the scan over layers that the operation stands in.
        mode: a CastMode or its name; None: the entry point's default.
        satmode: ON or OFF; None: the entry point's default.
        scale: ``none``; ``amax``: the largest magnitude of the tensor is mapped to the format's
            MAX and back after the cast; a number: the tensor is divided by it and multiplied after.
        ste: derivative of the whole scaled cast: ``identity`` 1; ``clip`` 0 where it overflowed;
            ``zero`` 0.
        via: intermediate format of a chain, e.g. fp16 in float32 -> fp16 -> int8. That first step
            takes the entry point's defaults; ``mode`` and ``satmode`` are the last step's.
        amax_to: the value that amax is mapped to instead of MAX (HiFloat8: 15, 224).
        amax: the largest magnitude as a number, from calibration, instead of the tensor's own;
            values beyond it leave the format's range and overflow.

    Raises:
        UnknownNameError: an unknown format, mode, saturation, scale or ste.
        CarrierError: a format whose values float32 cannot hold.
        InputError: values that do not fit each other.

    Example:
        >>> CastSpec("e4m3", "rint", scale="amax")
        CastSpec(fp8_e4m3 RINT scale=amax)
    """

    dtype: Any
    mode: CastMode | str | None = None
    satmode: SaturationMode | str | bool | None = None
    scale: str | float = "none"
    ste: str = "identity"
    via: Any = None
    amax_to: float | None = None
    amax: float | None = None

    def __post_init__(self):
        put = functools.partial(object.__setattr__, self)
        if isinstance(self.dtype, FormatParams):
            if self.mode is not None or self.satmode is not None or self.via is not None:
                raise InputError(
                    message(
                        "mode, satmode or via beside FormatParams",
                        "FormatParams alone, which carry their mode and saturation",
                        "Pass them to FormatParams.of.",
                    )
                )
        else:
            put("dtype", _held(dtype_of(self.dtype)))
        put("mode", None if self.mode is None else cast_mode(self.mode))
        put("satmode", None if self.satmode is None else saturation_mode(self.satmode))
        put("via", None if self.via is None else _held(dtype_of(self.via)))
        put("scale", _scale(self.scale))
        if self.ste not in STES:
            raise UnknownNameError(
                message(
                    f"ste {self.ste!r}",
                    ", ".join(STES),
                    f"{nearest(str(self.ste), STES)}Pass one of these names.",
                )
            )
        for name in ("amax_to", "amax"):
            given = getattr(self, name)
            if given is None:
                continue
            put(name, _positive(name, given))
            if self.scale != "amax":
                raise InputError(
                    message(
                        f"{name}={given} with scale={self.scale!r}",
                        f"{name} with scale='amax'",
                        f"Set scale to 'amax', or remove {name}.",
                    )
                )

    @property
    def traced(self) -> bool:
        """Whether the format is data (`FormatParams`)."""
        return isinstance(self.dtype, FormatParams)

    @property
    def layers(self) -> int | None:
        """Number of layers of a per-layer format, None for one format."""
        if not self.traced:
            return None
        shapes = {np.shape(leaf) for leaf in jax.tree.leaves(self.dtype)}
        if shapes == {()}:
            return None
        if len(shapes) > 1 or len(next(iter(shapes))) != 1:
            raise InputError(
                message(
                    f"FormatParams with leaves of shapes {sorted(shapes)}",
                    "scalars, or one leading axis of layers",
                    "Stack them: jax.tree.map(lambda *p: jnp.stack(p), *params).",
                )
            )
        return next(iter(shapes))[0]

    def casts(self, operand: Any) -> bool:
        """Whether anything happens to an operand of this dtype.

        A format that the operand has anyway, or that of the float32 carrier, means no cast.
        """
        own = np.dtype(operand)
        if self.traced or own not in _CARRIERS:
            return own in _CARRIERS
        return not (
            (self.dtype is DT_FP32 and own != np.float64)
            or (self.dtype.jax_dtype == own and (self.scale == "none" or _wide(self.dtype)))
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the spec as plain data, defaults left out.

        Raises:
            InputError: the format is traced and has no plain form.

        Example:
            >>> CastSpec("half", "FLOOR").to_dict()
            {'dtype': 'fp16', 'mode': 'FLOOR'}
        """
        if self.traced:
            raise InputError(
                message(
                    "a CastSpec with traced FormatParams",
                    "a format name",
                    "Only static formats have a plain form; write the name.",
                )
            )
        plain = {
            "dtype": self.dtype.short,
            "mode": cast(CastMode, self.mode).short if self.mode is not None else None,
            "satmode": cast(SaturationMode, self.satmode).value if self.satmode else None,
            "scale": None if self.scale == "none" else self.scale,
            "ste": None if self.ste == "identity" else self.ste,
            "via": self.via.short if self.via else None,
            "amax_to": self.amax_to,
            "amax": self.amax,
        }
        return {key: given for key, given in plain.items() if given is not None}

    def __str__(self) -> str:
        if self.traced:
            words = ["traced" if self.layers is None else f"traced[{self.layers} layers]"]
        else:
            words = [f"{self.via.short}->{self.dtype.short}" if self.via else self.dtype.short]
        words += [self.mode.short] if isinstance(self.mode, CastMode) else []
        words += [f"sat={self.satmode.value}"] if isinstance(self.satmode, SaturationMode) else []
        words += [f"scale={self.scale}"] if self.scale != "none" else []
        words += [f"amax_to={self.amax_to:g}"] if self.amax_to is not None else []
        words += [f"amax={self.amax:g}"] if self.amax is not None else []
        words += [f"ste={self.ste}"] if self.ste != "identity" else []
        return " ".join(words)

    def __repr__(self) -> str:
        return f"CastSpec({self})"


def as_spec(given: Any) -> CastSpec:
    """Return a CastSpec from one, from a mapping of its fields, or from a format alone."""
    if isinstance(given, CastSpec):
        return given
    if isinstance(given, dict):
        return CastSpec(**given)
    return CastSpec(given)


_CARRIERS = tuple(np.dtype(t) for t in (jnp.float32, jnp.float16, jnp.bfloat16, jnp.float64))


def _wide(fmt: DataType) -> bool:
    """Whether the format has float32's own range, so that mapping amax to MAX means nothing."""
    return fmt.kind == "scale" or (
        isinstance(fmt.grid, FloatGrid) and fmt.grid.exponent_bits == DT_FP32.grid.exponent_bits  # pyright: ignore[reportAttributeAccessIssue]
    )


def _held(fmt: DataType) -> DataType:
    """Return ``fmt`` if float32 holds all its values."""
    grid = fmt.grid
    wide = (
        isinstance(grid, ComplexGrid)
        or (isinstance(grid, IntGrid) and grid.bits > _SIGNIFICANT)
        or (isinstance(grid, FloatGrid) and grid.mantissa_bits >= _SIGNIFICANT)
    )
    if wide:
        raise CarrierError(
            message(
                f"{fmt.short} in a CastSpec",
                "formats whose values a float32 holds exactly",
                "npusim.cast converts to the type itself.",
            )
        )
    return fmt


def _scale(given: Any) -> str | float:
    if isinstance(given, str) and given in ("none", "amax"):
        return given
    if given is None or isinstance(given, str | bool):
        hint = nearest(given, ("none", "amax")) if isinstance(given, str) else ""
        raise UnknownNameError(
            message(
                f"scale {given!r}", "none, amax, a positive number", f"{hint}Pass one of these."
            )
        )
    return _positive("scale", given)


def _positive(name: str, given: Any) -> float:
    try:
        number = float(np.float32(given))
    except (TypeError, ValueError):
        number = math.nan
    if not (number >= 2.0**-126 and math.isfinite(number)):
        raise InputError(
            message(f"{name}={given!r}", "a positive normal float32 number", "Pass such a number.")
        )
    return number


@dataclasses.dataclass(frozen=True)
class _Static:
    """The static part of a scaled cast: hashable, so that it can be a nondiff argument."""

    fmt: DataType | None
    spec: tuple[Any, ...]
    target: Target

    @classmethod
    def of(cls, spec: CastSpec, target: Target) -> "_Static":
        fields = (spec.mode, spec.satmode, spec.scale, spec.ste, spec.via, spec.amax_to, spec.amax)
        return cls(None if spec.traced else spec.dtype, fields, target)

    @property
    def scale(self) -> str | float:
        return self.spec[2]

    @property
    def ste(self) -> str:
        return self.spec[3]

    @property
    def amax_to(self) -> float | None:
        return self.spec[5]

    @property
    def amax(self) -> float | None:
        return self.spec[6]

    def cast(self, x: jax.Array, params: FormatParams | None) -> jax.Array:
        """The cast of already scaled values, in the scaled domain."""
        mode, satmode, _, ste, via, *_ = self.spec
        if via is not None:
            x = fake_cast(x, via, target=self.target, ste=ste)
            # In its own type where JAX has one, so that the second step sees the true source.
            if via.jax_dtype in _CARRIERS:
                x = x.astype(via.jax_dtype)
        if self.fmt is None:
            return fake_cast(x, params, ste=ste)
        if self.target.api != "numerics":
            # A fallback was reported when the policy was loaded; here it just runs.
            mode = _mode_that_runs(x, self.fmt, mode, satmode, self.target)
        return fake_cast(x, self.fmt, mode, satmode, target=self.target, ste=ste)

    def top(self, params: FormatParams | None) -> jax.Array | None:
        """The word of the value that amax is mapped to; 0 or None where scaling means nothing."""
        if self.fmt is not None:
            if _wide(self.fmt):
                return None
            return scaling.word(jnp.float32(self.amax_to or float(self.fmt.max)))
        assert params is not None
        top = jnp.asarray(params.max_value, jnp.float32)
        if self.amax_to is not None:
            top = jnp.where(scaling.word(top) == 0, top, jnp.float32(self.amax_to))
        return scaling.word(top)


def _mode_that_runs(x: jax.Array, fmt: DataType, mode: Any, satmode: Any, target: Target) -> Any:
    resolved = resolve_cast(dtype_of(x.dtype), fmt, mode, satmode, target)
    return resolved.mode if resolved.fallback else mode


def apply_cast(spec: CastSpec, x: jax.Array, *, target: Target = LABORATORY) -> jax.Array:
    """Return ``x`` as the spec's format would hold it, in a float carrier.

    Shape: any; the result has the same. With scale amax the whole array shares one scale.
    Special values: where amax is 0, infinite or NaN, or the format has float32's own range, the
        scale is 1. The element that amax came from lands exactly on MAX, and nothing passes it.
    Gradient: exactly 1 for ste identity, scale included; clip is 0 where the cast overflowed.

    Raises:
        InputError: ``x`` is not a float array.
        UnsupportedCastError: the target has no such cast.

    Example:
        >>> x = jnp.array([1.0, -8.0, 3.3])
        >>> apply_cast(CastSpec("fp4_e2m1", "RINT", scale="amax"), x)
        Array([ 1.3333334, -8.       ,  2.6666667], dtype=float32)
    """
    x = jnp.asarray(x)
    if x.dtype not in _CARRIERS:
        raise InputError(
            message(f"an array of {x.dtype}", "float16, bfloat16, float32, float64", "Convert it.")
        )
    if not spec.casts(x.dtype):
        return x
    return _apply(_Static.of(spec, target), x, spec.dtype if spec.traced else None)


def _apply(static: _Static, x: jax.Array, params: FormatParams | None) -> jax.Array:
    unscaled = static.scale == "none" or x.size == 0
    if unscaled or (static.scale == "amax" and static.fmt is not None and _wide(static.fmt)):
        return static.cast(x, params)
    return _scaled(static, x.astype(jnp.float32), params)


# Jitted for eager callers; inlined, so that a caller's own jit still fuses all of it.
@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
@functools.partial(jax.jit, static_argnums=(0,), inline=True)
def _scaled(static: _Static, x: jax.Array, params: FormatParams | None) -> jax.Array:
    given, restore = _scaled_parts(static, x, params)
    return restore(static.cast(given, params).astype(jnp.float32))


@_scaled.defjvp
def _scaled_jvp(static: _Static, primals: Any, tangents: Any) -> tuple[jax.Array, jax.Array]:
    x, params = primals
    tangent = tangents[0]
    # The primal calls the rule's own function, so that a second derivative finds the rule again.
    out = _scaled(static, x, params)
    if static.ste == "identity":
        return out, tangent
    return out, tangent * jax.lax.stop_gradient(_passes(static, x, params))


@functools.partial(jax.jit, static_argnums=(0,), inline=True)
def _passes(static: _Static, x: jax.Array, params: FormatParams | None) -> jax.Array:
    """Where the cast passes a tangent, as 1 and 0: its own rule knows."""
    scaled, _ = _scaled_parts(static, x, params)
    ones = jnp.ones_like(scaled)
    return jax.jvp(lambda s: static.cast(s, params).astype(jnp.float32), (scaled,), (ones,))[1]


def _scaled_parts(static: _Static, x: jax.Array, params: FormatParams | None) -> tuple[Any, Any]:
    """Return the scaled array and the function that undoes the scale."""
    if static.scale != "amax":
        number = float(static.scale)
        return scaling.divided(x, number), lambda q: scaling.multiplied(q, number)
    top = static.top(params)
    assert top is not None
    given = static.amax
    amax = scaling.largest(x) if given is None else scaling.word(jnp.float32(given))
    usable = scaling.usable(amax) & (top != 0)

    def restore(q: jax.Array) -> jax.Array:
        return jnp.where(usable, scaling.from_range(q, amax, top), q)

    # Beyond a given amax values overflow: that is what saturation is there for.
    scaled = scaling.to_range(x, amax, top, clamp=given is None)
    return jnp.where(usable, scaled, x), restore


def cast_cotangent(spec: CastSpec, x: jax.Array, *, target: Target = LABORATORY) -> jax.Array:
    """Return ``x`` unchanged; the cotangent that comes back is cast by ``spec``.

    Gradient: reverse mode only (a custom VJP). The cast of the cotangent is straight-through, so
    second derivatives are right.

    Example:
        >>> f = lambda x: 0.3 * cast_cotangent(CastSpec("fp4_e2m1"), x)
        >>> float(jax.grad(f)(1.0))
        0.5
    """
    if not spec.casts(x.dtype):
        return x
    return _cotangent(_Static.of(spec, target), x, spec.dtype if spec.traced else None)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _cotangent(static: _Static, x: jax.Array, params: FormatParams | None) -> jax.Array:
    return x


def _cotangent_fwd(static: _Static, x: jax.Array, params: FormatParams | None):
    return x, params


def _cotangent_bwd(static: _Static, params: FormatParams | None, cotangent: jax.Array):
    return _apply(static, cotangent, params).astype(cotangent.dtype), None


_cotangent.defvjp(_cotangent_fwd, _cotangent_bwd)
