"""The vendor tables as they are printed, in their own abbreviations, and the code's rules again.

Nothing here imports the package under test.
"""

import csv
from pathlib import Path

GOLDEN = Path(__file__).parent.parent / "golden"
TYPES = tuple(
    [
        "f32",
        "f16",
        "f64",
        "bf16",
        "s8",
        "u8",
        "s16",
        "u16",
        "s32",
        "u32",
        "s64",
        "u64",
        "bool",
        "c32",
        "c64",
        "c128",
    ]
)
UNSIGNED = ("u16", "u32", "u64")
FLOATS = ("f16", "f32", "f64", "bf16")
COMPLEX = ("c32", "c64", "c128")
PAIRS = tuple((a, b) for a in TYPES for b in TYPES)
NOTHING = None


def printed(name: str) -> dict[tuple[str, str], str | None]:
    lines = (GOLDEN / f"promotion_{name}.csv").read_text(encoding="utf-8").splitlines()
    head, *rows = csv.reader(line for line in lines if not line.startswith("#"))
    return {
        (row[0], column): NOTHING if cell in ("N/A", "NA", "UNDEFINED") else cell
        for row in rows
        for column, cell in zip(head[1:], row[1:], strict=True)
    }


def chinese() -> dict[tuple[str, str], str | None]:
    """The Chinese edition's table completed by the notes above it."""
    table = printed("chinese_page")
    whole: dict[tuple[str, str], str | None] = {}
    for a, b in PAIRS:
        if a in UNSIGNED or b in UNSIGNED:
            whole[a, b] = a if a == b else NOTHING
        elif "bool" in (a, b):
            whole[a, b] = b if a == "bool" else a
        else:
            whole[a, b] = table[a, b]
    return whole


CODE = printed("opbase")


def category_rule(tensor: str, scalar: str) -> str | None:
    """CombineCategoriesWithComplex of the operator library."""
    if tensor in COMPLEX:
        return tensor
    if scalar in COMPLEX:
        return {"f16": "c32", "bf16": "c64", "f32": "c64", "f64": "c128"}.get(tensor, scalar)
    if tensor in FLOATS:
        return tensor
    if tensor == "bool" or scalar in FLOATS:
        return CODE[tensor, scalar]
    return tensor


def on_950(tensor: str, scalar: str, keep_c32: bool = False) -> str | None:
    default = "c64" if scalar in COMPLEX else "f32" if scalar in FLOATS else scalar
    result = category_rule(tensor, default)
    return "c64" if result == "c32" and not keep_c32 else result


def on_a2a3(op: str, t: str, s: str, out_f32: bool) -> str | None:
    """The per-operator rules of A2/A3, first match wins."""
    promoted = CODE[t, s]
    if op in ("add", "sub", "mul"):
        if t in COMPLEX or s in COMPLEX:
            return promoted
        if t in FLOATS:
            return "f32" if op == "mul" and t == "bf16" else t
        if s == "f64" and (out_f32 or (op == "mul" and t == "bool")):
            return "f32"
        return promoted if s in FLOATS or t == "bool" else t
    if op == "div":
        if (t, s) in (("s32", "s32"), ("bool", "bool")):
            return t
        base = t if t in FLOATS or t in COMPLEX else "f32"
        return CODE[base, s] if s in COMPLEX else base
    if op == "eq":
        if t in COMPLEX:
            return t
        if t in FLOATS and s not in COMPLEX:
            return t
        return promoted if t == "bool" or s in (*FLOATS, *COMPLEX) else t
    assert op == "pow"
    if s == "f64" and out_f32:
        return "f32"
    if s in COMPLEX:
        return promoted
    if t in FLOATS:
        return t
    return promoted if s in FLOATS or t == "bool" else t
