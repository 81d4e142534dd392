"""Float words as integers: layouts, bitcasts, and exact moves between the two word sizes.

XLA on CPU treats float32 subnormals as zero in comparisons and arithmetic, so everything here
and in the kernels works on the unsigned words. An integer-to-float conversion is used where it is
exact and its result normal; that is not touched by flushing.
"""

# Strict, but for what JAX leaves untyped.
# pyright: strict, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array


@dataclasses.dataclass(frozen=True, kw_only=True)
class WordLayout:
    """How an IEEE word is divided.

    Attributes:
        name: name of the float dtype.
        bits: width of the word.
        mantissa_bits: width of the stored fraction.
        bias: exponent bias.
    """

    name: str
    bits: int
    mantissa_bits: int
    bias: int

    @property
    def uint(self) -> type[np.unsignedinteger]:
        """The NumPy scalar type of the word."""
        return np.uint64 if self.bits == 64 else np.uint32

    @property
    def sint(self) -> type[np.signedinteger]:
        """The signed NumPy scalar type of the same width."""
        return np.int64 if self.bits == 64 else np.int32

    @property
    def sign(self) -> np.unsignedinteger:
        """The sign bit."""
        return self.uint(1 << (self.bits - 1))

    @property
    def magnitude(self) -> np.unsignedinteger:
        """Every bit but the sign."""
        return self.uint((1 << (self.bits - 1)) - 1)

    @property
    def implicit(self) -> np.unsignedinteger:
        """The implicit leading bit of a normal significand."""
        return self.uint(1 << self.mantissa_bits)

    @property
    def fraction(self) -> np.unsignedinteger:
        """The stored fraction bits."""
        return self.uint((1 << self.mantissa_bits) - 1)

    @property
    def inf(self) -> np.unsignedinteger:
        """The word of +infinity; larger magnitudes are NaN."""
        return self.uint((2 * self.bias + 1) << self.mantissa_bits)

    def power_of_two(self, exponent: int) -> np.unsignedinteger:
        """The word of ``2 ** exponent``, which must be normal."""
        assert 1 - self.bias <= exponent <= self.bias, exponent
        return self.uint((exponent + self.bias) << self.mantissa_bits)


F32 = WordLayout(name="float32", bits=32, mantissa_bits=23, bias=127)
F64 = WordLayout(name="float64", bits=64, mantissa_bits=52, bias=1023)

NAN32 = np.uint32(0x7FFF_FFFF)
NAN64 = np.uint64(0x7FFF_FFFF_FFFF_FFFF)

_EXPONENT_GAP = F64.bias - F32.bias
_FRACTION_GAP = F64.mantissa_bits - F32.mantissa_bits


def unsigned(bits: int) -> type[np.unsignedinteger]:
    """The smallest NumPy unsigned type that holds ``bits`` bits."""
    for limit, kind in ((8, np.uint8), (16, np.uint16), (32, np.uint32)):
        if bits <= limit:
            return kind
    return np.uint64


def as_words(x: Array) -> Array:
    """Bitcast a numeric array to unsigned words of its own width; bool becomes 0 and 1.

    Sub-byte JAX types come back as one uint8 code an element.
    """
    if x.dtype == jnp.bool_:
        return x.astype(jnp.uint8)
    if x.dtype == jnp.int4:
        return x.astype(jnp.int8).astype(jnp.uint8) & np.uint8(0xF)
    if x.dtype.itemsize == 1 and x.dtype.name == "float4_e2m1fn":
        return jax.lax.bitcast_convert_type(x, jnp.uint4).astype(jnp.uint8)
    return jax.lax.bitcast_convert_type(x, unsigned(x.dtype.itemsize * 8))


def from_words(words: Array, dtype: np.dtype) -> Array:
    """Bitcast unsigned words to ``dtype`` of the same width; the inverse of `as_words`."""
    if dtype == np.bool_:
        return words.astype(jnp.bool_)
    return jax.lax.bitcast_convert_type(words, dtype)


def magnitude_to_float(value: Array, layout: WordLayout) -> Array:
    """The float word of a small unsigned integer; exact below ``2 ** (mantissa_bits + 1)``."""
    as_float = value.astype(layout.sint).astype(layout.name)
    return jax.lax.bitcast_convert_type(as_float, layout.uint)


def scaled_integer(value: Array, exponent: int, layout: WordLayout) -> Array:
    """The word of ``value * 2 ** exponent`` for a small unsigned integer, 0 for 0.

    The result must be a normal number of the layout.
    """
    word = magnitude_to_float(value, layout)
    step = (exponent << layout.mantissa_bits) % (1 << layout.bits)  # modular: may be negative
    return jnp.where(value == 0, layout.uint(0), word + layout.uint(step))


def widen(word: Array) -> Array:
    """Float32 words to float64 words, exactly; NaN becomes the canonical NaN."""
    sign = (word & F32.sign).astype(np.uint64) << np.uint64(32)
    magnitude = word & F32.magnitude
    normal = (magnitude.astype(np.uint64) << np.uint64(_FRACTION_GAP)) + np.uint64(
        _EXPONENT_GAP << F64.mantissa_bits
    )
    subnormal = scaled_integer(magnitude, 1 - F32.bias - F32.mantissa_bits, F64)
    wide = jnp.where(magnitude < F32.implicit, subnormal, normal)
    wide = jnp.where(magnitude == F32.inf, F64.inf, wide)
    return jnp.where(magnitude > F32.inf, NAN64, wide | sign)


def narrow(word: Array) -> Array:
    """Float64 words that lie on the float32 grid to float32 words; NaN becomes canonical.

    Magnitudes of ``2 ** 128`` and above become infinity.
    """
    sign = (word >> np.uint64(32)).astype(np.uint32) & F32.sign
    magnitude = word & F64.magnitude
    exponent = (magnitude >> np.uint64(F64.mantissa_bits)).astype(np.int32)
    rebased = magnitude - np.uint64(_EXPONENT_GAP << F64.mantissa_bits)
    normal = (rebased >> np.uint64(_FRACTION_GAP)).astype(np.uint32)
    significand = (magnitude & F64.fraction) | F64.implicit
    shift = jnp.clip(_FRACTION_GAP + 1 + _EXPONENT_GAP - exponent, 0, 63).astype(np.uint64)
    subnormal = (significand >> shift).astype(np.uint32)
    out = jnp.where(exponent > _EXPONENT_GAP, normal, subnormal)
    out = jnp.where(magnitude >= F64.power_of_two(F32.bias + 1), F32.inf, out)
    return jnp.where(magnitude > F64.inf, NAN32, out | sign)
