"""`FormatParams`: a number format, mode and saturation as data."""

# Strict, but for what JAX leaves untyped.
# pyright: strict, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false

import dataclasses
from fractions import Fraction
from typing import Any

import jax
import numpy as np

from npusim import dtypes
from npusim._errors import InputError, message
from npusim._grids import FloatGrid, IntGrid, ScaleGrid, TaperedGrid
from npusim.dtypes import DT_BF16, DT_FP16, DT_FP32, DTYPES, DataType
from npusim.modes import CastMode, SaturationMode, cast_mode, saturation_mode
from npusim.numerics.rounding import MODE_INDEX
from npusim.numerics.words import F32, NAN32

_MAX_TRACED_INT_BITS = 16
_HALF, _BFLOAT16 = 1, 2  # bits of keeps_half


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class FormatParams:
    """A format with its mode and saturation as a pytree of 32-bit scalars.

    Goes wherever a dtype goes in `npusim.fake_cast` and `npusim.CastSpec`, with the same bits as
    the static form. Being data, it may be traced, stacked, vmapped over and fed to a scan, so a
    sweep over formats compiles once. Integer formats are meant by value.

    All words are float32 words. ``mode`` is an index into the table of rounding rules.

    Attributes:
        mantissa_bits: kept fraction bits of a normal number.
        min_exponent: exponent below which the spacing of the grid stays constant.
        tapered: 1 for HiFloat8, whose mantissa narrows as the exponent grows.
        max_positive: magnitude of the largest value.
        max_negative: magnitude of the smallest value.
        over_positive: word that replaces a positive overflow.
        over_negative: word that replaces a negative overflow.
        nan: word that replaces NaN.
        least: smallest magnitude the format has (0 but for a scale format).
        sign: the sign bit, 0 where the format has no sign.
        zero_sign: the sign bit where -0 is a value of its own, else 0.
        wrap_bits: width whose low bits survive an integer overflow; 0: no wrapping.
        wrap_signed: 1 for a signed integer.
        identity: 1 for FP32: the word is passed on.
        keeps_half: sources whose inf and NaN stay in both saturation modes: 1 for half (FP16
            itself), 3 for half and bfloat16 (BF16).
        mode: index of the rounding rule.
        max_value: the format's MAX as a float32, for amax scaling; 0.0 where the format has the
            range of float32, so that scaling to MAX means nothing.
    """

    mantissa_bits: Any
    min_exponent: Any
    tapered: Any
    max_positive: Any
    max_negative: Any
    over_positive: Any
    over_negative: Any
    nan: Any
    least: Any
    sign: Any
    zero_sign: Any
    wrap_bits: Any
    wrap_signed: Any
    identity: Any
    keeps_half: Any
    mode: Any
    max_value: Any

    def is_type_of(self, x: Any) -> Any:
        """Whether the format is the type of the array ``x`` itself, so that nothing is cast."""
        if x.dtype == np.float32:
            return self.identity != 0
        names = {"float16": _HALF, "bfloat16": _HALF | _BFLOAT16}
        return self.keeps_half == np.uint32(names.get(x.dtype.name, 1 << 31))

    @classmethod
    def of(
        cls,
        dtype: DataType | str | Any,
        mode: CastMode | str | None = None,
        satmode: SaturationMode | str | bool | None = None,
        *,
        soc: str | None = None,
    ) -> "FormatParams":
        """Return the parameters of a format by the laboratory's rules.

        Args:
            dtype: FP32 (identity), any float format of at most 32 bits, E8M0, or an integer of at
                most 16 bits.
            mode: None means RINT. HYBRID depends on the source's own bits and is excluded.
            satmode: None means ON.
            soc: chip, for formats that differ between chips (HF32).

        Raises:
            InputError: a format or mode that has no traced form.

        Example:
            >>> FormatParams.of("int8", "RINT", "ON").max_value
            np.float32(127.0)
        """
        fmt = dtypes.dtype(dtype)
        rule = CastMode.CAST_RINT if mode is None else cast_mode(mode)
        saturate = saturation_mode("ON" if satmode is None else satmode) is SaturationMode.ON
        return format_params(fmt, rule, saturate, soc)


def format_params(
    fmt: DataType, mode: CastMode, saturate: bool, soc: str | None = None
) -> FormatParams:
    """`FormatParams.of` for resolved arguments; NONE means RINT."""
    mode = CastMode.CAST_RINT if mode is CastMode.CAST_NONE else mode
    grid = fmt.on(soc)
    if mode not in MODE_INDEX:
        raise InputError(
            message(
                f"mode {mode.short} for a traced format",
                ", ".join(m.short for m in MODE_INDEX),
                "HYBRID needs the static form: pass the dtype itself.",
            )
        )
    if isinstance(grid, IntGrid) and fmt.kind == "int" and grid.bits <= _MAX_TRACED_INT_BITS:
        fields = _int_fields(grid, saturate)
    elif isinstance(grid, FloatGrid) and fmt.bits <= F32.bits:
        fields = _float_fields(fmt, grid, saturate)
    elif isinstance(grid, TaperedGrid):
        fields = _tapered_fields(grid, saturate)
    elif isinstance(grid, ScaleGrid):
        fields = _scale_fields(grid)
        mode = CastMode.CAST_TRUNC
    else:
        raise InputError(
            message(
                f"{fmt.short} as a traced format",
                ", ".join(r.short for r in DTYPES if _traceable(r)),
                "Pass one of these, or use the static form.",
            )
        )
    return FormatParams(**_typed({**_DEFAULTS, **fields, "mode": MODE_INDEX[mode]}))


def _traceable(fmt: DataType) -> bool:
    if fmt.kind == "int":
        return fmt.bits <= _MAX_TRACED_INT_BITS
    return fmt.kind in ("float", "scale") and fmt.bits <= F32.bits


_SIGNED = ("mantissa_bits", "min_exponent", "mode")
_DEFAULTS: dict[str, Any] = {
    "tapered": 0,
    "least": 0,
    "sign": F32.sign,
    "zero_sign": F32.sign,
    "wrap_bits": 0,
    "wrap_signed": 0,
    "identity": 0,
    "keeps_half": 0,
}


def _typed(fields: dict[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, value in fields.items():
        kind = np.int32 if name in _SIGNED else np.float32 if name == "max_value" else np.uint32
        out[name] = kind(value)
    return out


def _word(value: Fraction) -> int:
    """The float32 word of a value that float32 holds exactly."""
    word = np.float32(float(value))
    assert Fraction(float(word)) == value, value
    return int(word.view(np.uint32))


def _float_fields(fmt: DataType, grid: FloatGrid, saturate: bool) -> dict[str, Any]:
    clamp = grid.nan_code is None or (saturate and fmt is not DT_FP32)
    top = _word(grid.max)
    over = top if clamp else int(F32.inf) if grid.inf_code is not None else int(NAN32)
    minus = 0 if over == NAN32 else int(F32.sign)
    same_range = grid.exponent_bits == 8
    return {
        "mantissa_bits": grid.mantissa_bits,
        "min_exponent": grid.min_exponent,
        "max_positive": top,
        "max_negative": top,
        "over_positive": over,
        "over_negative": over | minus,
        "nan": 0 if clamp else NAN32,
        "zero_sign": int(F32.sign) if grid.negative_zero else 0,
        "identity": int(fmt is DT_FP32),
        "keeps_half": {DT_FP16: _HALF, DT_BF16: _HALF | _BFLOAT16}.get(fmt, 0),
        "max_value": 0.0 if same_range else float(grid.max),
    }


def _tapered_fields(grid: TaperedGrid, saturate: bool) -> dict[str, Any]:
    top = _word(grid.max)
    over = top if saturate else int(F32.inf)
    return {
        "mantissa_bits": 0,
        "min_exponent": grid.quantum_exponent,
        "tapered": 1,
        "max_positive": top,
        "max_negative": top,
        "over_positive": over,
        "over_negative": over | int(F32.sign),
        "nan": 0 if saturate else NAN32,
        "zero_sign": 0,
        "max_value": float(grid.max),
    }


def _int_fields(grid: IntGrid, saturate: bool) -> dict[str, Any]:
    return {
        # All of float32's fraction is kept, and the spacing never falls below 1.
        "mantissa_bits": F32.mantissa_bits,
        "min_exponent": F32.mantissa_bits,
        "max_positive": _word(grid.max),
        "max_negative": _word(-grid.min),
        "over_positive": _word(grid.max),
        "over_negative": _word(grid.min),
        "nan": 0,
        "sign": F32.sign if grid.signed else 0,
        "zero_sign": 0,
        "wrap_bits": 0 if saturate else grid.bits,
        "wrap_signed": int(grid.signed),
        "max_value": float(grid.max),
    }


def _scale_fields(grid: ScaleGrid) -> dict[str, Any]:
    # The exponent field of the value; its lowest value 2**-127 is a float32 subnormal.
    return {
        "mantissa_bits": 0,
        "min_exponent": 1 - F32.bias,
        "max_positive": _word(grid.max),
        "max_negative": _word(grid.max),
        "over_positive": NAN32,
        "over_negative": NAN32,
        "nan": NAN32,
        "least": _word(grid.min),
        "sign": 0,
        "zero_sign": 0,
        "max_value": 0.0,
    }
