"""Formats as data: the bits of the static form, in one compilation for all of them."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import npusim as npu
from npusim import FormatParams
from tests.casting import common
from tests.casting.common import array_of
from tests.helpers import host_words, same_arrays, same_words
from tests.numerics.names import ORACLE
from tests.oracle import tables

MODES = ("RINT", "FLOOR", "CEIL", "ROUND", "TRUNC", "ODD")
WIDE = ("fp64", "int32", "int64", "uint32", "uint64", "bool")
DTYPES = (*(name for name in ORACLE if name not in WIDE), "hf32")
SETTINGS = tuple(itertools.product(DTYPES, MODES, ("ON", "OFF")))
SOURCES = (
    ("f32", 1),
    ("f16", 5),
    ("bf16", 5),
    ("f64", 11),
    *(pytest.param(wide, 1, marks=pytest.mark.slow) for wide in ("f16", "bf16", "f64")),
)
ALL = [FormatParams.of(*setting) for setting in SETTINGS]
STACKED = jax.tree.map(lambda *leaves: np.stack(leaves), *ALL)


def codes_of(src):
    """Edges, and what is interesting for a few destinations."""
    picked = [common.probe(src, dst)[:256] for dst in ("bf16", "e4m3fn", "hif8", "s8")]
    return np.concatenate([common.edge_codes(src), *picked])


def x64(src):
    return jax.enable_x64(src == "f64")


@pytest.mark.parametrize(("src", "stride"), SOURCES)
def test_same_bits_as_the_static_form(src, stride, strict_promotion):
    """Every format, mode and saturation, in one compiled function; specials and subnormals.

    By default float32 sees all settings, the others each format, each mode and each saturation; all
    of them in the slow suite.
    """
    codes = codes_of(src)
    traces = []

    @jax.jit
    def traced(x, params):
        traces.append(1)
        return npu.fake_cast(x, params)

    with x64(src):
        x = array_of(codes, src)
        carrier = jnp.float64 if src == "f64" else jnp.float32
        for setting, params in list(zip(SETTINGS, ALL, strict=True))[::stride]:
            got = traced(x, params)
            assert got.dtype == carrier
            with jax.disable_jit():
                want = npu.fake_cast(x, *setting)
            assert want.dtype in (x.dtype, jnp.float32)
            same_arrays(got, widened(want), f"{src} -> {setting}", codes, nan_class=src == "bf16")
    assert len(traces) == 1


def widened(x):
    """A 16-bit result as float32, by the codec rather than by a float conversion."""
    if x.dtype in (jnp.float32, jnp.float64):
        return x
    with jax.disable_jit():
        return npu.fake_cast(x, "fp32")


def test_the_static_form_is_the_cast():
    """fake_cast decodes to the values of cast; so the oracle holds for formats as data too."""
    codes = codes_of("f32")
    x = array_of(codes, "f32")
    run = jax.jit(npu.fake_cast)
    for dtype, mode, satmode in SETTINGS[:: 2 * len(MODES) + 1]:
        if dtype == "hf32":
            continue
        want = tables.cast_codes(codes, "f32", ORACLE[dtype], mode, satmode == "ON")
        values = run(x, FormatParams.of(dtype, mode, satmode))
        with jax.disable_jit():
            back = npu.cast(values, dtype, "RINT", "OFF", target=common.LAB)
        same_words(codes, common.words_of(back), want, f"{dtype} {mode} {satmode}")


def test_half_to_bf16_keeps_inf_and_nan_as_data():
    x = jnp.array([np.inf, -np.inf, np.nan], jnp.float16)
    got = jax.jit(npu.fake_cast)(x, FormatParams.of("bf16", "RINT", "ON"))
    assert host_words(got).tolist() == [0x7F80_0000, 0xFF80_0000, 0x7FFF_FFFF]
    wide = jax.jit(npu.fake_cast)(x.astype("float32"), FormatParams.of("bf16", "RINT", "ON"))
    assert host_words(wide).tolist() == [0x7F7F_0000, 0xFF7F_0000, 0]


@pytest.fixture(scope="module")
def one_by_one():
    x = array_of(codes_of("f32"), "f32")
    run = jax.jit(npu.fake_cast)
    return x, jnp.stack([run(x, params) for params in ALL])


def test_stacked_and_vmapped(one_by_one):
    x, want = one_by_one
    got = jax.vmap(npu.fake_cast, in_axes=(None, 0))(x, STACKED)
    same_arrays(got, want, "vmap over formats")
    got = jax.jit(jax.vmap(npu.fake_cast, in_axes=(None, 0)))(x, STACKED)
    same_arrays(got, want, "jit of vmap over formats")


def test_scanned(one_by_one):
    x, want = one_by_one
    _, got = jax.lax.scan(lambda c, params: (c, npu.fake_cast(x, params)), 0, STACKED)
    same_arrays(got, want, "scan over formats")


def test_static_scalars_inside_jit(one_by_one):
    """FormatParams made inside jit are constants, which XLA folds."""
    x, want = one_by_one
    for index in range(0, len(ALL), 17):
        got = jax.jit(lambda v, s=SETTINGS[index]: npu.fake_cast(v, FormatParams.of(*s)))(x)
        same_arrays(got, want[index], str(SETTINGS[index]))


@pytest.mark.parametrize("ste", ["identity", "clip", "zero"])
def test_one_compilation_of_the_gradient_for_all_formats(ste):
    traces = []

    def value(v, params):
        traces.append(1)
        return jnp.sum(npu.fake_cast(v, params, ste=ste))

    gradient = jax.jit(jax.grad(value))
    x = array_of(codes_of("f32"), "f32")
    for params in ALL[::5]:
        gradient(x, params)
    assert len(traces) == 1
    assert gradient._cache_size() == 1


def test_every_field_survives_flattening():
    params = FormatParams.of("int8", "ODD", "OFF")
    leaves, tree = jax.tree.flatten(params)
    assert len(leaves) == len(vars(params))
    back = jax.tree.unflatten(tree, leaves)
    assert vars(back) == vars(params)
    assert {leaf.dtype.name for leaf in leaves} == {"int32", "uint32", "float32"}


@pytest.mark.parametrize("dtype", WIDE)
def test_formats_without_a_traced_form_are_refused(dtype):
    with pytest.raises(npu.InputError, match="as a traced format"):
        FormatParams.of(dtype)


def test_hybrid_has_no_traced_form():
    with pytest.raises(npu.InputError, match="HYBRID needs the static form"):
        FormatParams.of("hif8", "HYBRID")


def test_a_mode_or_a_chip_beside_format_params_is_refused():
    x = jnp.ones(2)
    for arguments in ({"mode": "RINT"}, {"satmode": "ON"}, {"target": npu.Target()}):
        with pytest.raises(npu.InputError, match="FormatParams"):
            npu.fake_cast(x, FormatParams.of("fp16"), **arguments)
    with pytest.raises(npu.TracedValueError, match="fake_cast takes FormatParams"):
        npu.cast(x, FormatParams.of("fp16"))


def test_max_value_is_the_largest_value():
    for dtype in DTYPES:
        fmt = npu.dtype(dtype)
        same_range = dtype in ("fp32", "bf16", "hf32", "fp8_e8m0")
        want = 0.0 if same_range else float(fmt.max)
        assert float(FormatParams.of(dtype).max_value) == want
