"""Which casts a chip and entry point have: the tables, read from data."""

import csv
import dataclasses
import functools
import importlib.resources
import itertools
from typing import Literal

from npusim.dtypes import DTYPES, DataType, dtype
from npusim.modes import CastMode, SoC, Target, cast_mode

Kind = Literal["convert", "integral", "deq"]

DEFAULT_RINT = CastMode.CAST_RINT

# The types aclnnCast takes on each chip; INT4 as destination only.
_ACLNN_COMMON = (
    "fp32 fp16 fp64 bf16 int64 int32 int16 int8 uint8 uint16 uint32 uint64 bool complex64 "
    "complex128"
)
_ACLNN_950 = _ACLNN_COMMON + " hif8 fp8_e5m2 fp8_e4m3 fp4_e2m1 fp4_e1m2 complex32 int4"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SupportedCast:
    """One row of a chip's table of casts.

    Attributes:
        target: the chip and entry point.
        src: source format.
        dst: destination format.
        modes: modes the pair takes; empty: it takes none (there is nothing to choose).
        default: what CAST_NONE means for the pair, None where NONE is refused.
        kind: ``convert``; ``integral``: same type, rounded to an integral value; ``deq``: int32
            times a half scale.
        takes_satmode: whether ``satmode`` bears on the pair.
        inf_wraps: OFF sends +inf to -1 and -inf to 0.
        steps: for aclnn, the chain of casts that runs.
        grade: ``documented``, ``implementation``, ``assumed`` or ``hypothetical``.
        source: where the row stands.
        note: what is peculiar about it.
    """

    target: Target
    src: DataType
    dst: DataType
    modes: tuple[CastMode, ...]
    default: CastMode | None
    kind: Kind = "convert"
    takes_satmode: bool = False
    inf_wraps: bool = False
    steps: str = ""
    grade: str = "documented"
    source: str = ""
    note: str = ""


def _read(name: str) -> list[dict[str, str]]:
    text = (importlib.resources.files("npusim.casting") / "data" / f"{name}.csv").read_text("utf-8")
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))


_SOURCES = {
    ("pypto", ""): "pypto.cast page",
    ("ascendc", ""): "Ascend C Memory Cast page",
    ("ascendc", "memory"): "Ascend C Memory Cast page",
    ("ascendc", "reg"): "Ascend C Reg Cast page",
}


@functools.cache
def _table(soc: SoC, api: str, level: str) -> dict[tuple[DataType, DataType], SupportedCast]:
    if api == "aclnn":
        return _aclnn_table(soc)
    target = Target(soc=soc, api=api, level=level or "memory")
    rows: dict[tuple[DataType, DataType], SupportedCast] = {}
    for row in _read(api):
        if row["soc"] != soc or row["level"] != level:
            continue
        flags = row["flags"].split("|")
        src, dst = dtype(row["src"]), dtype(row["dst"])
        rows[src, dst] = SupportedCast(
            target=target,
            src=src,
            dst=dst,
            modes=tuple(cast_mode(m) for m in row["modes"].split("|") if m),
            default=_default(api, row["default"], row["kind"]),
            kind=row["kind"],  # pyright: ignore[reportArgumentType]
            takes_satmode="satmode" in flags,
            inf_wraps="inf_wraps" in flags,
            source=_SOURCES[api, level],
            note=row["note"],
        )
    return rows


def _default(api: str, text: str, kind: str) -> CastMode | None:
    if api == "ascendc":  # NONE is RINT where the pair lists it
        return DEFAULT_RINT if text == "NONE" or kind == "deq" else None
    return cast_mode(text) if text else DEFAULT_RINT


def _members(text: str, known: tuple[DataType, ...]) -> set[DataType]:
    out: set[DataType] = set()
    for name in text.split("|"):
        if name == "@any":
            out |= set(known)
        elif name == "@int":
            out |= {d for d in known if d.kind == "int" and d.bits >= 8}
        else:
            out.add(dtype(name))
    return out


def _aclnn_table(soc: SoC) -> dict[tuple[DataType, DataType], SupportedCast]:
    listed = _ACLNN_950 if soc is SoC.ASCEND_950PR else _ACLNN_COMMON
    known = tuple(dtype(name) for name in listed.split())
    target = Target(soc=soc, api="aclnn")
    source = (
        "hicann/ops-math cast_struct.h" if soc is SoC.ASCEND_950PR else "CANN 8.1 dynamic/cast.py"
    )
    rows: dict[tuple[DataType, DataType], SupportedCast] = {}
    for row in _read("aclnn"):
        if row["soc"] != soc:
            continue
        pairs = itertools.product(_members(row["srcs"], known), _members(row["dsts"], known))
        for src, dst in pairs:
            if src is dst or src.short == "int4" or (src, dst) in rows:
                continue
            rows[src, dst] = SupportedCast(
                target=target,
                src=src,
                dst=dst,
                modes=(),
                default=None,
                steps=row["steps"],
                grade=row["grade"],
                source="aclnnCast page" if row["grade"] == "documented" else source,
                note=row["note"],
            )
    return rows


def _level(soc: SoC, api: str, level: str) -> str:
    return level if api == "ascendc" and soc is SoC.ASCEND_950PR else ""


def table(target: Target) -> dict[tuple[DataType, DataType], SupportedCast]:
    """The rows of ``target`` by pair; empty for the laboratory, which has no table."""
    if target.api == "numerics":
        return {}
    return _table(target.soc, target.api, _level(target.soc, target.api, target.level))


@functools.cache
def targets() -> tuple[Target, ...]:
    """Every chip and entry point that has a table."""
    return (
        Target("A2A3", "pypto"),
        Target("950PR", "pypto"),
        Target("A2A3", "ascendc"),
        Target("950PR", "ascendc", level="memory"),
        Target("950PR", "ascendc", level="reg"),
        Target("A2A3", "aclnn"),
        Target("950PR", "aclnn"),
    )


def supported_casts(target: Target) -> tuple[SupportedCast, ...]:
    """Return every cast that ``target`` has, in the order of its source.

    For the laboratory: every pair of formats with every mode.

    Example:
        >>> from npusim.modes import Target
        >>> len(supported_casts(Target("A2A3", "pypto")))
        25
    """
    if target.api != "numerics":
        order = {row: index for index, row in enumerate(DTYPES)}
        rows = table(target).values()
        if target.api == "aclnn":
            return tuple(sorted(rows, key=lambda r: (order[r.src], order[r.dst])))
        return tuple(rows)
    real = [row for row in DTYPES if row.short != "hf32"]
    return tuple(
        laboratory_row(target, src, dst) for src in real for dst in DTYPES if src is not dst
    )


def laboratory_row(target: Target, src: DataType, dst: DataType) -> SupportedCast:
    """The laboratory's row of a pair: every mode; HYBRID towards HiFloat8 from float and half."""
    modes = [m for m in CastMode if m not in (CastMode.CAST_NONE, CastMode.CAST_HYBRID)]
    if dst.short == "hif8" and src.short in ("fp32", "fp16"):
        modes.append(CastMode.CAST_HYBRID)
    return SupportedCast(
        target=target,
        src=src,
        dst=dst,
        modes=tuple(modes),
        default=DEFAULT_RINT,
        takes_satmode=True,
        source="npusim numerics",
        grade="hypothetical" if who_has(src, dst) == () else "documented",
    )


def who_has(src: DataType, dst: DataType) -> tuple[Target, ...]:
    """The chips and entry points that have the pair."""
    return tuple(t for t in targets() if (src, dst) in table(t))
