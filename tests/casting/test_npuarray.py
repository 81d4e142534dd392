"""NpuArray, from_codes, to_codes, array, packing, HF32."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import npusim as npu
from npusim import NpuArray, Target, dtypes
from tests.casting import common
from tests.casting.common import LAB, SHORT, array_of, words_of, x64_for
from tests.helpers import same_arrays, same_words
from tests.numerics.names import NARROW, ORACLE, width
from tests.oracle import tables
from tests.oracle.formats import FORMATS, Special, decode

CODED = ("hif8", "fp4_e2m1", "fp4_e1m2", "int4", "fp8_e8m0", "complex32")
FOUR_BITS = ("fp4_e2m1", "fp4_e1m2", "int4")


def some(dtype, shape=(2, 4)):
    """An NpuArray of codes 1, 2, ..., as many as fit."""
    bits = npu.dtype(dtype).bits
    size = int(np.prod(shape))
    codes = (np.arange(1, size + 1) % (1 << min(bits, 16))).reshape(shape)
    return npu.from_codes(codes.astype(np.uint32 if bits == 32 else np.uint8), dtype)


@pytest.mark.parametrize("name", ORACLE.values())
def test_codes_come_back_as_they_went_in(name):
    """NaN payloads included, for every format."""
    fmt = npu.dtype(SHORT[name])
    if fmt in NARROW:
        codes = np.arange(1 << width(fmt)).astype(tables.container(name))
    else:
        codes = common.probe(name, "e4m3fn")
    with x64_for(name):
        x = npu.from_codes(codes, fmt)
        same_words(codes, words_of(x), codes, name)
        if fmt.stored_as == "jax":
            assert isinstance(x, jax.Array)
            assert x.dtype == fmt.jax_dtype
        else:
            assert isinstance(x, NpuArray)
            assert x.dtype is fmt


def test_hf32_codes_are_float32_words():
    x = npu.from_codes(np.array([0x3F80_2000], np.uint32), "hf32")
    assert x.dtype == jnp.float32
    assert words_of(x).tolist() == [0x3F80_2000]


@pytest.mark.parametrize("soc", ["A2A3", "950PR"])
def test_hf32_keeps_11_bits_on_a2_and_10_on_950(soc):
    name = {"A2A3": "hf32_11", "950PR": "hf32_10"}[soc]
    codes = common.probe("f32", name)
    for mode in ("RINT", "FLOOR", "CEIL", "ROUND", "TRUNC", "ODD"):
        for on in (True, False):
            got = npu.cast(array_of(codes, "f32"), "hf32", mode, on, target=Target(soc, "numerics"))
            want = tables.cast_codes(codes, "f32", name, mode, on)
            same_words(codes, words_of(got), want, f"hf32 on {soc} {mode} {on}")


@pytest.mark.parametrize("dtype", CODED[:-1])
def test_decode_gives_the_exact_values(dtype):
    name = ORACLE[dtype]
    codes = np.arange(1 << FORMATS[name].bits).astype(np.uint8)
    values = npu.from_codes(codes, dtype).decode()
    assert values.dtype == (jnp.int8 if dtype == "int4" else jnp.float32)
    want = [decode(int(c), name) for c in codes]
    want = [float(v.value) if isinstance(v, Special) else float(v) for v in want]
    want = np.array(want, values.dtype)
    got = np.asarray(values)
    nan = 0x7F80_0001 if dtype != "int4" else None
    bits = np.uint8 if dtype == "int4" else np.uint32
    same_words(codes, got.view(bits), want.view(bits), dtype, nan_from=nan)


def test_complex32_decodes_to_complex64():
    x = npu.from_codes(np.array([0x3C00 | 0xC000 << 16], np.uint32), "complex32")
    assert x.decode().tolist() == [1 - 2j]
    assert x.decode().dtype == jnp.complex64


@pytest.mark.parametrize("dtype", FOUR_BITS)
def test_packing_puts_element_0_low(dtype):
    codes = np.arange(16, dtype=np.uint8).reshape(2, 8)
    x = npu.from_codes(codes, dtype)
    packed = x.pack()
    assert packed.shape == x.shape == (2, 8)
    assert (packed.ndim, packed.size) == (2, 16)
    assert packed.codes.shape == (2, 4)
    assert packed.codes[0].tolist() == [0x10, 0x32, 0x54, 0x76]
    same_arrays(packed.unpack(), x, "unpack")
    same_arrays(packed.pack(), packed, "pack twice")
    same_arrays(npu.from_codes(packed.codes, dtype, packed=True), packed, "from_codes")
    same_arrays(npu.to_codes(x, packed=True), packed.codes, "to_codes")
    same_words(codes, words_of(packed), codes, "codes of a packed array")
    same_words(codes, np.asarray(packed.decode()), np.asarray(x.decode()), "decode")


@pytest.mark.parametrize(
    ("src", "dst"), [("fp16", "int4"), ("bf16", "fp4_e2m1"), ("bf16", "fp4_e1m2")]
)
def test_cast_to_and_from_packed(src, dst):
    soc = "A2A3" if dst == "int4" else "950PR"
    target = Target(soc, "pypto")
    x = jnp.asarray([[1.0, -2.0, 3.0, 100.0]], npu.dtype(src).jax_dtype)
    plain, packed = npu.cast(x, dst, target=target), npu.cast(x, dst, target=target, packed=True)
    assert packed.packed
    assert packed.codes.shape == (1, 2)
    same_arrays(packed, plain.pack(), "packed")
    back = npu.cast(packed, src, target=target)
    same_arrays(back, npu.cast(plain, src, target=target), "back")
    same_arrays(npu.cast(packed, dst, target=LAB), plain, "same type unpacks")
    same_arrays(npu.cast(plain, dst, target=LAB, packed=True), packed, "same type packs")


@pytest.mark.parametrize("shape", [(3,), (2, 5), ()])
def test_an_odd_last_axis_cannot_be_packed(shape):
    x = jnp.ones(shape, jnp.bfloat16)
    with pytest.raises(npu.InputError, match=r"Pad the last axis|it has no axis"):
        npu.cast(x, "fp4_e2m1", target=LAB, packed=True)
    with pytest.raises(npu.InputError, match="even length"):
        npu.cast(x, "fp4_e2m1", target=LAB).pack()


@pytest.mark.parametrize("dtype", ["hif8", "fp8_e8m0", "complex32"])
def test_only_4_bit_formats_pack(dtype):
    with pytest.raises(npu.InputError, match="int4"):
        some(dtype).pack()
    with pytest.raises(npu.InputError, match="packed=True"):
        npu.from_codes(np.zeros(2, np.uint8), dtype, packed=True)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dtype", CODED)
def test_every_field_survives_flattening(dtype, packed):
    x = some(dtype)
    if packed:
        if dtype not in FOUR_BITS:
            return
        x = x.pack()
    leaves, tree = jax.tree.flatten(x)
    assert len(leaves) == 1
    back = jax.tree.unflatten(tree, leaves)
    assert isinstance(back, NpuArray)
    assert back.dtype is x.dtype
    assert back.packed is packed
    assert back.codes is x.codes
    assert tree == jax.tree.structure(x)
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(x)]
    assert paths == [".codes"]
    other = some("hif8" if dtype != "hif8" else "fp8_e8m0")
    assert jax.tree.structure(other) != tree


@pytest.mark.parametrize("dtype", CODED)
def test_through_jit_vmap_and_scan(dtype):
    x = some(dtype, (3, 4))
    same_arrays(jax.jit(lambda a: a)(x), x, "jit")
    same_arrays(jax.vmap(lambda a: a)(x), x, "vmap")
    _, stacked = jax.lax.scan(lambda carry, a: (carry, a), 0, x)
    same_arrays(stacked, x, "scan")
    decoded = jax.jit(lambda a: a.decode())(x)
    same_arrays(decoded, x.decode(), "decode under jit")
    same_arrays(jax.vmap(lambda a: a.decode())(x), x.decode(), "decode under vmap")
    _, rows = jax.lax.scan(lambda carry, a: (carry, a.decode()), 0, x)
    same_arrays(rows, x.decode(), "decode under scan")
    same_arrays(jax.tree.map(lambda a: a[1:], x), NpuArray(x.codes[1:], x.dtype), "map")


def test_it_has_no_arithmetic_and_is_no_jax_array():
    x = some("hif8")
    for operation in (lambda: x + x, lambda: jnp.sin(x), lambda: jnp.asarray(x)):
        with pytest.raises((TypeError, ValueError)):
            operation()
    assert not hasattr(x, "__jax_array__")


def test_repr_shows_values_and_codes():
    text = repr(npu.array([1.0, 100.0], "hif8"))
    assert "96." in text
    assert "0x4A" in text
    assert "hif8" in text
    assert "packed" in repr(some("int4").pack())
    jax.jit(lambda a: (repr(a), a)[1])(some("hif8"))


@pytest.mark.parametrize("codes", [[256], [-1], [1.0], [True]])
def test_from_codes_refuses_what_is_no_code(codes):
    with pytest.raises(npu.InputError):
        npu.from_codes(np.array(codes), "hif8")


def test_from_codes_takes_signed_and_traced_codes():
    same_arrays(npu.from_codes(np.array([5], np.int32), "hif8").codes, jnp.uint8([5]), "signed")
    traced = jax.jit(lambda c: npu.from_codes(c, "fp16"))(jnp.array([0x3C00], jnp.uint16))
    assert traced.tolist() == [1.0]


def test_array_takes_what_numpy_takes_and_refuses_the_rest():
    for values in (1, 1.5, True, [1, 2], np.int8([1]), some("hif8"), jnp.ones(2, jnp.bfloat16)):
        npu.array(values, "fp4_e2m1")
    for values in ("a", [None], [object()]):
        with pytest.raises((npu.InputError, TypeError)):
            npu.array(values, "half")
    with pytest.raises(npu.TracedValueError, match=r"npusim\.cast"):
        jax.jit(lambda x: npu.array(x, "half"))(1.0)


def test_every_coded_format_is_here():
    assert {row.short for row in dtypes.DTYPES if row.stored_as == "codes"} == set(CODED)
