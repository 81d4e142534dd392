"""What a requested cast really does: the mode after fallback, the saturation, the steps."""

import dataclasses
import functools
import warnings
from collections.abc import Iterable
from typing import Any, Literal

from npusim import dtypes
from npusim._errors import CastFallbackWarning, InputError, UnsupportedCastError, message
from npusim._grids import FloatGrid, IntGrid, ScaleGrid, TaperedGrid
from npusim.casting.support import (
    SupportedCast,
    laboratory_row,
    table,
    targets,
    who_has,
)
from npusim.dtypes import DT_BF16, DT_FP16, DT_HF8, DataType
from npusim.modes import (
    CastMode,
    OverflowMode,
    SaturationMode,
    Target,
    cast_mode,
    saturation_mode,
)

PYPTO = Target("950PR", "pypto")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
    """One cast of a chain.

    Attributes:
        src: source format.
        dst: destination format.
        mode: the rounding rule that runs.
        saturate: whether what lies outside the range is clamped.
        kind: ``convert``, ``integral`` (same type, integral values), or ``deq``.
        through_bits: low bits of a saturating integer of this width (0: not so).
        inf_wraps: infinities become -1 and 0.
    """

    src: DataType
    dst: DataType
    mode: CastMode
    saturate: bool
    kind: Literal["convert", "integral", "deq"] = "convert"
    through_bits: int = 0
    inf_wraps: bool = False

    def __str__(self) -> str:
        how = {"integral": "to an integral value, ", "deq": "times the scale, "}.get(self.kind, "")
        over = _beyond(self.dst, self.saturate)
        if self.through_bits:
            over = f"low bits of a saturating int{self.through_bits}"
        elif self.inf_wraps:
            over = "keep low bits, +inf to -1, -inf to 0"
        return f"{self.src} -> {self.dst}: {how}{self.mode.short}{over and ', '}{over}"


def _beyond(dst: DataType, saturate: bool) -> str:
    """What happens to a value beyond the range of ``dst``, in a few words."""
    grid = dst.part.grid
    if isinstance(grid, IntGrid):
        return "" if dst.kind == "bool" else "clamp" if saturate else "keep low bits"
    if isinstance(grid, ScaleGrid):
        return "inf and NaN become NaN"
    if isinstance(grid, FloatGrid) and grid.nan_code is None:
        return "clamp, NaN becomes 0"
    if dst.part.bits >= 32 or not saturate:
        lacks = getattr(grid, "inf_code", None) is None
        return f"overflow becomes {'NaN' if lacks else 'inf'}, NaN stays"
    return "clamp to MAX, NaN becomes 0"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResolvedCast:
    """What a cast does, step by step.

    Attributes:
        src: source format.
        dst: destination format.
        target: chip and entry point.
        requested: the mode that was asked for.
        mode: the mode that runs (of the last step that can round).
        satmode: the saturation that runs.
        steps: the chain; empty where the input is returned as it is.
        fallback: the requested mode is not available and another one runs.
        exact: no value changes: every value of the source is one of the destination.
        grade: ``documented``, ``implementation``, ``measured``, ``assumed`` or ``hypothetical``.
        source: where the rule stands.
        notes: what else to know.
    """

    src: DataType
    dst: DataType
    target: Target
    requested: CastMode
    mode: CastMode
    satmode: SaturationMode
    steps: tuple[Step, ...]
    fallback: bool
    exact: bool
    grade: str
    source: str
    notes: tuple[str, ...] = ()


def resolve_cast(
    src: Any,
    dst: Any,
    mode: CastMode | str | None = None,
    satmode: SaturationMode | str | bool | None = None,
    target: Target = PYPTO,
) -> ResolvedCast:
    """Return what really runs when ``src`` is cast to ``dst`` on a chip through an entry point.

    Args:
        src: source format or a name of it.
        dst: destination format or a name of it.
        mode: None: the entry point's default.
        satmode: None: the entry point's default.
        target: chip and entry point.

    Raises:
        UnknownNameError: an unknown format, mode or saturation mode.
        UnsupportedCastError: the target lacks the pair, or (ascendc, aclnn, laboratory) the mode.

    Source: see the result's ``source``.

    Example:
        >>> from npusim.modes import Target
        >>> cast = resolve_cast("half", "int8", target=Target("A2A3", "pypto"))
        >>> cast.mode, cast.satmode, cast.grade
        (<CastMode.CAST_TRUNC: 'CAST_TRUNC'>, <SaturationMode.OFF: 'OFF'>, 'documented')
    """
    check_target(target)
    return _resolve(
        dtypes.dtype(src),
        dtypes.dtype(dst),
        None if mode is None else cast_mode(mode),
        None if satmode is None else saturation_mode(satmode),
        target,
    )


def check_target(target: Any) -> None:
    """Raise InputError unless ``target`` is a Target."""
    if not isinstance(target, Target):
        raise InputError(
            message(
                f"target={target!r}",
                "an npusim.Target",
                "Write target=npusim.Target(soc, api), e.g. npusim.Target('A2A3', 'pypto').",
            )
        )


def warn_fallback(resolved: ResolvedCast, stacklevel: int = 3) -> None:
    """Warn if another mode runs than the one asked for."""
    if resolved.fallback and not resolved.exact:
        warnings.warn(
            f"{resolved.src} -> {resolved.dst} on {resolved.target} does not take "
            f"{resolved.requested.short}: {resolved.mode.short} runs instead "
            f"({resolved.source}).",
            CastFallbackWarning,
            stacklevel=stacklevel,
        )


@functools.cache
def _resolve(
    src: DataType,
    dst: DataType,
    mode: CastMode | None,
    satmode: SaturationMode | None,
    target: Target,
) -> ResolvedCast:
    if target.api == "aclnn":
        return _resolve_aclnn(src, dst, mode, satmode, target)
    laboratory = target.api == "numerics"
    default_mode = CastMode.CAST_RINT if laboratory else CastMode.CAST_NONE
    requested = default_mode if mode is None else mode
    if satmode is None:
        satmode = SaturationMode.OFF if target.api == "pypto" else SaturationMode.ON
    row = laboratory_row(target, src, dst) if laboratory else table(target).get((src, dst))
    if src is dst and (row is None or row.kind != "integral"):
        # Another level or chip rounds this pair to integral values: the mode would be ignored.
        if target.api == "ascendc" and who_has(src, dst):
            raise _no_pair(src, dst, target)
        return _identity(src, target, requested, satmode)
    if row is None:
        raise _no_pair(src, dst, target)
    if row.kind == "integral" and requested is CastMode.CAST_NONE and target.api == "pypto":
        return _identity(src, target, requested, satmode)
    effective = _effective_mode(row, requested, target)
    exact = row.kind != "integral" and is_exact(src, dst)
    saturate, notes = _saturation(row, satmode, target)
    step = Step(
        src=src,
        dst=dst,
        mode=effective,
        saturate=saturate,
        kind=row.kind,
        inf_wraps=row.inf_wraps and satmode is SaturationMode.OFF,
    )
    grade, source = row.grade, row.source
    if laboratory:
        grade, source = _laboratory_grade(src, dst, effective)
        if {src.kind, dst.kind} == {"complex", "float"}:
            notes += ("the real part is taken; a real value gets the imaginary part +0",)
    if target.overflow is OverflowMode.SATURATE and target.soc != "A2A3" and not laboratory:
        grade = "hypothetical"
        notes += ("the 950 runtime offers the overflow mode INF_NAN only",)
    return ResolvedCast(
        src=src,
        dst=dst,
        target=target,
        requested=requested,
        mode=effective,
        satmode=SaturationMode.ON if saturate else SaturationMode.OFF,
        steps=(step,),
        fallback=_rounds(row) and requested not in (CastMode.CAST_NONE, effective),
        exact=exact,
        grade=grade,
        source=source,
        notes=(*notes, *((row.note,) if row.note else ())),
    )


def _rounds(row: SupportedCast) -> bool:
    """Whether a mode can bear on the pair at all."""
    return row.kind != "deq" and not (row.src.kind == row.dst.kind == "int")


def _identity(
    src: DataType, target: Target, requested: CastMode, satmode: SaturationMode
) -> ResolvedCast:
    return ResolvedCast(
        src=src,
        dst=src,
        target=target,
        requested=requested,
        mode=CastMode.CAST_NONE,
        satmode=satmode,
        steps=(),
        fallback=False,
        exact=True,
        grade="documented",
        source="same type: the input is returned",
    )


def _effective_mode(row: SupportedCast, requested: CastMode, target: Target) -> CastMode:
    if requested is CastMode.CAST_NONE and row.default is not None:
        return row.default
    if requested in row.modes:
        return requested
    if row.kind == "deq":
        return CastMode.CAST_RINT
    if target.api == "pypto":
        return _pypto_fallback(row)
    if not row.modes and requested is CastMode.CAST_NONE:
        return CastMode.CAST_RINT
    allowed = ", ".join(m.short for m in row.modes) or "NONE"
    raise UnsupportedCastError(
        message(
            f"mode {requested.short} for {row.src} -> {row.dst} on {target}",
            allowed,
            "Pass one of these modes, or use Target(api='numerics') to try any mode.",
        )
    )


def _pypto_fallback(row: SupportedCast) -> CastMode:
    if row.dst is DT_HF8:
        return CastMode.CAST_ROUND
    to_int = row.src.kind == "float" and row.dst.kind == "int"
    return CastMode.CAST_TRUNC if to_int else CastMode.CAST_RINT


def _saturation(
    row: SupportedCast, satmode: SaturationMode, target: Target
) -> tuple[bool, tuple[str, ...]]:
    asked = satmode is SaturationMode.ON
    src, dst = row.src, row.dst
    if src is DT_FP16 and dst is DT_BF16:
        return False, ("half to bfloat16 keeps inf and NaN in both saturation modes",)
    if dst.kind == "int":
        return asked, ()
    if target.api in ("numerics", "ascendc"):
        if not row.takes_satmode and (dst.kind == "scale" or src.kind == "scale"):
            return False, ("the pair has no saturation choice",)
        return asked, ()
    # pypto: float overflow is the device's business, but for bf16 -> fp16.
    device = target.overflow is OverflowMode.SATURATE
    return (device or (asked and row.takes_satmode)), ()


def _laboratory_grade(src: DataType, dst: DataType, mode: CastMode) -> tuple[str, str]:
    rows = [table(t)[src, dst] for t in targets() if (src, dst) in table(t)]
    with_mode = [r for r in rows if mode in r.modes or not r.modes or mode is r.default]
    if not with_mode:
        where = "no chip has the pair" if not rows else "no chip has the pair in this mode"
        return "hypothetical", f"npusim numerics: {where}"
    names = ", ".join(str(r.target) for r in with_mode)
    return with_mode[0].grade, f"npusim numerics: the pair exists on {names}"


_FLAGS: dict[str, dict[str, Any]] = {
    "": {},
    "on": {"saturate": True},
    "low": {"saturate": False},
    "through32": {"saturate": False, "through_bits": 32},
    "through64": {"saturate": False, "through_bits": 64},
}


def _resolve_aclnn(
    src: DataType,
    dst: DataType,
    mode: CastMode | None,
    satmode: SaturationMode | None,
    target: Target,
) -> ResolvedCast:
    for name, value in (("mode", mode), ("satmode", satmode)):
        if value is not None:
            raise UnsupportedCastError(
                message(
                    f"{name}={value.value} for aclnnCast",
                    "no mode and no satmode: the operator has neither",
                    f"Leave {name} out; target.overflow sets the float overflow mode.",
                )
            )
    if src is dst:
        return _identity(src, target, CastMode.CAST_NONE, SaturationMode.OFF)
    row = table(target).get((src, dst))
    if row is None:
        raise _no_pair(src, dst, target)
    device = target.overflow is OverflowMode.SATURATE
    steps: list[Step] = []
    here = src
    for text in row.steps.split(";"):
        name, rule, *flag = text.split(":")
        there = dst if name == "*" else dtypes.dtype(name)
        if there is here:  # a chain through a type the source already is
            continue
        options = _FLAGS[flag[0] if flag else ""]
        if there.kind == "int" and options.get("through_bits", 0) and there.bits == 64:
            options = {"saturate": True}
        saturate = device and not (here is DT_FP16 and there is DT_BF16)
        steps.append(
            Step(
                src=here,
                dst=there,
                mode=cast_mode(rule),
                saturate=options.get("saturate", saturate),
                through_bits=options.get("through_bits", 0),
            )
        )
        here = there
    grade = row.grade
    notes = (row.note,) if row.note else ()
    if device and target.soc != "A2A3":
        grade = "hypothetical"
        notes += ("the 950 runtime offers the overflow mode INF_NAN only",)
    return ResolvedCast(
        src=src,
        dst=dst,
        target=target,
        requested=CastMode.CAST_NONE,
        mode=steps[-1].mode,
        satmode=SaturationMode.ON if steps[-1].saturate else SaturationMode.OFF,
        steps=tuple(steps),
        fallback=False,
        exact=is_exact(src, dst),
        grade=grade,
        source=row.source,
        notes=notes,
    )


def is_exact(src: DataType, dst: DataType) -> bool:
    """Whether every finite value of ``src`` is a value of ``dst``."""
    a, b = src.part.grid, dst.part.grid
    if dst.kind == "complex" or (src.kind != "complex" and dst.kind not in ("bool",)):
        if isinstance(a, IntGrid) and isinstance(b, IntGrid):
            return a.min >= b.min and a.max <= b.max
        if isinstance(a, IntGrid) and isinstance(b, FloatGrid):
            return a.bits - a.signed <= b.mantissa_bits + 1 and a.max <= b.max
        if isinstance(b, FloatGrid) and isinstance(a, FloatGrid | TaperedGrid | ScaleGrid):
            return a.fraction_bits <= b.mantissa_bits and a.max <= b.max and a.quantum >= b.quantum
    return src is dst


def _names(rows: Iterable[DataType]) -> str:
    return ", ".join(row.short for row in rows)


def _no_pair(src: DataType, dst: DataType, target: Target) -> UnsupportedCastError:
    legal = [d for s, d in table(target) if s is src]
    elsewhere = who_has(src, dst)
    remedy = "Use Target(api='numerics') to try it all the same."
    if elsewhere:
        names = "; ".join(str(t) for t in elsewhere)
        remedy = f"The pair exists on: {names}. {remedy}"
    else:
        remedy = f"No chip or entry point has the pair. {remedy}"
    return UnsupportedCastError(
        message(
            f"{src} -> {dst} on {target}",
            f"from {src} to {_names(legal)}" if legal else f"no cast from {src} at all",
            remedy,
        )
    )
