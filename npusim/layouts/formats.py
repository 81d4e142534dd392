"""Data formats as rows: what the axes of a tensor mean, and how the private formats tile them.

A public format names its axes in the order in which they lie. A private format is made of a public
one by splitting axes into tiles and reordering; its row says how, so adding one is adding a row.
"""

import dataclasses
from typing import Any

from npusim._errors import InputError, UnknownNameError, message, nearest
from npusim.dtypes import dtype as data_type

_RANKS = "aclnn basic concepts, data formats, Chinese edition"
_SHAPES = "hicann/ge graph_metadef transfer_shape_utils.cc and base/formats/format_transfers"
_NUMBERS = "aclFormat numbers: hicann/metadef inc/external/graph/types.h"

N0 = 16
"""Height of a fractal: rows of the matrix, or output channels of a weight, in one tile."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tiling:
    """How a private format stores the axes of a public one.

    Attributes:
        of: the public formats it is made of; by name of axis, or by position where ``ranked``.
        axes: the logical axes it knows; axis X splits into X1 (which tile) and X0 (where in it).
        tiles: (axis, tile size) for each axis that is split; None stands for C0.
        storage: the axes of the stored array, each one or several parts, slowest first.
        ranked: axes are the last ones of the public format and the others stay in front.
        source: where the shape and the place of an element come from.
        grade: how well that is known.
    """

    of: tuple[str, ...]
    axes: tuple[str, ...]
    tiles: tuple[tuple[str, int | None], ...]
    storage: tuple[tuple[str, ...], ...]
    ranked: bool = False
    source: str
    grade: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataFormat:
    """One data format. Rows are singletons.

    Attributes:
        name: as in ACL_FORMAT_<name>.
        number: value in aclFormat.
        axes: the axes in the order in which they lie; None for ND and the private formats.
        tilings: how a private format is made; empty for a public one.
        c0: the C0 that the format fixes, None where the data type decides.
        source: where the row comes from.
    """

    name: str
    number: int
    axes: tuple[str, ...] | None
    tilings: tuple[Tiling, ...]
    c0: int | None
    source: str

    @property
    def private(self) -> bool:
        """Whether the format is one of the NPU's own."""
        return bool(self.tilings)

    def __str__(self) -> str:
        return self.name


def _public(name: str, number: int, axes: str | None) -> DataFormat:
    order = None if axes is None else tuple(axes)
    source = f"{_RANKS}; {_NUMBERS}"
    return DataFormat(name=name, number=number, axes=order, tilings=(), c0=None, source=source)


def _private(name: str, number: int, *tilings: Tiling, c0: int | None = None) -> DataFormat:
    return DataFormat(
        name=name, number=number, axes=None, tilings=tilings, c0=c0, source=f"{_RANKS}; {_NUMBERS}"
    )


def _parts(text: str) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(axis.split()) for axis in text.split(","))


_FIVE_D = Tiling(
    of=("NCHW", "NHWC", "HWCN"),
    axes=tuple("NCHW"),
    tiles=(("C", None),),
    storage=_parts("N, C1, H, W, C0"),
    source=_SHAPES,
    grade="implementation",
)

FORMATS: tuple[DataFormat, ...] = (
    _public("ND", 2, None),
    _public("NCHW", 0, "NCHW"),
    _public("NHWC", 1, "NHWC"),
    _public("HWCN", 16, "HWCN"),
    _public("NDHWC", 27, "NDHWC"),
    _public("NCDHW", 30, "NCDHW"),
    _public("NC", 35, "NC"),
    _public("NCL", 47, "NCL"),
    _private("NC1HWC0", 3, _FIVE_D),
    _private("NC1HWC0_C04", 12, _FIVE_D, c0=4),
    _private(
        "FRACTAL_Z",
        4,
        Tiling(
            of=("NCHW", "NHWC", "HWCN"),
            axes=tuple("NCHW"),
            tiles=(("N", N0), ("C", None)),
            storage=_parts("C1 H W, N1, N0, C0"),
            source=f"{_SHAPES} (format_transfer_fractal_z.cc)",
            grade="implementation",
        ),
        Tiling(
            # A matrix (K, N): the weight of a fully connected layer, as one with H = W = 1.
            of=("ND",),
            axes=tuple("KN"),
            tiles=(("K", None), ("N", N0)),
            storage=_parts("K1, N1, N0, K0"),
            ranked=True,
            source="CANN canndev format_transfer_fractal_z.cc (TransFormatNdToFz)",
            grade="implementation",
        ),
    ),
    _private(
        "FRACTAL_NZ",
        29,
        Tiling(
            of=("ND", "NCL", "NCHW", "NCDHW"),
            axes=tuple("MN"),
            tiles=(("M", N0), ("N", None)),
            storage=_parts("N1, M1, M0, N0"),
            ranked=True,
            source=f"{_SHAPES}; aclnnNpuFormatCast page for the pairs",
            grade="implementation",
        ),
    ),
    _private(
        "NDC1HWC0",
        32,
        Tiling(
            of=("NCDHW", "NDHWC"),
            axes=tuple("NCDHW"),
            tiles=(("C", None),),
            storage=_parts("N, D, C1, H, W, C0"),
            source=_SHAPES,
            grade="implementation",
        ),
    ),
    _private(
        "FRACTAL_Z_3D",
        33,
        Tiling(
            of=("NCDHW", "NDHWC"),
            axes=tuple("NCDHW"),
            tiles=(("N", N0), ("C", None)),
            storage=_parts("D C1 H W, N1, N0, C0"),
            source=_SHAPES,
            grade="implementation",
        ),
    ),
)

_BY_NAME = {row.name: row for row in FORMATS}


def data_format(name: DataFormat | str) -> DataFormat:
    """Return the data format that ``name`` names, with or without ACL_FORMAT_, in any case.

    Raises:
        UnknownNameError: no such format.

    Source: aclnn basic concepts, data formats, Chinese edition.

    Example:
        >>> data_format("ACL_FORMAT_FRACTAL_NZ").number, data_format("nchw").axes
        (29, ('N', 'C', 'H', 'W'))
    """
    if isinstance(name, DataFormat):
        return name
    short = name.upper().removeprefix("ACL_FORMAT_") if isinstance(name, str) else ""
    if short not in _BY_NAME:
        raise UnknownNameError(
            message(
                f"data format {name!r}",
                ", ".join(_BY_NAME),
                f"{nearest(short, _BY_NAME)}Pass one of these names.",
            )
        )
    return _BY_NAME[short]


def formats_of_rank(rank: int) -> tuple[str, ...]:
    """Return the public formats that a tensor of ``rank`` axes may carry.

    Source: aclnn basic concepts, data formats, Chinese edition.

    Example:
        >>> formats_of_rank(4), formats_of_rank(6)
        (('ND', 'NCHW', 'NHWC', 'HWCN'), ('ND',))
    """
    return tuple(
        row.name for row in FORMATS if not row.private and len(row.axes or range(rank)) == rank
    )


def check_rank(fmt: DataFormat | str, rank: int) -> None:
    """Raise if a tensor of ``rank`` axes cannot carry the public format ``fmt``.

    Raises:
        InputError: the format has another number of axes.
        UnknownNameError: no such format.

    Source: aclnn basic concepts, data formats, Chinese edition.

    Example:
        >>> check_rank("NCHW", 4)
    """
    row = data_format(fmt)
    if not row.private and row.name not in formats_of_rank(rank):
        raise InputError(
            message(
                f"format {row} for a tensor of rank {rank}",
                ", ".join(formats_of_rank(rank)),
                f"{row} has rank {len(row.axes or ())}: reshape, or take one of these formats.",
            )
        )


def default_c0(dtype: Any) -> int:
    """Return C0, the width of a tile, for a data type.

    64 for 4-bit types, 32 for 8-bit ones (bool too), 16 for all others: float32 takes 16, as the
    storage shapes of GE and torch_npu do, not the 8 of the fractals inside the core. Types above 32
    bits are assumed.

    Raises:
        UnknownNameError: no such data type.

    Source: hicann/ge platform_config (DtypeMKN), Ascend/pytorch FormatHelper.cpp.

    Example:
        >>> default_c0("half"), default_c0("int8"), default_c0("fp4_e2m1"), default_c0("float")
        (16, 32, 64, 16)
    """
    return {4: 64, 8: 32}.get(data_type(dtype).bits, 16)
