"""Faults to plant: a text in a file, what to write instead, and tests that must notice."""

import dataclasses

GOLDEN = "tests/casting/test_golden.py::test_cast_rows_in_the_laboratory"
ROUNDING = f"{GOLDEN}[rounding_modes]"
TO_INT = f"{GOLDEN}[boundary_float_to_int]"
TO_FLOAT = f"{GOLDEN}[boundary_float_to_float]"
HIF8 = f"{GOLDEN}[hif8_round_hybrid]"
TRAPS = "tests/casting/test_wide_sources.py::test_float64_to_subnormal_results[bf16]"
FLOAT32 = "tests/casting/test_every_pair.py::test_pypto[A2A3]"
TAPERED = "tests/casting/test_wide_sources.py::test_hif8_in_every_mode"
PACKING = "tests/casting/test_npuarray.py::test_packing_puts_element_0_low"
SECOND = "tests/gradients/test_fake_cast.py::test_second_derivatives[static]"
BOUND = "tests/gradients/test_fake_cast.py::test_clip_follows_the_mode_at_the_bound"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fault:
    """One change of the source text.

    Attributes:
        file: below the package.
        old: text that must occur exactly once.
        new: what stands there instead.
        seen_by: the test that must fail; it passes without the fault.
    """

    file: str
    old: str
    new: str
    seen_by: str


_RINT = "return jnp.where(odd == 0, ulp - 1, ulp) >> 1"

FAULTS = {
    "ties away for ties even": Fault(
        file="numerics/rounding.py",
        old=_RINT,
        new="return ulp >> 1",
        seen_by=ROUNDING,
    ),
    "shift 0 wraps in the naive addend half - 1 + odd": Fault(
        file="numerics/rounding.py",
        old=_RINT,
        new="return (ulp >> 1) - (odd == 0).astype(ulp.dtype)",
        seen_by=FLOAT32,
    ),
    "no sticky bit": Fault(
        file="numerics/grid.py",
        old="return (held + extra) & (~ulp + uint(1)), lost",
        new="return ((held & ~(ulp - uint(1) >> uint(1))) + extra) & (~ulp + uint(1)), lost",
        seen_by=TRAPS,
    ),
    "clamp to int32 before the low bits are kept": Fault(
        file="numerics/integers.py",
        old="    low = wrap_integer(rounded, negative, layout, wide, np.uint32(0))\n",
        new="    low = wrap_integer(rounded, negative, layout, wide, np.uint32(0))\n"
        "    low = jnp.where(rounded >= layout.power_of_two(31),\n"
        "                    jnp.where(minus, wide(1 << 31), wide((1 << 31) - 1)), low)\n",
        seen_by=TO_INT,
    ),
    "float32 subnormals flushed": Fault(
        file="numerics/grid.py",
        old="    magnitude = word & F32.magnitude\n    negative = word & F32.sign\n",
        new="    magnitude = word & F32.magnitude\n"
        "    magnitude = jnp.where(magnitude < F32.implicit, np.uint32(0), magnitude)\n"
        "    negative = word & F32.sign\n",
        seen_by=TRAPS,
    ),
    "nibbles swapped": Fault(
        file="numerics/packing.py",
        old="return pairs[..., 0] | (pairs[..., 1] << np.uint8(4))",
        new="return pairs[..., 1] | (pairs[..., 0] << np.uint8(4))",
        seen_by=PACKING,
    ),
    "parity of the HiFloat8 taper": Fault(
        file="numerics/grid.py",
        old="return magnitude, _tapered_ulp(magnitude, layout)",
        new="return magnitude | layout.implicit, _tapered_ulp(magnitude, layout)",
        seen_by=TAPERED,
    ),
    "NaN not canonical": Fault(
        file="numerics/codec.py",
        old="code = jnp.where(magnitude > F32.inf, np.uint32(grid.nan_code), code)\n"
        "    return code.astype(unsigned(bits))\n\n\n# HiFloat8",
        new="code = jnp.where(magnitude > F32.inf, np.uint32(grid.nan_code ^ 1), code)\n"
        "    return code.astype(unsigned(bits))\n\n\n# HiFloat8",
        seen_by=TO_FLOAT,
    ),
    "HYBRID carries above its threshold only": Fault(
        file="numerics/hybrid.py",
        old="following >= threshold",
        new="following > threshold",
        seen_by=HIF8,
    ),
    "overflow decided before rounding": Fault(
        file="numerics/grid.py",
        old="out_of_range = ((rounded > limit) & ~lost) | is_nan",
        new="out_of_range = (magnitude > limit) | is_nan",
        seen_by=BOUND,
    ),
    "raw kernel in the derivative rule": Fault(
        file="casting/fake.py",
        old="    out = _fake(plan, x)\n",
        new="    out = jax.lax.stop_gradient(_kernel(plan, x))\n",
        seen_by=SECOND,
    ),
}
