"""Inputs that tell casts apart: all codes of short formats, telling ones of long formats."""

from fractions import Fraction

import numpy as np

from npusim._grids import FloatGrid, IntGrid
from npusim.cli.exact import Exact, exact_values, quantum_exponent, width, word_format
from npusim.dtypes import DataType
from npusim.numerics.words import unsigned

_ALL_BITS = 16
_DESTINATION_VALUES = 1 << 12  # of a destination's values, as many give breakpoints


def probes(
    src: DataType, dst: DataType, count: int | None, seed: int, default: int
) -> tuple[np.ndarray, str]:
    """Codes of ``src``, ascending, and a sentence that says what they are."""
    rng = np.random.default_rng(seed)
    kind = unsigned(width(src))
    if width(src) <= _ALL_BITS:
        every = np.arange(1 << width(src), dtype=kind)
        if count is None or count >= every.size:
            return every, f"all {every.size} codes of {src}"
        picked = np.sort(rng.choice(every, count, replace=False))
        return picked, f"{count} of {every.size} codes of {src}, seed {seed}"
    total = default if count is None else count
    structured = _structured(src) | _breakpoints(src, dst, rng)
    found = np.array(sorted(structured), kind)
    room = max(total - found.size, total // 5)  # random codes are a fifth at least
    if found.size > total - room:
        found = rng.choice(found, max(total - room, 0), replace=False)
    draws = rng.integers(0, 1 << width(src), room, dtype=kind, endpoint=False)
    codes = np.unique(np.concatenate([found, draws]))
    return codes, f"{codes.size} codes of {src}, {found.size} of them chosen, seed {seed}"


def _structured(src: DataType) -> set[int]:
    """Every exponent with telling fractions, or powers of two and their neighbours; both signs."""
    grid, bits = src.grid, width(src)
    if isinstance(grid, IntGrid):
        near = {(1 << k) + d for k in range(bits) for d in (-1, 0, 1)} | {0, (1 << bits) - 1}
        return {(sign * v) % (1 << bits) for v in near for sign in (1, -1)}
    assert isinstance(grid, FloatGrid)
    ones = (1 << grid.mantissa_bits) - 1
    top = 1 << (grid.mantissa_bits - 1)
    fractions = (0, 1, top - 1, top, top + 1, ones - 1, ones)
    magnitudes = {
        field << grid.mantissa_bits | fraction
        for field in range(1 << grid.exponent_bits)
        for fraction in fractions
    }
    return {m | sign << (bits - 1) for m in magnitudes for sign in (0, 1)}


def _breakpoints(src: DataType, dst: DataType, rng: np.random.Generator) -> set[int]:
    """Values of the destination and the middles between them, each with its two neighbours."""
    if dst.kind not in ("float", "int", "scale"):
        return set()
    held = word_format(dst)
    size = 1 << width(held)
    if size <= _DESTINATION_VALUES:
        codes = list(range(size))
    else:
        codes = rng.integers(0, size, _DESTINATION_VALUES, dtype=np.uint64).tolist()
    found: set[int] = set()
    for value in exact_values(codes, held):
        if value.kind == "finite":
            unit = Fraction(2) ** quantum_exponent(value.magnitude, dst.grid)
            found |= _around(Exact(value.negative, value.magnitude), src)
            found |= _around(Exact(value.negative, value.magnitude + unit / 2), src)
    return found


def _around(value: Exact, src: DataType) -> set[int]:
    """The source's code at or below a magnitude, and its neighbours; with the value's sign."""
    grid, bits = src.grid, width(src)
    if isinstance(grid, IntGrid):
        whole = int(value.magnitude)
        near = {whole - 1, whole, whole + 1}
        signed = {-v if value.negative else v for v in near}
        return {v % (1 << bits) for v in signed if grid.min <= v <= grid.max}
    assert isinstance(grid, FloatGrid)
    if value.magnitude > grid.max:
        return set()
    power = quantum_exponent(value.magnitude, grid)
    steps = int(value.magnitude / Fraction(2) ** power)
    # Steps of the quantum count the codes from the binade's first; subnormals start at zero.
    field = power - (grid.min_exponent - grid.mantissa_bits)
    code = steps + (field << grid.mantissa_bits)
    near = {max(code - 1, 0), code, code + 1}
    return {c | (int(value.negative) << (bits - 1)) for c in near}
