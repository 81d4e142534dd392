"""The names and signatures of PyPTO's cast, so that code written for it runs here.

    >>> from npusim import pypto
    >>> pypto.set_vec_tile_shapes(4, 16)
    >>> x = pypto.tensor([300.0, -300.0, 50.0], pypto.DT_FP16)
    >>> pypto.cast(x, pypto.DT_INT8, satmode=pypto.SaturationMode.ON)
    Tensor([127, -128, 50], DT_INT8)
    >>> pypto.cast(x, pypto.DT_INT8, satmode=pypto.SaturationMode.OFF)
    Tensor([44, -44, 50], DT_INT8)

Nothing here remembers anything between calls: a compiled function would not see it change. What
PyPTO sets beforehand is an argument (``soc``, ``overflow``, ``deqscale``) or belongs to a tensor
(`set_deqscale`).

Source: pypto.cast page; pypto.Tensor page (shape, dtype, name, format).
"""

import dataclasses
import enum
import numbers
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from npusim import casting, dtypes
from npusim._errors import CastFallbackWarning, InputError, message
from npusim.casting import NpuArray
from npusim.casting import cast as _cast
from npusim.casting.storage import check_numeric, check_x64, source
from npusim.dtypes import DT_BF16 as DT_BF16
from npusim.dtypes import DT_FP4_E1M2X2 as DT_FP4_E1M2X2
from npusim.dtypes import DT_FP4_E2M1X2 as DT_FP4_E2M1X2
from npusim.dtypes import DT_FP8E4M3 as DT_FP8E4M3
from npusim.dtypes import DT_FP8E5M2 as DT_FP8E5M2
from npusim.dtypes import DT_FP16 as DT_FP16
from npusim.dtypes import DT_FP32 as DT_FP32
from npusim.dtypes import DT_HF8 as DT_HF8
from npusim.dtypes import DT_INT4 as DT_INT4
from npusim.dtypes import DT_INT8 as DT_INT8
from npusim.dtypes import DT_INT16 as DT_INT16
from npusim.dtypes import DT_INT32 as DT_INT32
from npusim.dtypes import DT_INT64 as DT_INT64
from npusim.dtypes import DT_UINT8 as DT_UINT8
from npusim.dtypes import DT_UINT16 as DT_UINT16
from npusim.dtypes import DT_UINT32 as DT_UINT32
from npusim.dtypes import DataType as DataType
from npusim.modes import CastMode as CastMode
from npusim.modes import OverflowMode, SoC, Target
from npusim.modes import SaturationMode as SaturationMode

__all__ = [
    "DT_BF16",
    "DT_FP4_E1M2X2",
    "DT_FP4_E2M1X2",
    "DT_FP8E4M3",
    "DT_FP8E5M2",
    "DT_FP16",
    "DT_FP32",
    "DT_HF8",
    "DT_INT4",
    "DT_INT8",
    "DT_INT16",
    "DT_INT32",
    "DT_INT64",
    "DT_UINT8",
    "DT_UINT16",
    "DT_UINT32",
    "CastMode",
    "DataType",
    "SaturationMode",
    "Tensor",
    "TileOpFormat",
    "cast",
    "set_deqscale",
    "set_vec_tile_shapes",
    "tensor",
]

_MAX_TILE_RANK = 4
_INT32_MAX = (1 << 31) - 1


class TileOpFormat(enum.Enum):
    """The layout of a tensor. pypto.cast takes TILEOP_ND alone."""

    TILEOP_ND = "TILEOP_ND"
    TILEOP_NZ = "TILEOP_NZ"


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Tensor:
    """A tensor with a PyPTO data type; made by `tensor`.

    A pytree, so it goes through jit, vmap and grad. It has no arithmetic, and no ``.to()``: as in
    PyPTO, `cast` converts.

    Attributes:
        value: the array: a jax.Array, or an NpuArray for the formats JAX does not have.
        deqscale: the scale of INT32 -> FP16; None: 1.0.
        name: as given, without meaning.
        format: layout.
    """

    value: Array | NpuArray
    deqscale: Any = None
    name: str = dataclasses.field(default="", metadata={"static": True})
    format: TileOpFormat = dataclasses.field(
        default=TileOpFormat.TILEOP_ND, metadata={"static": True}
    )

    @property
    def dtype(self) -> DataType:
        """The data type."""
        return source(self.value)[1]

    @property
    def shape(self) -> list[int]:
        """Length of every axis."""
        return list(self.value.shape)

    @property
    def dim(self) -> int:
        """Number of axes."""
        return len(self.value.shape)

    def to_jax(self) -> Array:
        """Return the values as a jax.Array; formats that JAX does not have come as float32.

        Example:
            >>> tensor([1.0, 100.0], DT_HF8).to_jax()
            Array([ 1., 96.], dtype=float32)
        """
        return self.value.decode() if isinstance(self.value, NpuArray) else self.value

    def tolist(self) -> list[Any]:
        """Return the values as nested lists of Python numbers."""
        return np.asarray(self.to_jax()).tolist()

    def __getattr__(self, name: str) -> Any:
        if name == "to":
            raise AttributeError(
                message(
                    "Tensor.to",
                    "pypto.cast(tensor, dtype)",
                    "A PyPTO tensor has no .to(); call pypto.cast(x, pypto.DT_FP16).",
                )
            )
        raise AttributeError(f"'Tensor' object has no attribute {name!r}")

    def __repr__(self) -> str:
        if isinstance(self.value, jax.Array) and not isinstance(self.value, Tracer):
            return f"Tensor({self.tolist()}, {self.dtype.name})"
        if isinstance(self.value, NpuArray) and not isinstance(self.value.codes, Tracer):
            return f"Tensor({self.tolist()}, {self.dtype.name})"
        return f"Tensor({self.value})"


def tensor(
    shape: Any,
    dtype: DataType | str | None = None,
    name: str = "",
    format: TileOpFormat = TileOpFormat.TILEOP_ND,
    *,
    data: Any = None,
) -> Tensor:
    """Return a tensor, given its shape or its values.

    PyPTO's first argument is a shape, and the page's first snippet means that:
    ``pypto.tensor([2], pypto.DT_FP32)`` declares two elements. Its other snippets pass values:
    ``pypto.tensor([300.0, -300.0, 50.0], pypto.DT_FP16)``. Both work: a flat list or tuple of
    Python integers is a shape, anything else (floats, Booleans, nested lists, arrays) is values.
    Integer values go through ``data``: ``pypto.tensor([2], pypto.DT_INT32, data=[7, 9])``.

    PyPTO leaves a declared tensor undefined; here it is filled with zeros unless ``data`` says
    otherwise. Values are rounded to nearest even; what lies beyond the range becomes infinity (NaN
    in FP8E4M3), MAX in FP4, and is refused for integers.

    Args:
        shape: a shape, or values.
        dtype: data type; None: DT_FP32 for a shape, the array's own for values.
        name: kept, without meaning.
        format: layout; pypto.cast refuses TILEOP_NZ.
        data: values for a tensor given by its shape.

    Raises:
        InputError: a negative length, values that do not fit the shape, or integers out of range.
        X64RequiredError: a 64-bit type while x64 is off.

    Example:
        >>> tensor([2], DT_FP32)
        Tensor([0.0, 0.0], DT_FP32)
        >>> tensor([2], DT_FP32, data=[2.0, 3.0])
        Tensor([2.0, 3.0], DT_FP32)
    """
    by_shape = isinstance(shape, list | tuple) and all(_is_int(n) for n in shape)
    if by_shape:
        lengths = tuple(int(n) for n in shape)
        if any(n < 0 for n in lengths):
            raise InputError(
                message(
                    f"shape {list(shape)}",
                    "lengths of 0 and more",
                    "A list of integers is a shape; pass integer values as data=[...].",
                )
            )
        fmt = dtypes.dtype(DT_FP32 if dtype is None else dtype)
        given = np.zeros(lengths) if data is None else data
        value = _values(given, fmt)
        if tuple(value.shape) != lengths:
            raise InputError(
                message(
                    f"data of shape {list(value.shape)}",
                    f"shape {list(lengths)}",
                    "Give as many values as the shape says.",
                )
            )
        return Tensor(value, None, name, format)
    if data is not None:
        raise InputError(
            message("values and data", "one of them", "Pass the shape and data, or the values.")
        )
    if dtype is None and not isinstance(shape, jax.Array | np.ndarray | NpuArray):
        dtype = DT_FP32
    if dtype is None:
        value, _ = source(shape)
        return Tensor(
            value if isinstance(value, NpuArray) else jnp.asarray(value), None, name, format
        )
    return Tensor(_values(shape, dtypes.dtype(dtype)), None, name, format)


def _is_int(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool | np.bool_)


def _values(data: Any, fmt: DataType) -> Array | NpuArray:
    """Values as an array of ``fmt``, by the laboratory's rules; integers must fit."""
    if isinstance(data, jax.Array | NpuArray):
        if source(data)[1] is fmt:
            return data
        return _cast(data, fmt, "RINT", "OFF", target=Target(api="numerics"))
    host = np.asarray(data)
    if fmt.kind == "int" and host.size and np.issubdtype(host.dtype, np.number):
        low, high = int(fmt.min), int(fmt.max)
        whole = np.issubdtype(host.dtype, np.integer) or bool(np.all(np.floor(host) == host))
        if not whole or int(host.min()) < low or int(host.max()) > high:
            raise InputError(
                message(
                    f"values from {host.min()} to {host.max()} as {fmt.name}",
                    f"integers from {low} to {high}",
                    "Make a float tensor and cast it.",
                )
            )
    if fmt.kind == "int":
        return casting.array(host, fmt)
    check_x64(fmt, "a tensor")
    check_numeric(host.dtype)
    with jax.enable_x64(True):  # one rounding, from the values as they were written
        made = _cast(host, fmt, "RINT", "OFF", target=Target(api="numerics"))
        words = np.asarray(casting.to_codes(made))
    return casting.from_codes(words, fmt)


def cast(
    input: Tensor,
    dtype: DataType | str,
    mode: CastMode | str = CastMode.CAST_NONE,
    satmode: SaturationMode | str | bool = SaturationMode.OFF,
    *,
    soc: SoC | str = SoC.ASCEND_950PR,
    overflow: OverflowMode | str = OverflowMode.INF_NAN,
    deqscale: Any = None,
) -> Tensor:
    """Convert a tensor to another data type, as pypto.cast does.

    Shape: that of ``input``.

    Special values: those of `npusim.cast` under ``api="pypto"``.

    Gradient: straight-through between float types; none for integers and codes.

    Args:
        input: rank 1 to 4, not empty, at most INT32_MAX elements, not TILEOP_NZ.
        dtype: destination.
        mode: CAST_NONE: the pair's default. A mode the pair does not take falls back to the
            default with a `CastFallbackWarning`.
        satmode: OFF keeps the low bits of an integer result, ON clamps it.
        soc: the chip, ``950PR`` or ``A2A3``.
        overflow: the device's float overflow mode.
        deqscale: scale of INT32 -> FP16; None: the tensor's own (`set_deqscale`), else 1.0.

    Raises:
        InputError: no Tensor, a layout, rank or size that pypto.cast does not take, or a deqscale
            for another pair.
        UnsupportedCastError: the chip lacks the pair.

    Source: pypto.cast page.

    Example:
        >>> x = tensor([2], DT_FP32, data=[2.0, 3.0])
        >>> cast(x, DT_FP16)
        Tensor([2.0, 3.0], DT_FP16)
    """
    if not isinstance(input, Tensor):
        raise InputError(
            message(
                f"an input of type {type(input).__name__}",
                "a pypto.Tensor",
                "Wrap it: pypto.tensor(values, pypto.DT_FP16).",
            )
        )
    if input.format is not TileOpFormat.TILEOP_ND:
        raise InputError(
            message(
                f"a tensor of format {input.format.value}",
                TileOpFormat.TILEOP_ND.value,
                "pypto.cast does not take TILEOP_NZ; make the tensor with TILEOP_ND.",
            )
        )
    fmt = dtypes.dtype(dtype)
    deq = input.dtype is DT_INT32 and fmt is DT_FP16
    scale = deqscale
    if scale is None and deq:
        scale = input.deqscale
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CastFallbackWarning)
        out = _cast(
            input.value,
            fmt,
            mode,
            satmode,
            target=Target(soc, "pypto", overflow),
            deqscale=1.0 if scale is None else scale,
        )
    for warning in caught:  # so that it points at the caller's line
        warnings.warn(str(warning.message), warning.category, stacklevel=2)
    return Tensor(out, None if deq else input.deqscale, "", input.format)


def set_vec_tile_shapes(*shapes: int) -> None:
    """Check a tile shape. Tiles split the work; they do not touch a value.

    Raises:
        InputError: not 1 to 4 positive integers.

    Example:
        >>> set_vec_tile_shapes(4, 16)
    """
    fits = all(_is_int(n) and 0 < n <= _INT32_MAX for n in shapes)
    if not fits or not 1 <= len(shapes) <= _MAX_TILE_RANK:
        raise InputError(
            message(
                f"tile shape {shapes}",
                f"1 to {_MAX_TILE_RANK} positive integers",
                "Give one length for each axis of the output, e.g. set_vec_tile_shapes(4, 16).",
            )
        )


def set_deqscale(input: Any, scale: Any = None) -> Tensor:
    """Return the tensor with the scale that its cast INT32 -> FP16 will use.

    PyPTO's setting is global. Here it belongs to the tensor, because a compiled function would not
    see a global change; ``cast(..., deqscale=scale)`` does the same in one call.

    Raises:
        InputError: called with the scale alone.

    Example:
        >>> x = set_deqscale(tensor([1], DT_INT32, data=[1000]), 0.5)
        >>> cast(x, DT_FP16)
        Tensor([500.0], DT_FP16)
    """
    if not isinstance(input, Tensor) or scale is None:
        raise InputError(
            message(
                f"set_deqscale({input})" if scale is None else f"set_deqscale on {input!r}",
                "a tensor and its scale",
                "Write x = pypto.set_deqscale(x, scale), or pypto.cast(..., deqscale=scale): "
                "npusim keeps no global scale.",
            )
        )
    return dataclasses.replace(input, deqscale=scale)
