"""Shapes and places of elements, from one data format to another and back."""

from collections.abc import Sequence
from typing import Any

from npusim._errors import InputError, message
from npusim.layouts.formats import DataFormat, data_format
from npusim.layouts.plan import Shape, plan


def as_shape(shape: Sequence[int], what: str = "shape") -> Shape:
    """Return ``shape`` as a tuple of integers."""
    try:
        sizes = tuple(int(n) for n in shape)
        good = all(n >= 0 and n == given for n, given in zip(sizes, shape, strict=True))
    except (TypeError, ValueError):
        sizes, good = (), False
    if not good:
        raise InputError(
            message(f"{what} {shape!r}", "a sequence of integers of 0 or more", "Pass a tuple.")
        )
    return sizes


def storage_shape(
    shape: Sequence[int],
    src: DataFormat | str,
    dst: DataFormat | str,
    *,
    dtype: Any = None,
    c0: int | None = None,
) -> Shape:
    """Return the shape that an array of ``shape`` in format ``src`` has in format ``dst``.

    From a private format the answer includes the padding, and FRACTAL_Z and FRACTAL_Z_3D of a
    weight do not tell it.

    Shape: any, by the ranks of the formats.

    Raises:
        InputError: an impossible conversion, a wrong rank, a private format without ``dtype`` or
            ``c0``, or a stored shape that does not tell the public one.
        UnknownNameError: an unknown format or data type.

    Source: hicann/ge transfer_shape_utils.cc.

    Example:
        >>> storage_shape((1, 35, 7, 9), "NCHW", "NC1HWC0", dtype="half")
        (1, 3, 7, 9, 16)
        >>> storage_shape((1, 3, 7, 9, 16), "NC1HWC0", "NHWC")
        (1, 7, 9, 48)
        >>> storage_shape((33, 20), "ND", "FRACTAL_NZ", dtype="int8")
        (1, 3, 16, 32)
    """
    src, dst = data_format(src), data_format(dst)
    made, forward = plan(src, dst, as_shape(shape), None, dtype, c0)
    return made.storage if forward else made.shape


def locate(
    index: Sequence[int],
    src: DataFormat | str,
    dst: DataFormat | str,
    *,
    shape: Sequence[int],
    dtype: Any = None,
    c0: int | None = None,
) -> Shape | None:
    """Return where the element at ``index`` in format ``src`` lies in format ``dst``.

    Args:
        index: place in the array of format ``src``.
        src: format of the index.
        dst: format of the answer.
        shape: shape on the public side (``src`` if both are public).
        dtype: data type of the elements; C0 follows from it.
        c0: C0 itself.

    Returns:
        The place, or None if a private ``index`` is padding.

    Raises:
        InputError: an impossible conversion or an index outside the array.
        UnknownNameError: an unknown format or data type.

    Source: hicann/ge base/formats/format_transfers.

    Example:
        >>> locate((0, 34, 6, 8), "NCHW", "NC1HWC0", shape=(1, 35, 7, 9), dtype="half")
        (0, 2, 6, 8, 2)
        >>> locate((0, 2, 6, 8, 2), "NC1HWC0", "NCHW", shape=(1, 35, 7, 9), dtype="half")
        (0, 34, 6, 8)
        >>> locate((0, 2, 6, 8, 3), "NC1HWC0", "NCHW", shape=(1, 35, 7, 9), dtype="half") is None
        True
    """
    src, dst = data_format(src), data_format(dst)
    public = as_shape(shape)
    if src.private and src is dst:
        raise InputError(
            message(f"an index from {src} to itself", "two formats", "The place is the same.")
        )
    made, forward = plan(src, dst, None, public, dtype, c0)
    bounds = made.shape if forward else made.storage
    place = as_shape(index, "index")
    if len(place) != len(bounds) or any(i >= n for i, n in zip(place, bounds, strict=True)):
        raise InputError(
            message(
                f"index {place} in {src} of shape {bounds}",
                f"{len(bounds)} integers below these sizes",
                "Count from 0, in the order of the format's axes.",
            )
        )
    return made.forward(place) if forward else made.backward(place)
