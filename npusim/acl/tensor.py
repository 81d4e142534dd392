"""aclTensor: a view on flat storage, with a data type and a data format; and its getters."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from npusim import layouts
from npusim._errors import AclnnError, InputError, message
from npusim.acl.enums import acl_format, acl_type, aclDataType, aclFormat, format_of, row_of
from npusim.acl.status import (
    ACL_SUCCESS,
    PARAM_NULLPTR,
    Handle,
    alive,
    invalid,
    reported,
)
from npusim.acl.views import Shape, View, contiguous_strides, place, take
from npusim.casting import NpuArray
from npusim.casting.storage import check_x64, parts, source, store
from npusim.dtypes import DataType
from npusim.layouts import DataFormat
from npusim.layouts.places import as_shape


class DeviceMemory:
    """What tensorData points to: flat elements that calls write to.

    Tensors made from one array each have memory of their own. Tensors made from one DeviceMemory
    share it, as two views of one device address do.

    Attributes:
        dtype: data type of the elements.
        array: the elements, one axis; a jax.Array or an NpuArray.
    """

    def __init__(self, array: Any, dtype: Any):
        with reported():
            row = row_of(dtype)
            found = array.dtype if isinstance(array, NpuArray) else source(array)[1]
            if found is not row:
                raise invalid(
                    f"data of type {found} for a tensor of type {row}",
                    f"data of type {row}",
                    "Cast the data first (npusim.cast), or name its own type.",
                )
            if isinstance(array, NpuArray):
                array = array.unpack()
            elif row.stored_as == "codes":
                array = store(parts(array, row), row)
        self.dtype: DataType = row
        self.array: Any = _flat(array)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(self.array.size)

    def read(self, view: View) -> Any:
        """The elements of ``view``, in its shape."""
        if isinstance(self.array, NpuArray):
            return dataclasses.replace(self.array, codes=take(view, self.array.codes))
        return take(view, self.array)

    def write(self, view: View, values: Any) -> None:
        """Replace the elements of ``view``."""
        if isinstance(self.array, NpuArray):
            codes = place(view, self.array.codes, values.unpack().codes)
            self.array = dataclasses.replace(self.array, codes=codes)
        else:
            self.array = place(view, self.array, values)


def _flat(x: Any) -> Any:
    if isinstance(x, NpuArray):
        return dataclasses.replace(x, codes=x.codes.reshape(-1))
    import jax.numpy as jnp

    return jnp.asarray(x).reshape(-1)


class aclTensor(Handle):
    """A tensor handle: shape, strides and offset into memory, data type, data format.

    Calls write to it, so it is an object and no pytree. It may be made and used inside jit, of a
    traced array; it must not outlive the trace.

    Attributes:
        view: the place of each element.
        format: the data format.
        storage_dims: shape of the memory.
        memory: the memory, which may be passed as tensorData of another tensor.

    Example:
        >>> import jax.numpy as jnp
        >>> t = aclCreateTensor((2, 2), "int8", (1, 2), 1, "ND", (5,), jnp.arange(5, dtype="int8"))
        >>> t.to_jax().tolist(), aclGetViewStrides(t)
        ([[1, 3], [2, 4]], (1, 2))
    """

    creator = "aclCreateTensor"

    def __init__(self, view: View, format: DataFormat, storage_dims: Shape, memory: DeviceMemory):
        self.view = view
        self.format = format
        self.storage_dims = storage_dims
        self.memory = memory

    @property
    def dtype(self) -> DataType:
        """The data type."""
        return self.memory.dtype

    @property
    def shape(self) -> Shape:
        """The shape of the view."""
        return self.view.dims

    @classmethod
    def from_jax(cls, x: Any, format: Any = "ND") -> "aclTensor":
        """Return a tensor of the elements of an array, without gaps.

        Args:
            x: a jax.Array, NumPy array or NpuArray. From ND or a public format it lies as it is;
                for a private format it is the logical array, and the memory holds its tiles.
            format: aclFormat or its name.

        Raises:
            AclnnError: 161002: no array, a rank that the format does not have, a type that
                aclDataType does not have.

        Example:
            >>> import jax.numpy as jnp
            >>> t = aclTensor.from_jax(jnp.ones((20, 33), jnp.float16), "FRACTAL_NZ")
            >>> aclGetViewShape(t), aclGetStorageShape(t)
            ((20, 33), (3, 2, 16, 16))
        """
        with reported():
            row = format_of(format)
            if not isinstance(x, NpuArray):
                x, _ = source(x)
            dims = tuple(x.shape)
            if row.private:
                x = layouts.trans_data(x, _public(row, len(dims)), row)
            return aclCreateTensor(dims, x.dtype, None, 0, row, tuple(x.shape), x)

    def to_jax(self) -> Any:
        """Return the elements in the shape of the view: a jax.Array, or an NpuArray.

        From a private format the tiles are undone.

        Gradient: exact in both modes, towards the array that the memory was made of.

        Raises:
            AclnnError: 161001: the tensor was destroyed.
        """
        alive(self, aclTensor, "self")
        if not self.format.private:
            return self.memory.read(self.view)
        stored = self.memory.read(_plain(self.storage_dims))
        public = _public(self.format, len(self.shape))
        return layouts.trans_data(
            stored, self.format, public, shape=self.shape, c0=self.storage_dims[-1]
        )

    def write(self, values: Any) -> None:
        """Replace the elements by ``values``, an array of the tensor's shape and data type.

        Elements of the memory outside the view stay; in a private format the padding becomes zero.

        Raises:
            AclnnError: 161001: the tensor was destroyed; 161002: another shape or data type.
        """
        alive(self, aclTensor, "self")
        with reported():
            if not isinstance(values, NpuArray):
                values, _ = source(values)
            if tuple(values.shape) != self.shape:
                raise invalid(
                    f"values of shape {tuple(values.shape)} for a tensor of shape {self.shape}",
                    str(self.shape),
                    "Reshape or broadcast them first.",
                )
            held = DeviceMemory(values, self.dtype).array
            if self.format.private:
                public = _public(self.format, len(self.shape))
                shaped = _shaped(held, self.shape)
                c0 = None if self.format.c0 else self.storage_dims[-1]
                tiled = layouts.trans_data(shaped, public, self.format, c0=c0)
                self.memory.write(_plain(self.storage_dims), tiled)
            else:
                self.memory.write(self.view, _shaped(held, self.shape))

    def __repr__(self) -> str:
        if self.destroyed:
            return "aclTensor(destroyed)"
        return (
            f"aclTensor({self.shape}, {acl_type(self.dtype).name}, strides={self.view.strides}, "
            f"offset={self.view.offset}, {acl_format(self.format).name}, "
            f"storage={self.storage_dims})"
        )


def _shaped(x: Any, dims: Shape) -> Any:
    if isinstance(x, NpuArray):
        return dataclasses.replace(x, codes=x.codes.reshape(dims))
    return x.reshape(dims)


def _plain(dims: Shape) -> View:
    """Storage of ``dims`` as a view of itself."""
    strides = contiguous_strides(dims)
    size = View(dims, strides, 0, 0).count
    return View(dims, strides, 0, size)


def _public(private: DataFormat, rank: int) -> DataFormat:
    """The public format of ``rank`` axes that a private one is made of."""
    made_of = [layouts.data_format(name) for t in private.tilings for name in t.of]
    for row in made_of:
        if len(row.axes or ()) == rank or (row.axes is None and rank >= 2):
            return row
    ranks = sorted({len(row.axes) if row.axes else 2 for row in made_of})
    raise InputError(
        message(
            f"format {private} for a tensor of rank {rank}",
            f"rank {' or '.join(map(str, ranks))}",
            f"Reshape the tensor to an axis order that {private} is made of.",
        )
    )


def _zeros(dims: Shape, row: DataType) -> Any:
    """Memory that nobody has written to; the device would hold anything."""
    import jax.numpy as jnp

    check_x64(row, "a tensor")
    count = _plain(dims).size
    if row.stored_as == "codes":
        return NpuArray(jnp.zeros(count, jnp.uint32 if row.bits == 32 else jnp.uint8), row)
    assert row.jax_dtype is not None
    return jnp.zeros(count, row.jax_dtype)


def aclCreateTensor(
    viewDims: Sequence[int],
    dataType: Any,
    strides: Sequence[int] | None,
    offset: int,
    format: Any,
    storageDims: Sequence[int],
    tensorData: Any,
) -> aclTensor:
    """Return a tensor: a view on memory.

    Args:
        viewDims: shape of the tensor; the counts of C are not passed.
        dataType: aclDataType or any name of a data type.
        strides: elements of storage from one index of an axis to the next; None: without gaps.
        offset: place of the first element in the storage.
        format: aclFormat or its name. A public format other than ND has its own rank. In a private
            format viewDims is the logical shape, storageDims that of the tiles.
        storageDims: shape of the storage.
        tensorData: the storage: a jax.Array, NumPy array or NpuArray with as many elements as
            storageDims says, in any shape; a `DeviceMemory` (``tensor.memory``) to share another
            tensor's; None for memory that holds zeros.

    Raises:
        AclnnError: 161001: viewDims or storageDims is None; 161002: negative strides or offset, a
            view that leaves the storage, a format of another rank, data of another type or size.

    Source: aclnn public interfaces page, Chinese edition, table 1; aclCreateTensor page of the
    CANN manual (strides and offset are not negative); hicann/opbase for strides of null.

    Example:
        >>> import numpy as np
        >>> x = np.arange(6, dtype=np.float16)
        >>> aclCreateTensor((2, 3), "half", None, 0, "ND", (6,), x)
        aclTensor((2, 3), ACL_FLOAT16, strides=(3, 1), offset=0, ACL_FORMAT_ND, storage=(6,))
    """
    with reported():
        for name, dims in (("viewDims", viewDims), ("storageDims", storageDims)):
            if dims is None:
                raise AclnnError(
                    message(f"{name} is None", "a sequence of integers", "Pass the shape."),
                    code=PARAM_NULLPTR,
                )
        dims, stored = as_shape(viewDims, "viewDims"), as_shape(storageDims, "storageDims")
        row, fmt = row_of(dataType), format_of(format)
        steps = contiguous_strides(dims) if strides is None else _integers(strides, "strides")
        (start,) = _integers((offset,), "offset")
        view = View(dims, steps, start, _plain(stored).size)
        view.check()
        layouts.check_rank(fmt, len(dims))
        if fmt.private:
            _check_tiles(view, fmt, stored)
        memory = tensorData
        if not isinstance(memory, DeviceMemory):
            memory = DeviceMemory(_zeros(stored, row) if memory is None else memory, row)
        if memory.dtype is not row or memory.size != view.size:
            raise invalid(
                f"memory of {memory.size} elements of type {memory.dtype} for storage dims "
                f"{stored} of type {row}",
                f"{view.size} elements of type {row}",
                "Make storageDims the shape of the whole memory.",
            )
    return aclTensor(view, fmt, stored, memory)


def _integers(values: Sequence[int], what: str) -> Shape:
    try:
        numbers = tuple(int(n) for n in values)
        good = all(n == given for n, given in zip(numbers, values, strict=True))
    except (TypeError, ValueError):
        numbers, good = (), False
    if not good:
        given = values[0] if what == "offset" else values
        raise invalid(f"{what} {given!r}", "integers", "Count in elements, not in bytes.")
    return numbers


def _check_tiles(view: View, fmt: DataFormat, stored: Shape) -> None:
    if view.offset or not view.contiguous:
        raise invalid(
            f"strides {view.strides} and offset {view.offset} for a tensor in {fmt}",
            "strides of None and offset 0",
            "The tiles of a private format have no strides: convert to ND first (trans_data).",
        )
    public = _public(fmt, len(view.dims))
    c0 = stored[-1] if stored and fmt.c0 is None else None
    tiles = layouts.storage_shape(view.dims, public, fmt, c0=c0)
    if tiles != stored:
        raise invalid(
            f"storage dims {stored} for a tensor of shape {view.dims} in {fmt}",
            f"{tiles} (C0 = {tiles[-1]})",
            "npusim.layouts.storage_shape tells the shape.",
        )


def aclDestroyTensor(tensor: aclTensor | None) -> int:
    """End a tensor: using it from now on is an error. None is accepted, as in C.

    Returns:
        0.

    Raises:
        AclnnError: 161001: it was destroyed before; 161002: no aclTensor.

    Source: aclnn public interfaces page, Chinese edition, table 1; hicann/opbase for null.
    """
    if tensor is not None:
        alive(tensor, aclTensor, "tensor").destroyed = True
    return ACL_SUCCESS


def aclGetViewShape(tensor: aclTensor) -> Shape:
    """Return the shape of a tensor. Raises AclnnError 161001 if it is None or destroyed."""
    return alive(tensor, aclTensor, "tensor").view.dims


def aclGetViewStrides(tensor: aclTensor) -> Shape:
    """Return the strides of a tensor. Raises AclnnError 161001 if it is None or destroyed."""
    return alive(tensor, aclTensor, "tensor").view.strides


def aclGetViewOffset(tensor: aclTensor) -> int:
    """Return the offset of a tensor. Raises AclnnError 161001 if it is None or destroyed."""
    return alive(tensor, aclTensor, "tensor").view.offset


def aclGetStorageShape(tensor: aclTensor) -> Shape:
    """Return the shape of a tensor's storage. Raises AclnnError 161001 for None or destroyed."""
    return alive(tensor, aclTensor, "tensor").storage_dims


def aclGetFormat(tensor: aclTensor) -> aclFormat:
    """Return the data format of a tensor. Raises AclnnError 161001 if it is None or destroyed."""
    return acl_format(alive(tensor, aclTensor, "tensor").format)


def aclGetDataType(tensor: aclTensor) -> aclDataType:
    """Return the data type of a tensor. Raises AclnnError 161001 if it is None or destroyed."""
    return acl_type(alive(tensor, aclTensor, "tensor").dtype)
