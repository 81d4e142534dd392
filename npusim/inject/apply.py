"""A `CastSpec` applied to an array, or to the cotangent that comes back to it."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from npusim._errors import InputError, message
from npusim.casting import FormatParams, fake_cast, resolve_cast
from npusim.dtypes import DataType
from npusim.dtypes import dtype as dtype_of
from npusim.inject import scaling
from npusim.inject.spec import CARRIERS, CastSpec, is_wide
from npusim.modes import LABORATORY, Target


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
            if via.jax_dtype in CARRIERS:
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
            if is_wide(self.fmt):
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
        scale is 1. The element that amax came from lands exactly on MAX, and nothing passes it. A
        float64 array is scaled as float32.
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
    if x.dtype not in CARRIERS:
        raise InputError(
            message(f"an array of {x.dtype}", "float16, bfloat16, float32, float64", "Convert it.")
        )
    if not spec.casts(x.dtype):
        return x
    return _apply(_Static.of(spec, target), x, spec.dtype if spec.traced else None)


def _apply(static: _Static, x: jax.Array, params: FormatParams | None) -> jax.Array:
    unscaled = static.scale == "none" or x.size == 0
    if unscaled or (static.scale == "amax" and static.fmt is not None and is_wide(static.fmt)):
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
