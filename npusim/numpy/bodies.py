"""What the elementwise operators compute, on arrays that are all of the compute type."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from npusim.dtypes import DT_FP32, DataType
from npusim.ops.arithmetic import close, divide


def multiply(x: Array, y: Array) -> Array:
    """The product; a complex one by its four real products, added as written."""
    if not jnp.issubdtype(x.dtype, np.complexfloating):
        return jnp.multiply(x, y)
    a, b, c, d = jnp.real(x), jnp.imag(x), jnp.real(y), jnp.imag(y)
    return lax.complex(a * c - b * d, a * d + b * c)


def floor_divide(x: Array, y: Array) -> Array:
    """The floor of the quotient; a float quotient is rounded first."""
    if jnp.issubdtype(x.dtype, np.floating):
        return jnp.floor(divide(x, y))
    return jnp.floor_divide(x, y)


def quotient(x: Array, y: Array) -> Array:
    """Division, rounded once."""
    return divide(x, y)


def square_root(x: Array) -> Array:
    """The square root, which XLA rounds correctly."""
    return jnp.sqrt(x)


def square(x: Array) -> Array:
    """The product with itself."""
    return multiply(x, x)


def reciprocal(x: Array) -> Array:
    """One over x, rounded once."""
    return divide(jnp.ones_like(x), x)


def relu(x: Array) -> Array:
    """The larger of x and 0."""
    return jax.nn.relu(x)


def clip(x: Array, *bounds: Array, lower: bool, upper: bool) -> Array:
    """The larger of value and lower bound, then the smaller of that and the upper bound."""
    rest = list(bounds)
    if lower:
        x = jnp.maximum(x, rest.pop(0))
    return jnp.minimum(x, rest.pop(0)) if upper else x


def gelu(x: Array) -> Array:
    """The tanh form as the kernels write it."""
    inner = x + x * x * x * jnp.asarray(0.044715, x.dtype)
    return divide(x, jnp.exp(inner * jnp.asarray(-1.5957691, x.dtype)) + jnp.ones((), x.dtype))


def _sigmoid(x: Array) -> Array:
    return divide(jnp.ones_like(x), jnp.ones((), x.dtype) + jnp.exp(-x))


def _silu(x: Array) -> Array:
    return divide(x, jnp.ones((), x.dtype) + jnp.exp(-x))


def rsqrt(x: Array) -> Array:
    """One over the square root, both operations rounded once."""
    return divide(jnp.ones_like(x), jnp.sqrt(x))


@dataclasses.dataclass(frozen=True)
class Function:
    """A transcendental function, within one unit in the last place of the result's type.

    XLA's float32 functions are good enough for a 16-bit result; a float32 one is computed wider.
    """

    plain: Callable[[Array], Array]
    exact: Callable[[Array], Array]

    def body(self, compute: DataType, result: DataType) -> Callable[[Array], Array]:
        """The form for a compute type and a result type."""
        return self.exact if compute is DT_FP32 and result is DT_FP32 else self.plain


FUNCTIONS: dict[str, Function] = {
    name: Function(function, close(function))
    for name, function in {
        "exp": jnp.exp,
        "log": jnp.log,
        "rsqrt": rsqrt,
        "tanh": jnp.tanh,
        "erf": jax.scipy.special.erf,
        "sigmoid": _sigmoid,
        "silu": _silu,
        "sin": jnp.sin,
        "cos": jnp.cos,
        "expm1": jnp.expm1,
        "log1p": jnp.log1p,
    }.items()
}
