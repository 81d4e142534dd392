"""Cast modes, saturation, overflow modes, chips, and the `Target` that ties them together.

Sources: the Ascend C precision conversion page (table 1, rounding modes), the pypto.cast page
(CastMode, SaturationMode and the two architectures).
"""

import dataclasses
import enum
from typing import Literal, cast, get_args

from npusim._errors import UnknownNameError, message, nearest


class CastMode(enum.StrEnum):
    """How the bits a destination cannot keep decide about the last bit it keeps.

    CAST_NONE leaves the choice to the entry point: RINT in Ascend C where the pair lists it, the
    pair's default in pypto (TRUNC for float to integer, else RINT).
    CAST_ROUND is to nearest with ties away from zero; CAST_ODD truncates and sets the last kept
    bit if anything was lost; CAST_HYBRID exists towards HiFloat8 only and takes its threshold
    from the source's own low bits, so it is deterministic.

    Values are strings because the vendor numbers the same modes differently in different layers.

    Example:
        >>> CastMode("CAST_RINT") is CastMode.CAST_RINT
        True
    """

    CAST_NONE = "CAST_NONE"
    CAST_RINT = "CAST_RINT"
    CAST_FLOOR = "CAST_FLOOR"
    CAST_CEIL = "CAST_CEIL"
    CAST_ROUND = "CAST_ROUND"
    CAST_TRUNC = "CAST_TRUNC"
    CAST_ODD = "CAST_ODD"
    CAST_HYBRID = "CAST_HYBRID"

    @property
    def short(self) -> str:
        """The name without its prefix, e.g. ``"RINT"``."""
        return self.value.removeprefix("CAST_")


class SaturationMode(enum.StrEnum):
    """What happens to a value outside the destination's range.

    ON clamps integers to MAX/MIN and turns a float overflow into +-MAX; OFF keeps an integer's low
    bits and turns a float overflow into infinity (NaN where the format has none).
    """

    OFF = "OFF"
    ON = "ON"


class OverflowMode(enum.StrEnum):
    """The device-wide float overflow mode that pypto and aclnn casts obey.

    INF_NAN keeps infinities and NaN; SATURATE gives +-MAX, and +0 for NaN.
    """

    INF_NAN = "INF_NAN"
    SATURATE = "SATURATE"


class SoC(enum.StrEnum):
    """A chip family. ``A2A3``: Atlas A2 and A3. ``950PR``: Ascend 950PR and 950DT."""

    A2A3 = "A2A3"
    ASCEND_950PR = "950PR"


Api = Literal["pypto", "ascendc", "aclnn", "numerics"]
Level = Literal["memory", "reg"]

APIS: tuple[str, ...] = get_args(Api)
LEVELS: tuple[str, ...] = get_args(Level)

_SOC_ALIASES = {
    "A2A3": SoC.A2A3,
    "A2": SoC.A2A3,
    "A3": SoC.A2A3,
    "910B": SoC.A2A3,
    "950PR": SoC.ASCEND_950PR,
    "950": SoC.ASCEND_950PR,
    "950DT": SoC.ASCEND_950PR,
    "A5": SoC.ASCEND_950PR,
}

# Numbers of the same modes in the two layers that number them; used at the edges only.
MODE_NUMBERS: dict[str, dict[CastMode, int]] = {
    "ascendc": {
        CastMode.CAST_NONE: 0,
        CastMode.CAST_RINT: 1,
        CastMode.CAST_FLOOR: 2,
        CastMode.CAST_CEIL: 3,
        CastMode.CAST_ROUND: 4,
        CastMode.CAST_TRUNC: 5,
        CastMode.CAST_ODD: 6,
        CastMode.CAST_HYBRID: 7,
    },
    "pypto": {
        CastMode.CAST_NONE: 0,
        CastMode.CAST_RINT: 1,
        CastMode.CAST_ROUND: 2,
        CastMode.CAST_FLOOR: 3,
        CastMode.CAST_CEIL: 4,
        CastMode.CAST_TRUNC: 5,
        CastMode.CAST_ODD: 6,
    },
}


def _fail(kind: str, given: object, allowed: list[str]) -> UnknownNameError:
    hint = nearest(given.upper(), allowed) if isinstance(given, str) else ""
    return UnknownNameError(
        message(f"{kind} {given!r}", ", ".join(allowed), f"{hint}Pass one of these names.")
    )


def cast_mode(mode: CastMode | str) -> CastMode:
    """Return the CastMode that ``mode`` names; short names and any case are accepted.

    Raises:
        UnknownNameError: ``mode`` is no CastMode or name of one.

    Example:
        >>> cast_mode("rint")
        <CastMode.CAST_RINT: 'CAST_RINT'>
    """
    if isinstance(mode, CastMode):
        return mode
    if isinstance(mode, str):
        name = mode.upper()
        name = name if name.startswith("CAST_") else f"CAST_{name}"
        if name in CastMode.__members__:
            return CastMode[name]
    raise _fail("cast mode", mode, [m.short for m in CastMode])


def saturation_mode(mode: SaturationMode | str | bool) -> SaturationMode:
    """Return the SaturationMode that ``mode`` names; booleans mean ON and OFF.

    YAML 1.1 reads the bare words ON and OFF as booleans, which is why those are accepted.

    Raises:
        UnknownNameError: ``mode`` is none of them.

    Example:
        >>> saturation_mode("on")
        <SaturationMode.ON: 'ON'>
    """
    if isinstance(mode, SaturationMode):
        return mode
    if isinstance(mode, bool):
        return SaturationMode.ON if mode else SaturationMode.OFF
    if isinstance(mode, str) and mode.upper() in SaturationMode.__members__:
        return SaturationMode[mode.upper()]
    raise _fail("saturation mode", mode, list(SaturationMode))


def chip(name: SoC | str) -> SoC:
    """Return the SoC that ``name`` or one of its aliases names.

    Raises:
        UnknownNameError: no such chip.

    Example:
        >>> chip("910B")
        <SoC.A2A3: 'A2A3'>
    """
    if isinstance(name, SoC):
        return name
    if isinstance(name, str) and name.upper() in _SOC_ALIASES:
        return _SOC_ALIASES[name.upper()]
    raise _fail("SoC", name, list(_SOC_ALIASES))


@dataclasses.dataclass(frozen=True)
class Target:
    """The chip and entry point whose rules a cast follows.

    Attributes:
        soc: ``A2A3`` (aliases A2, A3, 910B) or ``950PR`` (aliases 950, 950DT, A5).
        api: ``pypto``, ``ascendc``, ``aclnn``, or ``numerics``: the laboratory, where every pair,
            mode and saturation runs as asked.
        overflow: float overflow mode of the device, obeyed by pypto and aclnn.
        level: which of the two cast instructions of 950 Ascend C means, ``memory`` or ``reg``.

    Raises:
        UnknownNameError: an unknown chip, entry point, overflow mode or level.

    Example:
        >>> Target(soc="A5", api="pypto").soc
        <SoC.ASCEND_950PR: '950PR'>
    """

    soc: SoC = SoC.ASCEND_950PR
    api: Api = "pypto"
    overflow: OverflowMode = OverflowMode.INF_NAN
    level: Level = "memory"

    def __init__(
        self,
        soc: SoC | str = SoC.ASCEND_950PR,
        api: str = "pypto",
        overflow: OverflowMode | str = OverflowMode.INF_NAN,
        level: str = "memory",
    ):
        object.__setattr__(self, "soc", chip(soc))
        if not isinstance(api, str) or api.lower() not in APIS:
            raise _fail("entry point (api)", api, list(APIS))
        object.__setattr__(self, "api", cast(Api, api.lower()))
        if not isinstance(overflow, str) or overflow.upper() not in OverflowMode.__members__:
            raise _fail("overflow mode", overflow, list(OverflowMode))
        object.__setattr__(self, "overflow", OverflowMode[overflow.upper()])
        if not isinstance(level, str) or level.lower() not in LEVELS:
            raise _fail("level", level, list(LEVELS))
        object.__setattr__(self, "level", cast(Level, level.lower()))

    def __str__(self) -> str:
        parts = [self.soc.value, self.api]
        if self.api == "ascendc" and self.soc is SoC.ASCEND_950PR:
            parts.append(self.level)
        if self.api in ("pypto", "aclnn"):
            parts.append(self.overflow.value)
        return " ".join(parts)


LABORATORY = Target(api="numerics")
"""Every pair, mode and saturation as asked: no table, no fallback."""
