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
from npusim.casting import FormatParams
from npusim.dtypes import DT_FP32, DataType
from npusim.dtypes import dtype as dtype_of
from npusim.modes import CastMode, SaturationMode, cast_mode, saturation_mode

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
        if self.traced or own not in CARRIERS:
            return own in CARRIERS
        return not (
            (self.dtype is DT_FP32 and own != np.float64)
            or (self.dtype.jax_dtype == own and (self.scale == "none" or is_wide(self.dtype)))
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


CARRIERS = tuple(np.dtype(t) for t in (jnp.float32, jnp.float16, jnp.bfloat16, jnp.float64))


def is_wide(fmt: DataType) -> bool:
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
