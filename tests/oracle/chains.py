"""Casts of the entry points that are not one laboratory cast: deq, integral rounding, chains."""

from fractions import Fraction

from tests.oracle.casts import cast, round_to_integer
from tests.oracle.formats import (
    FORMATS,
    INF,
    NAN,
    NEG_INF,
    NEG_ZERO,
    IntFormat,
    Special,
    decode,
    encode,
)

PYPTO_EDGE_PAIRS = frozenset({("f32", "s16"), ("f16", "s16"), ("f16", "s8")})
FLOAT_SOURCES = frozenset({"f32", "f16", "bf16"})
FP8 = frozenset({"e4m3fn", "e5m2"})
Step = tuple[str, str, bool | None]  # destination, mode, saturation (None: the overflow mode)


def deq(src: int, scale_code: int, overflow_sat: bool) -> int:
    """Half code of int32 `src` (a number or its code) times a half scale.

    Round to float32, multiply in float32, round to half: three roundings to nearest even.

    Special values: IEEE multiplication (assumed), so 0 * inf is NaN and 0 * -1 is -0.
    """
    if not -(1 << 31) <= src < 1 << 32:
        raise ValueError(f"{src} is not an int32")
    source = decode(cast(src % (1 << 32), "s32", "f32", "RINT", False), "f32")
    scale = decode(scale_code, "f16")
    product = _multiply(source, scale)
    if isinstance(product, Special):
        word = encode(product, "f32")
    else:
        assert abs(product) <= 2**31 * 65504  # no overflow, and below 53 significant bits
        word = cast(encode(product, "f64"), "f64", "f32", "RINT", False)
    return cast(word, "f32", "f16", "RINT", overflow_sat)


def _multiply(source: Fraction, scale: Fraction | Special) -> Fraction | Special:
    if scale is NAN or (source == 0 and scale in (INF, NEG_INF)):
        return NAN
    if scale in (INF, NEG_INF):
        return INF if (source > 0) == (scale is INF) else NEG_INF
    negative_scale = scale is NEG_ZERO or scale < 0
    product = source * (Fraction(0) if scale is NEG_ZERO else scale)
    if product == 0 and (source < 0) != negative_scale:
        return NEG_ZERO
    return product


def integral_f32(code: int, mode: str) -> int:
    """Float32 rounded to an integral float32; a zero result is +0, inf and NaN stay.

    Assumed: NaN comes out as the canonical code, as out of every cast that computes.
    """
    value = decode(code, "f32")
    if value is NEG_ZERO:
        return 0
    if isinstance(value, Special):
        return encode(value, "f32")
    return encode(Fraction(round_to_integer(value, mode)), "f32")


def pypto_edge(code: int, src: str, dst: str, mode: str, sat: bool) -> int:
    """Float to int as pypto.cast does it: OFF sends +inf to -1 and -inf to 0 for three pairs."""
    value = decode(code, src)
    if not sat and (src, dst) in PYPTO_EDGE_PAIRS and value in (INF, NEG_INF):
        return encode(Fraction(-1 if value is INF else 0), dst)
    return cast(code, src, dst, mode, sat)


def run(code: int, src: str, steps: tuple[Step, ...], overflow_sat: bool) -> int:
    """Apply casts one after the other."""
    for dst, mode, sat in steps:
        code = cast(code, src, dst, mode, overflow_sat if sat is None else sat)
        src = dst
    return code


def aclnn_950(code: int, src: str, dst: str, overflow_sat: bool) -> int:
    """The aclnn Cast operator on 950, chain by chain.

    Raises:
        LookupError: the documents do not give the pair's path.
    """
    return run(code, src, path_950(src, dst), overflow_sat)


def aclnn_a2a3(code: int, src: str, dst: str, overflow_sat: bool) -> int:
    """The aclnn Cast operator on A2 and A3, chain by chain.

    Raises:
        LookupError: the documents do not give the pair's path.
    """
    return run(code, src, path_a2a3(src, dst), overflow_sat)


def path_950(src: str, dst: str) -> tuple[Step, ...]:
    """Steps of the operator library's cast on 950.

    Assumed: the int64 step of float to uint8 saturates as the int32 step does, int32 and int64
    results of floats saturate, bfloat16 to uint8 goes the way of float.
    """
    source, target = FORMATS[src], FORMATS[dst]
    if dst == "bool":
        return ((dst, "TRUNC", False),)
    if src in FLOAT_SOURCES and isinstance(target, IntFormat):
        if dst in ("s8", "s16") or (src, dst) == ("f16", "u8"):
            return (("s32", "TRUNC", True), (dst, "TRUNC", False))
        if dst == "u8":
            return (("s64", "TRUNC", True), (dst, "TRUNC", False))
        if dst in ("s32", "s64"):
            return ((dst, "TRUNC", True),)
    if isinstance(source, IntFormat) and isinstance(target, IntFormat):
        return ((dst, "TRUNC", False),)
    table: dict[tuple[str, str], tuple[Step, ...]] = {
        ("s64", "f16"): (("f32", "RINT", None), ("f16", "RINT", None)),
        ("s64", "bf16"): (("f32", "RINT", None), ("bf16", "RINT", None)),
        ("u16", "f16"): (("s32", "RINT", False), ("f16", "RINT", None)),
        ("u16", "f32"): (("s32", "RINT", False), ("f32", "RINT", None)),
        ("s8", "f32"): (("f16", "RINT", None), ("f32", "RINT", None)),
        ("s16", "bf16"): (("f32", "RINT", None), ("bf16", "RINT", None)),
        ("u32", "f32"): (("s64", "RINT", False), ("f32", "RINT", None)),
        ("hif8", "bf16"): (("f16", "RINT", None), ("bf16", "RINT", None)),
    }
    if (src, dst) in table:
        return table[src, dst]
    if src in FLOAT_SOURCES:
        return _path_950_from_float(src, dst)
    if src in FP8:
        if dst == "f32":
            return (("f32", "RINT", None),)
        if dst in ("f16", "bf16"):
            return (("f32", "RINT", None), (dst, "RINT", None))
        if dst in ("e2m1", "e1m2"):
            return (("f32", "RINT", None), ("bf16", "RINT", None), (dst, "RINT", None))
    if src == "hif8" and dst in ("f16", "f32"):
        return ((dst, "RINT", None),)
    raise LookupError(f"no document gives the path from {src} to {dst}")


def _path_950_from_float(src: str, dst: str) -> tuple[Step, ...]:
    if dst == "hif8":
        return ((dst, "ROUND", None),)
    if dst in FP8:
        via: tuple[Step, ...] = () if src == "f32" else (("f32", "RINT", None),)
        return (*via, (dst, "RINT", None))
    if dst in ("e2m1", "e1m2"):
        via = () if src == "bf16" else (("bf16", "RINT", None),)
        return (*via, (dst, "RINT", None))
    if dst in ("f32", "f16", "bf16"):
        return ((dst, "RINT", None),)
    raise LookupError(f"no document gives the path from {src} to {dst}")


def path_a2a3(src: str, dst: str) -> tuple[Step, ...]:
    """Steps of the operator library's cast on A2 and A3.

    Assumed: the int32 step of float to 8 bits saturates; int32 to int8 enters half as deq with
    scale 1 does (through float32) and leaves it by its low bits.
    """
    if src in FLOAT_SOURCES and dst in ("s8", "u8"):
        return (("s32", "TRUNC", True), (dst, "TRUNC", False))
    if src in FLOAT_SOURCES and dst in ("s16", "s32", "s64"):
        return ((dst, "TRUNC", True),)
    if src == "f32" and dst in ("bf16", "f16"):
        return ((dst, "RINT", None),)
    if (src, dst) == ("s32", "s8"):
        return (("f32", "RINT", None), ("f16", "RINT", None), ("s8", "TRUNC", False))
    if src in ("s8", "u8") and dst in ("f32", "s32"):
        return (("f16", "RINT", None), (dst, "TRUNC", False))
    raise LookupError(f"no document gives the path from {src} to {dst}")
