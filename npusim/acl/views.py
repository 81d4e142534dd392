"""A view on flat storage: strides and an offset, read and written without touching a bit."""

import dataclasses
import functools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from npusim.acl.status import invalid

if TYPE_CHECKING:
    import jax

Shape = tuple[int, ...]


def contiguous_strides(dims: Shape) -> Shape:
    """The strides of an array of ``dims`` that lies without gaps, last axis fastest."""
    return tuple(math.prod(dims[axis + 1 :]) for axis in range(len(dims)))


@dataclasses.dataclass(frozen=True)
class View:
    """Which element of flat storage each element of a tensor is, counted in elements.

    Attributes:
        dims: the tensor's shape.
        strides: elements of storage from one index of an axis to the next.
        offset: place of the first element.
        size: elements of the storage.
    """

    dims: Shape
    strides: Shape
    offset: int
    size: int

    @property
    def count(self) -> int:
        """Number of elements of the tensor."""
        return math.prod(self.dims)

    @property
    def whole(self) -> bool:
        """Whether the tensor is the storage itself, in order."""
        return self.offset == 0 and self.count == self.size and self.contiguous

    @property
    def contiguous(self) -> bool:
        """Whether the elements lie in order and without gaps."""
        plain = contiguous_strides(self.dims)
        moves = zip(self.dims, self.strides, plain, strict=True)
        return all(step == expected for n, step, expected in moves if n > 1)

    @property
    def last(self) -> int:
        """Place of the element that lies furthest."""
        return self.offset + sum(
            (n - 1) * step for n, step in zip(self.dims, self.strides, strict=True)
        )

    @property
    def overlaps(self) -> bool:
        """Whether two elements of the tensor are one element of storage."""
        pairs = zip(self.strides, self.dims, strict=True)
        reach = 0
        for step, n in sorted((step, n) for step, n in pairs if n > 1):
            if step <= reach:
                places = self.places()
                return len(np.unique(places)) != places.size
            reach += (n - 1) * step
        return False

    def places(self) -> np.ndarray:
        """The place of every element."""
        place = np.full((1,) * len(self.dims), self.offset, np.int64)
        for axis, (n, step) in enumerate(zip(self.dims, self.strides, strict=True)):
            shape = [1] * len(self.dims)
            shape[axis] = n
            place = place + (np.arange(n, dtype=np.int64) * step).reshape(shape)
        return np.broadcast_to(place, self.dims)

    def check(self) -> None:
        """Raise unless every element lies in the storage.

        Raises:
            AclnnError: 161002.
        """
        if len(self.strides) != len(self.dims):
            raise invalid(
                f"{len(self.strides)} strides for {len(self.dims)} view dims",
                f"{len(self.dims)} strides, or None",
                "Pass one stride an axis; None means without gaps.",
            )
        for name, numbers in (("strides", self.strides), ("offset", (self.offset,))):
            if min(numbers, default=0) < 0:
                given = self.strides if name == "strides" else self.offset
                raise invalid(
                    f"{name} {given}",
                    "integers of 0 or more",
                    "aclCreateTensor cannot walk backwards: flip the data instead.",
                )
        if self.count and self.last >= self.size:
            raise invalid(
                f"a view of dims {self.dims}, strides {self.strides} and offset {self.offset}, "
                f"which reaches element {self.last}",
                f"elements 0 to {self.size - 1} of the storage",
                "Take smaller dims, strides or offset, or more storage.",
            )


def _index(view: View) -> "jax.Array":
    """The places as an array that XLA makes itself instead of a constant in the program."""
    import jax
    import jax.numpy as jnp

    place = jnp.full(view.dims, view.offset, np.int32)
    for axis, step in enumerate(view.strides):
        place = place + jax.lax.broadcasted_iota(np.int32, view.dims, axis) * np.int32(step)
    return place


def _take(view: View, flat: "jax.Array") -> "jax.Array":
    if view.contiguous:
        return flat[view.offset : view.offset + view.count].reshape(view.dims)
    return flat.at[_index(view)].get(mode="promise_in_bounds")


def _place(view: View, flat: "jax.Array", values: "jax.Array") -> "jax.Array":
    at = flat.at[_index(view)]
    return at.set(values, mode="promise_in_bounds", unique_indices=True)


@functools.cache
def _moves():
    """Both directions, made on first use so that importing this module does not import JAX."""
    import jax

    def words(*arrays: jax.Array) -> tuple[jax.Array, ...]:
        # Moved as integers, so that no backend quiets a NaN or flushes a subnormal on the way.
        kind = np.dtype(f"uint{8 * arrays[0].dtype.itemsize}")
        return tuple(jax.lax.bitcast_convert_type(x, kind) for x in arrays)

    @functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
    def take(view: View, flat: jax.Array) -> jax.Array:
        return jax.lax.bitcast_convert_type(_take(view, *words(flat)), flat.dtype)

    @take.defjvp
    def _(view: View, primals: Any, tangents: Any):
        return take(view, *primals), _take(view, *tangents)

    @functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
    def place(view: View, flat: jax.Array, values: jax.Array) -> jax.Array:
        return jax.lax.bitcast_convert_type(_place(view, *words(flat, values)), flat.dtype)

    @place.defjvp
    def _(view: View, primals: Any, tangents: Any):
        return place(view, *primals), _place(view, *tangents)

    return {
        (direction, real): jax.jit(function, static_argnums=0)
        for direction, real, function in (
            ("take", True, take),
            ("take", False, _take),
            ("place", True, place),
            ("place", False, _place),
        )
    }


def _real(flat: Any) -> bool:
    import jax.numpy as jnp

    return bool(jnp.issubdtype(flat.dtype, jnp.floating))


def take(view: View, flat: Any) -> Any:
    """The tensor's elements, in its shape, from flat storage."""
    return flat.reshape(view.dims) if view.whole else _moves()["take", _real(flat)](view, flat)


def place(view: View, flat: Any, values: Any) -> Any:
    """Flat storage with the tensor's elements replaced by ``values``."""
    if view.whole:
        return values.reshape(-1)
    return _moves()["place", _real(flat)](view, flat, values)
