"""`NpuArray`: values of formats that JAX has no sound dtype for, held as codes."""

import dataclasses

import jax
import numpy as np
from jax import Array
from jax.core import Tracer

from npusim import dtypes, numerics
from npusim._errors import InputError, message
from npusim.dtypes import DT_COMPLEX32, DT_FP16, DT_INT4, DataType
from npusim.numerics import words

_HALF_WIDTH = np.uint32(16)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class NpuArray:
    """Codes of a format together with its (static) data type: a storage form, not a number.

    A pytree with one leaf, so it passes through jit, vmap, scan and checkpoints. It has no
    arithmetic; `decode` gives values.

    Attributes:
        codes: unsigned codes, one an element; two to a byte if ``packed``. COMPLEX32: uint32
            with the real half in the low 16 bits.
        dtype: the data type.
        packed: two 4-bit codes to a byte along the last axis, element 0 in the low nibble.

    Example:
        >>> import npusim as npu
        >>> npu.array([1.0, 100.0], "hif8")
        NpuArray([  1.  96.], hif8, codes=[0x08 0x4A])
    """

    codes: Array
    dtype: DataType = dataclasses.field(metadata={"static": True})
    packed: bool = dataclasses.field(default=False, metadata={"static": True})

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the values, whether packed or not."""
        shape = tuple(self.codes.shape)
        return (*shape[:-1], shape[-1] * 2) if self.packed else shape

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of values."""
        return int(np.prod(self.shape, dtype=np.int64))

    def decode(self) -> Array:
        """The exact values: float32; int8 for INT4, complex64 for COMPLEX32.

        Shape: that of the values.

        Special values: NaN becomes the canonical float32 NaN 0x7FFFFFFF.

        Example:
            >>> import npusim as npu
            >>> npu.from_codes(np.array([0x6E, 0x80], np.uint8), "hif8").decode()
            Array([32768.,    nan], dtype=float32)
        """
        return _decode(self.unpack().codes, self.dtype)

    def unpack(self) -> "NpuArray":
        """The same values with one code an element."""
        return NpuArray(numerics.unpack(self.codes), self.dtype) if self.packed else self

    def pack(self) -> "NpuArray":
        """The same values with two codes to a byte.

        Raises:
            InputError: not a 4-bit format, or an odd last axis.
        """
        if self.packed:
            return self
        check_packable(self.dtype)
        return NpuArray(numerics.pack(self.codes), self.dtype, packed=True)

    def __repr__(self) -> str:
        if isinstance(self.codes, Tracer) or not isinstance(self.codes, jax.Array | np.ndarray):
            return f"NpuArray({self.codes}, {self.dtype}, packed={self.packed})"
        values = np.array2string(np.asarray(self.decode()), threshold=20)
        digits = {np.dtype(np.uint32): 8}.get(self.codes.dtype, 2)
        codes = np.array2string(
            np.asarray(self.codes), threshold=20, formatter={"int": lambda c: f"0x{c:0{digits}X}"}
        )
        packed = ", packed" if self.packed else ""
        return f"NpuArray({values}, {self.dtype}, codes={codes}{packed})"


@jax.jit
def _join(real: Array, imag: Array) -> Array:
    return real.astype(np.uint32) | (imag.astype(np.uint32) << _HALF_WIDTH)


def join_halves(real: Array, imag: Array) -> Array:
    """COMPLEX32 codes of two arrays of half codes."""
    return _join(real, imag)


def split_halves(codes: Array) -> tuple[Array, Array]:
    """The half codes (real, imaginary) of COMPLEX32 codes."""
    return codes.astype(np.uint16), (codes >> _HALF_WIDTH).astype(np.uint16)


def _decode(codes: Array, dtype: DataType) -> Array:
    if dtype is DT_COMPLEX32:
        real, imag = (
            words.from_words(numerics.decode(part, DT_FP16), np.dtype(np.float32))
            for part in split_halves(codes)
        )
        return jax.lax.complex(real, imag)
    if dtype is DT_INT4:
        return ((codes ^ np.uint8(8)) - np.uint8(8)).astype(np.int8)
    return words.from_words(numerics.decode(codes, dtype), np.dtype(np.float32))


def check_packable(dtype: DataType) -> None:
    """Raise InputError unless ``dtype`` packs two to a byte."""
    if dtype.bits != 4:
        raise InputError(
            message(
                f"packed=True for {dtype.short}",
                ", ".join(row.short for row in dtypes.DTYPES if row.bits == 4),
                "Only the 4-bit formats pack two elements to a byte; leave packed=False.",
            )
        )
