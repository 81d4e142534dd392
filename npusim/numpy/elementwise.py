"""The elementwise operators: one table, two wrappers."""

import dataclasses
from typing import Any, Protocol

import jax.numpy as jnp

from npusim._errors import InputError, message
from npusim.dtypes import dtype as dtype_of
from npusim.modes import Target
from npusim.numpy import bodies
from npusim.numpy.env import DEFAULT, Body, call, env, is_scalar


class Unary(Protocol):
    """An elementwise operator of one operand."""

    def __call__(
        self, x: Any, /, *, dtype: Any = None, target: Target | str = ..., rules: str = ...
    ) -> Any:
        """Apply the operator."""
        ...


class Binary(Protocol):
    """An elementwise operator of two operands."""

    def __call__(
        self, x: Any, y: Any, /, *, dtype: Any = None, target: Target | str = ..., rules: str = ...
    ) -> Any:
        """Apply the operator."""
        ...


@dataclasses.dataclass(frozen=True)
class Spec:
    """One elementwise operator.

    Attributes:
        body: what it computes, on arrays of the compute type.
        does: the first line of its docstring, after "Return".
        op: its name in the scalar derivation tables; None: scalars count by category.
        special: special values worth a word.
    """

    body: Body
    does: str
    op: str | None = None
    special: str = "those of the compute type's arithmetic."


_WRAPS = "integers wrap; a 16-bit float overflow becomes inf, or MAX under SATURATE."
_NANS = "NaN if an operand is NaN; the sign of a zero follows the backend."
_LOOSE = "those of the function; results within one unit in the last place."

BINARY: dict[str, Spec] = {
    "add": Spec(jnp.add, "the sum of two arrays", "add", _WRAPS),
    "subtract": Spec(jnp.subtract, "the difference of two arrays", "sub", _WRAPS),
    "multiply": Spec(bodies.multiply, "the product of two arrays", "mul", _WRAPS),
    "divide": Spec(bodies.quotient, "the quotient of two arrays; integers give fp32", "div"),
    "floor_divide": Spec(bodies.floor_divide, "the floor of the quotient of two arrays", "div"),
    "remainder": Spec(jnp.remainder, "the remainder of a division, with the divisor's sign"),
    "maximum": Spec(jnp.maximum, "the larger of two arrays", "maximum", _NANS),
    "minimum": Spec(jnp.minimum, "the smaller of two arrays", "minimum", _NANS),
    "equal": Spec(jnp.equal, "whether two arrays are equal", "eq", "NaN equals nothing."),
    "not_equal": Spec(jnp.not_equal, "whether two arrays differ", "ne", "NaN differs from all."),
    "less": Spec(jnp.less, "whether x is less than y", "lt", "False for NaN."),
    "less_equal": Spec(jnp.less_equal, "whether x is at most y", "le", "False for NaN."),
    "greater": Spec(jnp.greater, "whether x is greater than y", "gt", "False for NaN."),
    "greater_equal": Spec(jnp.greater_equal, "whether x is at least y", "ge", "False for NaN."),
    "logical_and": Spec(jnp.logical_and, "whether both are unequal to 0"),
    "logical_or": Spec(jnp.logical_or, "whether one is unequal to 0"),
    "logical_xor": Spec(jnp.logical_xor, "whether just one is unequal to 0"),
    "bitwise_and": Spec(jnp.bitwise_and, "the bits set in both"),
    "bitwise_or": Spec(jnp.bitwise_or, "the bits set in one or both"),
    "bitwise_xor": Spec(jnp.bitwise_xor, "the bits set in just one"),
}

UNARY: dict[str, Spec] = {
    "negative": Spec(jnp.negative, "the negated array", special=_WRAPS),
    "abs": Spec(jnp.abs, "the magnitude; of a complex array, in the type of its parts"),
    "sqrt": Spec(bodies.square_root, "the square root; integers give fp32"),
    "exp": Spec(bodies.FUNCTIONS["exp"], "e to the power of x", special=_LOOSE),
    "log": Spec(bodies.FUNCTIONS["log"], "the natural logarithm", special=_LOOSE),
    "rsqrt": Spec(bodies.FUNCTIONS["rsqrt"], "one over the square root", special=_LOOSE),
    "tanh": Spec(bodies.FUNCTIONS["tanh"], "the hyperbolic tangent", special=_LOOSE),
    "erf": Spec(bodies.FUNCTIONS["erf"], "the error function", special=_LOOSE),
    "sigmoid": Spec(bodies.FUNCTIONS["sigmoid"], "1 / (1 + exp(-x))", special=_LOOSE),
    "silu": Spec(bodies.FUNCTIONS["silu"], "x / (1 + exp(-x))", special=_LOOSE),
    "gelu": Spec(bodies.gelu, "the Gaussian error linear unit in its tanh form, not erf"),
    "sin": Spec(bodies.FUNCTIONS["sin"], "the sine", special=_LOOSE),
    "cos": Spec(bodies.FUNCTIONS["cos"], "the cosine", special=_LOOSE),
    "expm1": Spec(bodies.FUNCTIONS["expm1"], "exp(x) - 1", special=_LOOSE),
    "log1p": Spec(bodies.FUNCTIONS["log1p"], "log(1 + x)", special=_LOOSE),
    "relu": Spec(bodies.relu, "the larger of x and 0", special="NaN stays."),
    "square": Spec(bodies.square, "the product of x with itself", special=_WRAPS),
    "reciprocal": Spec(bodies.reciprocal, "one over x; integers give fp32"),
    "sign": Spec(jnp.sign, "-1, 0 or 1 by the sign of x", special="NaN stays."),
    "floor": Spec(jnp.floor, "the largest integer not above x", special="inf and NaN stay."),
    "ceil": Spec(jnp.ceil, "the smallest integer not below x", special="inf and NaN stay."),
    "trunc": Spec(jnp.trunc, "x without its fraction", special="inf and NaN stay."),
    "isnan": Spec(jnp.isnan, "whether x is NaN", special="none."),
    "isinf": Spec(jnp.isinf, "whether x is infinite", special="none."),
    "isfinite": Spec(jnp.isfinite, "whether x is neither infinite nor NaN", special="none."),
    "logical_not": Spec(jnp.logical_not, "whether x is 0"),
    "bitwise_not": Spec(jnp.bitwise_not, "the complement of every bit"),
}

_DOC = """Return {does}, as the NPU's operator gives it.

Shape: {shape}

Special values: {special}

Gradient: that of the function in the compute type; roundings are straight-through.

Args:
{args}
    dtype: type of the output; by default the operator's own.
    target: chip, entry point of the operand casts and overflow mode; a chip's name means aclnn.
    rules: derivation table: documented, implementation or zh.

Raises:
    PromotionError: no type can be derived for the operands.
    InputError: a type that the operator does not take; the error lists those it takes.
    ConversionError: an output type that the result does not become.
    X64RequiredError: a 64-bit type while x64 is off.

Source: the operator's rows, ``npusim.ops.operator_rows({name!r}, soc)``.
"""

_ONE = "    x: an array, NpuArray or number."
_TWO = "    x: an array, NpuArray or number.\n    y: likewise."


def _unary(name: str) -> Unary:
    spec = UNARY[name]

    def operator(
        x: Any, /, *, dtype: Any = None, target: Target | str = DEFAULT, rules: str = "documented"
    ) -> Any:
        return call(name, spec.body, [x], env(target, rules), op=spec.op, dtype=dtype)

    return _named(operator, name, spec, "that of x.", _ONE)


def _binary(name: str) -> Binary:
    spec = BINARY[name]

    def operator(
        x: Any,
        y: Any,
        /,
        *,
        dtype: Any = None,
        target: Target | str = DEFAULT,
        rules: str = "documented",
    ) -> Any:
        return call(name, spec.body, [x, y], env(target, rules), op=spec.op, dtype=dtype)

    return _named(operator, name, spec, "the operands broadcast.", _TWO)


def _named(operator: Any, name: str, spec: Spec, shape: str, args: str) -> Any:
    operator.__name__ = operator.__qualname__ = name
    operator.__doc__ = _DOC.format(
        does=spec.does, shape=shape, special=spec.special, args=args, name=name
    )
    return operator


add = _binary("add")
subtract = _binary("subtract")
multiply = _binary("multiply")
divide = _binary("divide")
floor_divide = _binary("floor_divide")
remainder = _binary("remainder")
maximum = _binary("maximum")
minimum = _binary("minimum")
equal = _binary("equal")
not_equal = _binary("not_equal")
less = _binary("less")
less_equal = _binary("less_equal")
greater = _binary("greater")
greater_equal = _binary("greater_equal")
logical_and = _binary("logical_and")
logical_or = _binary("logical_or")
logical_xor = _binary("logical_xor")
bitwise_and = _binary("bitwise_and")
bitwise_or = _binary("bitwise_or")
bitwise_xor = _binary("bitwise_xor")
negative = _unary("negative")
abs = _unary("abs")
sqrt = _unary("sqrt")
exp = _unary("exp")
log = _unary("log")
rsqrt = _unary("rsqrt")
tanh = _unary("tanh")
erf = _unary("erf")
sigmoid = _unary("sigmoid")
silu = _unary("silu")
gelu = _unary("gelu")
sin = _unary("sin")
cos = _unary("cos")
expm1 = _unary("expm1")
log1p = _unary("log1p")
relu = _unary("relu")
square = _unary("square")
reciprocal = _unary("reciprocal")
sign = _unary("sign")
floor = _unary("floor")
ceil = _unary("ceil")
trunc = _unary("trunc")
isnan = _unary("isnan")
isinf = _unary("isinf")
isfinite = _unary("isfinite")
logical_not = _unary("logical_not")
bitwise_not = _unary("bitwise_not")


def power(
    x: Any,
    y: Any,
    /,
    *,
    dtype: Any = None,
    target: Target | str = DEFAULT,
    rules: str = "documented",
) -> Any:
    """Return x to the power of y, as the NPU's operator gives it.

    Shape: the operands broadcast.

    Special values: those of the compute type; integer powers wrap. A negative integer exponent of
    an integer base is refused where the exponent is a number; in an array it is not looked at.

    Gradient: that of the function in the compute type; roundings are straight-through.

    Args:
        x: an array, NpuArray or number.
        y: likewise.
        dtype: type of the output.
        target: as for `add`.
        rules: as for `add`.

    Raises:
        InputError: types that the operator does not take, a negative integer exponent of an
            integer base, or an exponent beyond the derived type (aclnn returns 161002).
        PromotionError: no type can be derived for the operands.
        ConversionError: an output type that the result does not become.

    Source: the operator's rows; hicann/ops-math math/pow/op_api.

    Example:
        >>> power(jnp.array([2, 3], jnp.int8), 5)
        Array([ 32, -13], dtype=int8)
    """
    at = env(target, rules)
    if isinstance(y, int) and not isinstance(y, bool) and not is_scalar(x):
        own = dtype_of(x.dtype)
        if own.kind == "int" and not 0 <= y <= own.max:
            raise InputError(
                message(
                    f"exponent {y} of an {own} base",
                    f"integers from 0 to {own.max}, or a float",
                    "Pass a float exponent, or cast the base to a float first (npusim.cast).",
                )
            )
    return call("power", jnp.power, [x, y], at, op="pow", dtype=dtype)


def clip(
    arr: Any,
    /,
    min: Any = None,
    max: Any = None,
    *,
    dtype: Any = None,
    target: Target | str = DEFAULT,
    rules: str = "documented",
) -> Any:
    """Return values held between two bounds.

    Shape: the operands broadcast.

    Special values: NaN stays; where the bounds cross, the upper one.

    Gradient: 1 inside, 0 outside, shared at a bound, as `jax.numpy.clip`.

    Args:
        arr: an array, NpuArray or number.
        min: lower bound, None: none.
        max: upper bound, None: none.
        dtype: type of the output.
        target: as for `add`.
        rules: as for `add`.

    Raises:
        InputError: types that the operator does not take.
        PromotionError: no type can be derived for the operands.
        ConversionError: an output type that the result does not become.

    Source: the operator's rows (assumed).

    Example:
        >>> clip(jnp.array([-3, 0, 9], jnp.int8), 0, 5)
        Array([0, 0, 5], dtype=int8)
    """
    bounds = [b for b in (min, max) if b is not None]
    lower, upper = min is not None, max is not None
    at = env(target, rules)
    return call("clip", bodies.clip, [arr, *bounds], at, dtype=dtype, lower=lower, upper=upper)


def round(
    a: Any,
    decimals: int = 0,
    *,
    dtype: Any = None,
    target: Target | str = DEFAULT,
    rules: str = "documented",
) -> Any:
    """Return values rounded to the nearest integer, ties to even.

    Shape: that of ``a``.

    Special values: inf and NaN stay.

    Gradient: zero, as `jax.numpy.round`.

    Args:
        a: an array, NpuArray or number.
        decimals: 0 only.
        dtype: type of the output.
        target: as for `add`.
        rules: as for `add`.

    Raises:
        InputError: other decimals, or types that the operator does not take.
        ConversionError: an output type that the result does not become.

    Source: the operator's rows (assumed).

    Example:
        >>> round(jnp.array([0.5, 1.5, 2.6], jnp.float16))
        Array([0., 2., 3.], dtype=float16)
    """
    if decimals != 0:
        raise InputError(
            message(
                f"decimals={decimals}",
                "decimals=0",
                "Multiply by a power of ten first, and divide after.",
            )
        )
    return call("round", jnp.round, [a], env(target, rules), dtype=dtype)
