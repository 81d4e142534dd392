"""Names, sources and expected results that the tests of casts share.

What is expected comes from the golden tables and the oracle alone, never from the package.
"""

import jax
import numpy as np

import npusim as npu
from npusim import Target
from tests.golden import data
from tests.numerics.names import ORACLE
from tests.oracle import chains, probes, tables
from tests.oracle.formats import FORMATS, FloatFormat, IntFormat

LAB = Target(api="numerics")
TARGETS = {
    "A2A3": Target("A2A3", "ascendc"),
    "950-memory": Target("950PR", "ascendc", level="memory"),
    "950-reg": Target("950PR", "ascendc", level="reg"),
}
SHORT = {oracle: short for short, oracle in ORACLE.items()} | {
    "c32": "complex32",
    "c64": "complex64",
    "c128": "complex128",
}
PYPTO_NAMES = {npu.dtype(short).name.removeprefix("DT_"): name for name, short in SHORT.items()}
COMPLEX_PARTS = {"c32": "f16", "c64": "f32", "c128": "f64"}
ALL_MODES = ("RINT", "FLOOR", "CEIL", "ROUND", "TRUNC", "ODD", "HYBRID")
SIZE = 1024  # of every probe: one shape, so that eager operations compile once
WIDE = {"f64", "s64", "u64", "c128"}


def x64_for(*names):
    """A context with 64-bit types switched on exactly if one of the formats needs them."""
    return jax.enable_x64(not WIDE.isdisjoint(names))


def array_of(codes, name):
    """Codes of a format of the oracle as the array that holds them."""
    return npu.from_codes(np.asarray(codes), SHORT[name])


def words_of(x):
    """Codes of what a cast returned, on the host."""
    return np.asarray(npu.to_codes(x))


def edge_codes(name):
    """Zeros, ends, infinities, and NaN codes other than the canonical one."""
    fmt = FORMATS[name]
    if isinstance(fmt, IntFormat):
        edges = [0, 1, fmt.max_value, fmt.max_value - 1, fmt.min_value, fmt.min_value + 1, -1]
        return np.array([e & ((1 << fmt.bits) - 1) for e in edges], tables.container(name))
    if not isinstance(fmt, FloatFormat):
        return np.arange(1 << fmt.bits).astype(tables.container(name))
    sign, unit = fmt.sign_bit, 1 << fmt.padding
    smallest_normal = 1 << (fmt.mantissa_bits + fmt.padding)
    edges = [0, unit, smallest_normal - unit, smallest_normal, fmt.max_code]
    if fmt.inf_code is not None:
        edges += [fmt.inf_code, fmt.inf_code + unit, fmt.inf_code | smallest_normal >> 1]
    if fmt.nan_code is not None:
        edges += [fmt.nan_code]
    return np.array([*edges, *(e | sign for e in edges)], tables.container(name))


def probe(src, dst):
    """`SIZE` codes of a source that a cast to ``dst`` could get wrong, edges first."""
    fmt = FORMATS[src]
    bits = fmt.bits if src != "bool" else 1
    if bits <= 8:
        codes = np.arange(SIZE) % (1 << bits)
        return codes.astype(tables.container(src))
    rng = np.random.default_rng(bits * 1000 + sum(map(ord, src + dst)))
    edges = edge_codes(src)
    pool = np.arange(1 << 16) if bits == 16 else probes.probe_words(src, dst)
    picked = rng.choice(pool, SIZE - edges.size - SIZE // 8)
    randoms = probes.random_words(int(rng.integers(1 << 30)), SIZE // 8, src)
    return np.concatenate([edges, picked.astype(edges.dtype), randoms])


def integral(codes, mode):
    """Float32 words rounded to integral values, by the oracle."""
    return np.array([chains.integral_f32(int(c), mode) for c in codes], np.uint32)


def deq(codes, scale, sat):
    """Half codes of int32 codes times a half scale, by the oracle."""
    return np.array([chains.deq(int(c), scale, sat) for c in codes], np.uint16)


def along(codes, src, steps, device_saturates):
    """Codes after a chain of casts; a saturation of None is the device's."""
    for dst, mode, sat in steps:
        codes = tables.cast_codes(codes, src, dst, mode, device_saturates if sat is None else sat)
        src = dst
    return codes


def ascendc(codes, src, dst, mode, on):
    """What an Ascend C Cast gives."""
    if src == dst:
        return integral(codes, mode)
    if (src, dst) == ("s32", "f16"):
        return deq(codes, 0x3C00, on)
    on = on and "e8m0" not in (src, dst)
    return tables.cast_codes(codes, src, dst, mode, on)


def pypto(codes, src, dst, mode, on, device_saturates=False):
    """What pypto.cast gives: satmode governs integers, the device the overflow of floats."""
    if src == dst:
        return integral(codes, mode)
    if (src, dst) == ("s32", "f16"):
        return deq(codes, 0x3C00, device_saturates)
    if not isinstance(FORMATS[dst], IntFormat):
        on = device_saturates or (on and (src, dst) == ("bf16", "f16"))
        return tables.cast_codes(codes, src, dst, mode, on)
    out = tables.cast_codes(codes, src, dst, mode, on)
    if not on and (src, dst) in chains.PYPTO_EDGE_PAIRS:
        fmt = FORMATS[src]
        minus_one = out.dtype.type((1 << FORMATS[dst].bits) - 1)
        out = np.where(codes == fmt.inf_code, minus_one, out)
        out = np.where(codes == fmt.inf_code | fmt.sign_bit, out.dtype.type(0), out)
    return out


def modes_in(text):
    """The modes of a golden row."""
    return tuple(text.split("|")) if text else ()


def pypto_rows(soc):
    """Source, destination, modes, default, note of the pypto table of a chip."""
    for row in data.rows("pypto_cast_support"):
        if row["soc"] == soc:
            names = PYPTO_NAMES[row["src"]], PYPTO_NAMES[row["dst"]]
            yield *names, modes_in(row["modes"]), row["default"], row["note"]


def ascendc_rows(table):
    """Source, destination, modes, satmode, note of an Ascend C table."""
    for row in data.rows("ascendc_support"):
        if row["table"] == table:
            yield row["src"], row["dst"], modes_in(row["modes"]), row["satmode"], row["note"]
