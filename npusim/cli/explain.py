"""How one value goes through one step of a cast: its fields, the bits kept and lost, the carry.

All of it is worked out here with integers and fractions, beside the kernels and not from them.
"""

import dataclasses
from collections.abc import Sequence
from fractions import Fraction

from npusim._grids import FloatGrid, Grid, IntGrid, ScaleGrid, TaperedGrid
from npusim.casting.resolve import Step
from npusim.cli.exact import (
    Exact,
    binary,
    decimal,
    exact_values,
    floor_log2,
    hexadecimal,
    quantum_exponent,
    signed,
    width,
    word_format,
)
from npusim.dtypes import DT_FP16, DT_HF32, DataType
from npusim.modes import CastMode

_SHOWN_BITS = 56  # of the discarded part; a double into FP4 has more
_HYBRID_OVERFLOW = 40960
_TAPER = (("11", 2), ("10", 2), ("01", 2), ("001", 3), ("0001", 4), ("0000", 4))


@dataclasses.dataclass(frozen=True)
class Field:
    """A group of bits of a code, and what it means."""

    name: str
    bits: str
    meaning: str = ""


@dataclasses.dataclass(frozen=True)
class Dissection:
    """One value, one step.

    Attributes:
        step: e.g. ``fp32 -> fp16, RINT``.
        source, result: value, code in hexadecimal, and its fields.
        kept, discarded: the bits of the magnitude, kept with its binary point; empty if the step
            has no such division (integers, infinities, NaN).
        exponent: the power of two that ``kept`` is multiplied with.
        last, guard, sticky, carry: the last kept bit, the first discarded one, whether any other
            discarded bit is set, and what is added to the last kept bit.
        why: why the carry is what it is.
        overflow: what happened beyond the range, empty if nothing did.
    """

    step: str
    source: str
    source_code: str
    source_fields: tuple[Field, ...]
    result: str
    result_code: str
    result_fields: tuple[Field, ...]
    kept: str = ""
    discarded: str = ""
    exponent: int = 0
    last: int = 0
    guard: int = 0
    sticky: int = 0
    carry: int = 0
    why: str = ""
    overflow: str = ""


def fields(code: int, fmt: DataType, soc: str | None = None) -> tuple[Field, ...]:
    """The bit fields of a code of a real format (of a float32 word for HF32)."""
    grid = fmt.on(soc)
    if isinstance(grid, IntGrid):
        digits = f"{code:0{width(fmt)}b}"
        signed = grid.signed and width(fmt) > 1
        kind = "two's complement" if signed else "unsigned"
        return (Field(kind, binary(code, width(fmt))[2:] if len(digits) > 1 else digits),)
    if isinstance(grid, ScaleGrid):
        meaning = "NaN" if code == grid.nan_code else f"{code} - {grid.bias} = {code - grid.bias}"
        return (Field("exponent", f"{code:08b}", meaning),)
    if isinstance(grid, TaperedGrid):
        return _tapered_fields(code, grid)
    assert isinstance(grid, FloatGrid)
    if fmt is DT_HF32:
        code >>= 32 - 1 - grid.exponent_bits - grid.mantissa_bits
    total = 1 + grid.exponent_bits + grid.mantissa_bits
    digits = f"{code:0{total}b}"
    exponent = digits[1 : 1 + grid.exponent_bits]
    size = code & ((1 << (total - 1)) - 1)
    return (
        Field("sign", digits[0]),
        Field("exponent", exponent, _exponent_meaning(size, int(exponent, 2), grid)),
        Field("mantissa", digits[1 + grid.exponent_bits :]),
    )


def _exponent_meaning(size: int, field: int, grid: FloatGrid) -> str:
    if size == grid.inf_code:
        return "infinity"
    if grid.nan_code is not None and size > max(grid.max_code, grid.inf_code or 0):
        return "NaN"
    if field == 0:
        return "zero" if size == 0 else f"subnormal: {grid.min_exponent}"
    return f"{field} - {grid.bias} = {field - grid.bias}"


def _tapered_fields(code: int, grid: TaperedGrid) -> tuple[Field, ...]:
    digits = f"{code:08b}"
    body = digits[1:]
    dot, length = next((d, n) for d, n in _TAPER if body.startswith(d))
    rest = body[length:]
    sign = Field("sign", digits[0])
    if dot == "0000":
        meaning = {0: "zero", grid.nan_code: "NaN"}.get(code, f"2^({int(rest, 2)} - 23)")
        return sign, Field("dot", dot, "power of two"), Field("mantissa", rest, meaning)
    # After the exponent's sign come its bits below the leading one, which the dot implies.
    long = {"11": 4, "10": 3, "01": 2, "001": 1, "0001": 0}[dot]
    exponent, mantissa = rest[:long], rest[long:]
    value = 0
    if exponent:
        value = int("1" + exponent[1:], 2) * (-1 if exponent[0] == "1" else 1)
    meaning = "infinity" if code & 0x7F == grid.inf_code else str(value)
    shown = Field("exponent", exponent or "-", meaning)
    return sign, Field("dot", dot, f"{long} exponent bits"), shown, Field("mantissa", mantissa)


def dissect(
    source_codes: Sequence[int], result_codes: Sequence[int], step: Step, soc: str | None = None
) -> list[Dissection]:
    """Explain a step for every value that went through it."""
    src, dst = word_format(step.src), word_format(step.dst)
    before, after = exact_values(source_codes, src), exact_values(result_codes, dst)
    return [
        _one(given, code, got, out, step, soc)
        for given, code, got, out in zip(before, source_codes, after, result_codes, strict=True)
    ]


def _one(given: Exact, code: int, got: Exact, out: int, step: Step, soc: str | None) -> Dissection:
    src, dst = step.src, step.dst
    mode = f", {step.mode.short}" if step.kind != "deq" else ""
    done = Dissection(
        step=f"{src} -> {dst}{' (to an integral value)' * (step.kind == 'integral')}{mode}",
        source=str(given),
        source_code=hexadecimal(code, width(src)),
        source_fields=fields(code, src, soc),
        result=str(got),
        result_code=hexadecimal(out, width(dst)),
        result_fields=fields(out, dst, soc),
    )
    if dst.kind == "bool":
        return dataclasses.replace(done, why=f"{given} is {'not ' * bool(out)}zero")
    if given.kind == "nan":
        return dataclasses.replace(done, overflow=f"NaN becomes {got}")
    grid = IntGrid(bits=32, signed=True) if step.kind == "integral" else dst.on(soc)
    if given.kind == "inf":
        return dataclasses.replace(done, overflow=_overflow(given, None, got, step))
    if given.magnitude == 0 and not isinstance(grid, ScaleGrid):
        return dataclasses.replace(done, why="zero: there is nothing to round")
    if isinstance(grid, ScaleGrid):
        why = "the exponent alone is kept; sign and mantissa are dropped, nothing is rounded"
        return dataclasses.replace(done, why=why)
    if src.kind in ("int", "bool") and isinstance(grid, IntGrid):
        return dataclasses.replace(done, overflow=_range(given.value, got, step))
    parts = _round(given, code, grid, step)
    rounded = parts.pop("rounded")
    beyond = "" if step.kind == "integral" else _range(rounded, got, step)
    if step.mode is CastMode.CAST_HYBRID and given.magnitude >= _HYBRID_OVERFLOW:
        beyond = f"{decimal(given.magnitude)} >= {_HYBRID_OVERFLOW}: "
        beyond += _overflow(None, rounded, got, step)
    return dataclasses.replace(done, **parts, overflow=beyond)


def _round(given: Exact, code: int, grid: Grid, step: Step) -> dict:
    """Divide a magnitude into kept and discarded bits, and decide about the carry."""
    power = quantum_exponent(given.magnitude, grid)
    unit = Fraction(2) ** power
    kept = int(given.magnitude / unit)
    rest = given.magnitude / unit - kept  # in [0, 1)
    tail = _bits_of(rest)
    least = quantum_exponent(Fraction(0), step.src.grid)
    if not isinstance(step.src.grid, IntGrid) and given.magnitude:
        least = quantum_exponent(given.magnitude, step.src.grid)
    tail = tail.ljust(max(power - least, 0), "0")  # the source's own zeros belong to the picture
    guard, sticky = int(rest >= Fraction(1, 2)), int(rest not in (0, Fraction(1, 2)))
    last = _last_bit(kept, power, grid)
    carry, why = _carry(given, code, rest, last, step)
    fraction = 0 if isinstance(grid, IntGrid) else _fraction_bits(given.magnitude, grid)
    digits = f"{kept:b}".rjust(fraction + 1, "0")
    head = digits[: len(digits) - fraction]
    shown = f"{head}.{digits[len(digits) - fraction :]}" if fraction else head
    rounded = (kept + carry) * unit
    return {
        "kept": shown,
        "discarded": _short(tail),
        "exponent": power + fraction,
        "last": last,
        "guard": guard,
        "sticky": sticky,
        "carry": carry,
        "why": why,
        "rounded": -rounded if given.negative else rounded,
    }


def _fraction_bits(magnitude: Fraction, grid: Grid) -> int:
    if isinstance(grid, FloatGrid):
        return grid.mantissa_bits
    exponent = floor_log2(magnitude) if magnitude else 0
    return max(exponent - quantum_exponent(magnitude, grid), 0) if magnitude else 0


def _bits_of(rest: Fraction) -> str:
    """The binary digits of a fraction below one, without trailing zeros."""
    count = rest.denominator.bit_length() - 1
    return f"{rest.numerator:0{count}b}" if count else ""


def _short(bits: str) -> str:
    if len(bits) <= _SHOWN_BITS:
        return bits
    half = _SHOWN_BITS // 2
    return f"{bits[:half]}...{bits[-half:]} ({len(bits)} bits)"


def _last_bit(kept: int, power: int, grid: Grid) -> int:
    if isinstance(grid, TaperedGrid) and kept and power < grid.min_exponent - 1:
        return (power - grid.quantum_exponent + 1) & 1  # there the code itself counts the powers
    return kept & 1


def _carry(given: Exact, code: int, rest: Fraction, last: int, step: Step) -> tuple[int, str]:
    """What is added to the last kept bit, and the rule that says so."""
    half = Fraction(1, 2)
    if step.mode is CastMode.CAST_HYBRID:
        return _hybrid(given, code, rest, step)
    if rest == 0:
        return 0, "nothing but zeros is discarded: no carry"
    side = "negative" if given.negative else "positive"
    match step.mode:
        case CastMode.CAST_RINT if rest == half:
            return last, f"a tie, and the last kept bit is {('even: no carry', 'odd: carry')[last]}"
        case CastMode.CAST_RINT | CastMode.CAST_ROUND:
            if rest == half:
                return 1, "a tie goes away from zero: carry"
            up = int(rest > half)
            return up, ("below one half: no carry", "above one half: carry")[up]
        case CastMode.CAST_FLOOR:
            up = int(given.negative)
            return up, f"inexact and {side}: {('no carry', 'carry')[up]}"
        case CastMode.CAST_CEIL:
            up = int(not given.negative)
            return up, f"inexact and {side}: {('no carry', 'carry')[up]}"
        case CastMode.CAST_ODD:
            up = 1 - last
            return up, f"inexact, last kept bit {('odd: no carry', 'even: carry')[up]}"
        case _:
            return 0, "the discarded bits are dropped: no carry"


def _hybrid(given: Exact, code: int, rest: Fraction, step: Step) -> tuple[int, str]:
    """HYBRID compares the bits after the kept ones with a threshold out of the source's own."""
    exponent = floor_log2(given.magnitude) if given.magnitude else -24
    if exponent < -23 or given.magnitude >= _HYBRID_OVERFLOW:
        return 0, "zero below 2^-23" if exponent < -23 else "from 40960 on every mode overflows"
    if abs(exponent) <= 3:
        up = int(rest >= Fraction(1, 2))
        return up, f"exponent {exponent}: as ROUND, by the guard bit: {('no carry', 'carry')[up]}"
    if step.src is DT_FP16:
        window, threshold, where = 2, (code & 1) << 1 | 1, "{bit 0 of the half, 1}"
    else:
        window, threshold, where = 14, code & 0x3FFF, "bits 13..0 of the float"
    following = int(rest * (1 << window))
    up = int(following >= threshold)
    sign = ">=" if up else "<"
    verdict = ("no carry", "carry")[up]
    return up, (f"the next {window} bits = {following} {sign} {threshold} = {where}: {verdict}")


def _text(value: Fraction) -> str:
    return signed(decimal(abs(value)), value < 0)


def _range(value: Fraction, got: Exact, step: Step) -> str:
    """What happens to a rounded value beyond the destination's range; empty inside it."""
    low, high = step.dst.min, step.dst.max
    if low <= value <= high:
        return ""
    side = f"{_text(value)} > {_text(high)}" if value > high else f"{_text(value)} < {_text(low)}"
    return f"{side}: {_overflow(None, value, got, step)}"


def _overflow(given: Exact | None, value: Fraction | None, got: Exact, step: Step) -> str:
    dst = step.dst
    what = f"{given} becomes {got}" if given is not None else f"becomes {got}"
    if dst.kind != "int":
        if got.kind == "inf" or (got.kind == "nan"):
            lacks = f" ({dst} has no infinity)" if got.kind == "nan" else ""
            return f"{what}{lacks}"
        return f"{what}, the {'largest' if not got.negative else 'smallest'} finite value"
    if given is not None:
        if step.inf_wraps:
            return f"{what}: it passes through a saturating int32 whose low bits are kept"
        if step.through_bits:
            return f"{what}: low bits of a saturating int{step.through_bits}"
        return f"{what}, whatever the saturation mode"
    bits = width(dst)
    assert value is not None
    if step.through_bits and not _fits(value, step.through_bits):
        bound = "MAX" if value > 0 else "MIN"
        return f"int{step.through_bits} {bound}, and its low {bits} bits: {got}"
    exact = int(value)
    low = exact % (1 << bits)
    if low == int(got.value) % (1 << bits) and got.value not in (dst.min, dst.max):
        shown = binary(exact % (1 << max(exact.bit_length() + 1, bits)), 0)[2:]
        shown = shown if exact.bit_length() <= 64 else f"...{binary(low, bits)[2:]}"
        return f"the low {bits} bits of {shown} are kept: {got}"
    if low == int(got.value) % (1 << bits) and not step.saturate:
        return f"the low {bits} bits are kept: {got}"
    return f"clamped to {got}"


def _fits(value: Fraction, bits: int) -> bool:
    return -(1 << (bits - 1)) <= value < 1 << (bits - 1)
