"""How one conversion runs: which are possible, the shapes it goes through, each element's place.

Only integers here; `npusim.layouts.transform` moves the data.
"""

import dataclasses
import math
from typing import Any

from npusim._errors import InputError, message
from npusim.layouts.formats import (
    FORMATS,
    DataFormat,
    Tiling,
    check_rank,
    data_format,
    default_c0,
)

Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Plan:
    """A conversion of a public format to another format, run forwards or backwards.

    Attributes:
        shape: shape in the public format.
        order: the public axes in the order in which the tiling knows them.
        padded: sizes in that order, filled up to whole tiles.
        parts: the sizes after splitting each axis into tiles.
        places: the parts in the order in which they are stored.
        storage: shape in the other format.
    """

    shape: Shape
    order: Shape
    padded: Shape
    parts: Shape
    places: Shape
    storage: Shape

    def forward(self, index: Shape) -> Shape:
        """Where the element at a public ``index`` is stored."""
        flat = _ravel(tuple(index[axis] for axis in self.order), self.padded)
        split = _unravel(flat, self.parts)
        stored = tuple(self.parts[place] for place in self.places)
        return _unravel(_ravel(tuple(split[place] for place in self.places), stored), self.storage)

    def backward(self, index: Shape) -> Shape | None:
        """The public index of the element stored at ``index``; None for padding."""
        stored = tuple(self.parts[place] for place in self.places)
        moved = _unravel(_ravel(index, self.storage), stored)
        split = tuple(moved[self.places.index(part)] for part in range(len(self.parts)))
        logical = _unravel(_ravel(split, self.parts), self.padded)
        public = tuple(logical[self.order.index(axis)] for axis in range(len(self.shape)))
        inside = all(i < n for i, n in zip(public, self.shape, strict=True))
        return public if inside else None


def _ravel(index: Shape, shape: Shape) -> int:
    flat = 0
    for i, n in zip(index, shape, strict=True):
        flat = flat * n + i
    return flat


def _unravel(flat: int, shape: Shape) -> Shape:
    index: list[int] = []
    for n in reversed(shape):
        flat, i = divmod(flat, n)
        index.append(i)
    return tuple(reversed(index))


def _tiling(public: DataFormat, private: DataFormat) -> Tiling | None:
    return next((t for t in private.tilings if public.name in t.of), None)


def possible(src: DataFormat | str, dst: DataFormat | str) -> bool:
    """Return whether a tensor can be converted from format ``src`` to format ``dst``.

    Possible: any format to itself; a public one to another with the same axes; ND to any public
    format and back, which keeps the order; a public one to a private one made of it, and back.

    Raises:
        UnknownNameError: no such format.

    Source: aclnnNpuFormatCast page; hicann/ge base/formats/format_transfers.

    Example:
        >>> possible("NCHW", "FRACTAL_Z"), possible("NCL", "FRACTAL_Z"), possible("NCL", "NCHW")
        (True, False, False)
    """
    src, dst = data_format(src), data_format(dst)
    if src is dst:
        return True
    if src.private and dst.private:
        return False
    if src.private or dst.private:
        public, private = (dst, src) if src.private else (src, dst)
        return _tiling(public, private) is not None
    return src.axes is None or dst.axes is None or sorted(src.axes) == sorted(dst.axes)


def check_possible(src: DataFormat, dst: DataFormat) -> None:
    """Raise with what is possible instead, if ``src`` does not convert to ``dst``."""
    if possible(src, dst):
        return
    to = ", ".join(f.name for f in FORMATS if f is not src and possible(src, f))
    made = ", ".join(f.name for f in FORMATS if f is not dst and possible(f, dst))
    through = [f.name for f in FORMATS if f.axes and possible(src, f) and possible(f, dst)]
    hint = f"go through {through[0]}" if through else "give the tensor the axes that it needs first"
    raise InputError(
        message(
            f"conversion {src} to {dst}",
            f"{src} to {to}; {made} to {dst}",
            f"To get {dst}, {hint}.",
        )
    )


def make(public: DataFormat, other: DataFormat, shape: Shape, c0: int) -> Plan:
    """Return the plan from ``public`` with ``shape`` to ``other``."""
    check_rank(public, len(shape))
    rank = len(shape)
    if not other.private:
        check_rank(other, rank)
        order = tuple(range(rank))
        if public.axes is not None and other.axes is not None:
            order = tuple(public.axes.index(axis) for axis in other.axes)
        moved = tuple(shape[axis] for axis in order)
        return Plan(shape, order, moved, moved, tuple(range(rank)), moved)
    tiling = _tiling(public, other)
    assert tiling is not None
    known = len(tiling.axes)
    if tiling.ranked:
        too_long = other.name != "FRACTAL_NZ" and rank > known
        if rank < known or too_long:
            raise InputError(
                message(
                    f"a tensor of rank {rank} in {public} for {other}",
                    "rank 2" if other.name != "FRACTAL_NZ" else "rank 2 or more",
                    "Reshape it to a matrix first; the sources disagree on what a vector becomes.",
                )
            )
        batch = rank - known
        order = tuple(range(rank))
    else:
        assert public.axes is not None
        batch = 0
        order = tuple(public.axes.index(axis) for axis in tiling.axes)
    tiles = {axis: size or c0 for axis, size in tiling.tiles}
    padded: list[int] = [shape[axis] for axis in order[:batch]]
    parts, names = list(padded), [f"batch{i}" for i in range(batch)]
    for name, axis in zip(tiling.axes, order[batch:], strict=True):
        tile = tiles.get(name)
        if tile is None:
            padded.append(shape[axis])
            parts.append(shape[axis])
            names.append(name)
        else:
            count = -(-shape[axis] // tile)
            padded.append(count * tile)
            parts += [count, tile]
            names += [f"{name}1", f"{name}0"]
    stored = [*((name,) for name in names[:batch]), *tiling.storage]
    places = tuple(names.index(part) for group in stored for part in group)
    storage = tuple(math.prod(parts[names.index(part)] for part in group) for group in stored)
    return Plan(shape, order, tuple(padded), tuple(parts), places, storage)


def choose_c0(fmt: DataFormat, dtype: Any, c0: int | None) -> int:
    """Return the C0 of ``fmt``: fixed by the format, else ``c0``, else by data type."""
    if fmt.c0 is not None and c0 not in (None, fmt.c0):
        raise InputError(
            message(f"c0={c0} for {fmt}", f"{fmt.c0}, which the format fixes", "Leave c0 out.")
        )
    if fmt.c0 is not None or not fmt.private:
        return fmt.c0 or 1
    if c0 is not None:
        if isinstance(c0, bool) or not isinstance(c0, int) or c0 < 1:
            raise InputError(message(f"c0={c0!r}", "an integer of 1 or more", "Leave c0 out."))
        return c0
    if dtype is None:
        raise InputError(
            message(
                f"{fmt} without a width of its tiles",
                "dtype= (C0 follows from it) or c0=",
                "Name the data type of the elements.",
            )
        )
    return default_c0(dtype)


def _whole(private: DataFormat, public: DataFormat, storage: Shape) -> Shape:
    """The public shape, padding included, of an array stored with shape ``storage``."""
    tiling = _tiling(public, private)
    assert tiling is not None
    batch = len(storage) - len(tiling.storage)
    if batch < 0 or (batch > 0 and not tiling.ranked):
        raise InputError(
            message(
                f"{private} array of rank {len(storage)}",
                f"rank {len(tiling.storage)}" + (" or more" if tiling.ranked else ""),
                f"Its axes are {', '.join(''.join(group) for group in tiling.storage)}.",
            )
        )
    known: dict[str, int] = {}
    for group, size in zip(tiling.storage, storage[batch:], strict=True):
        if len(group) == 1:
            known[group[0]] = size
    sizes: dict[str, int | None] = {
        axis: known.get(
            axis, known[f"{axis}1"] * known[f"{axis}0"] if f"{axis}1" in known else None
        )
        for axis in tiling.axes
    }
    missing = [axis for axis in tiling.axes if sizes[axis] is None]
    if missing:
        raise InputError(
            message(
                f"{private} array of shape {storage} without the shape it came from",
                f"shape=, in the order of {public}",
                f"The stored shape does not tell the sizes of {', '.join(missing)}.",
            )
        )
    tail = tuple(sizes[axis] for axis in (tiling.axes if tiling.ranked else public.axes or ()))
    return (*storage[:batch], *(size for size in tail if size is not None))


def plan(
    src: DataFormat,
    dst: DataFormat,
    src_shape: Shape | None,
    shape: Shape | None,
    dtype: Any,
    c0: int | None,
) -> tuple[Plan, bool]:
    """Return the plan between two formats and whether it runs forwards, from ``src`` to ``dst``.

    ``src_shape`` is the shape of the array at hand, ``shape`` the public shape; one may be None.
    """
    check_possible(src, dst)
    if not src.private:
        if src_shape is not None and shape not in (None, src_shape):
            raise InputError(
                message(
                    f"shape={shape} for an {src} array of shape {src_shape}",
                    str(src_shape),
                    "shape= is the shape on the public side: leave it out here.",
                )
            )
        known = src_shape if src_shape is not None else shape
        assert known is not None
        return make(src, dst, known, choose_c0(dst, dtype, c0)), True
    if src_shape and c0 is None and src.c0 is None:
        c0 = src_shape[-1]
    width = choose_c0(src, dtype, c0)
    if src is dst:
        assert src_shape is not None
        return make(data_format("ND"), data_format("ND"), src_shape, 1), True
    if shape is None:
        assert src_shape is not None
        shape = _whole(src, dst, src_shape)
    made = make(dst, src, shape, width)
    if src_shape is not None and made.storage != src_shape:
        raise InputError(
            message(
                f"{src} array of shape {src_shape} for the {dst} shape {shape}",
                f"{made.storage} (C0 = {width})",
                "Pass the public shape that this array came from, and c0= if it is not C0 of the "
                "data type.",
            )
        )
    return made, False
