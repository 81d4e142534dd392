"""trans_data against the index formulae, element by element, and its round trips."""

import itertools
import math
import random

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npusim._errors import InputError, X64RequiredError
from npusim.dtypes import dtype
from npusim.layouts import FORMATS, locate, possible, storage_shape, trans_data
from tests.layouts import oracle

PUBLIC = [row.name for row in FORMATS if not row.private]


def shapes_for(public, private, seed=0):
    draw = random.Random(f"{public} {private} {seed}")
    for rank in oracle.ranks(public, private):
        # Odd sizes around the tile widths, and a small one that leaves most of a tile empty.
        yield tuple(draw.choice((1, 2, 3)) for _ in range(rank))
        tail = (5, 3, 2) if rank > 3 else (17, 33, 31)
        yield tuple(draw.choice(tail) for _ in range(rank))


@pytest.mark.parametrize(("public", "private"), oracle.CASES)
def test_every_element_by_the_index_formula(public, private):
    for shape in shapes_for(public, private):
        c0 = 4 if private == "NC1HWC0_C04" else 16
        values = list(range(1, math.prod(shape) + 1))
        x = np.asarray(values, np.int32).reshape(shape)
        size, want = oracle.store(public, private, shape, c0, values)
        got = trans_data(x, public, private)
        assert got.shape == size == storage_shape(shape, public, private, dtype="int32")
        assert np.asarray(got).ravel().tolist() == want
        back = trans_data(got, private, public, shape=shape)
        assert (np.asarray(back) == x).all()


@pytest.mark.parametrize(("public", "private"), oracle.CASES)
def test_locate_both_ways(public, private):
    c0 = 4 if private == "NC1HWC0_C04" else 3
    rank = oracle.ranks(public, private)[-1]
    shape = (2, 5, 2, 3, 2, 2)[:rank]
    size, places = oracle.stored(public, private, shape, c0)
    inverse = {place: index for index, place in places.items()}
    for index, place in places.items():
        assert locate(index, public, private, shape=shape, c0=c0) == place
    for place in itertools.product(*map(range, size)):
        assert locate(place, private, public, shape=shape, c0=c0) == inverse.get(place)


@pytest.mark.parametrize(("public", "private"), oracle.CASES)
def test_round_trips_of_drawn_shapes(public, private):
    rank = oracle.ranks(public, private)[0]

    @settings(max_examples=3, deadline=None, derandomize=True)
    @given(st.tuples(*[st.integers(0, 37 if rank < 4 else 6)] * rank), st.integers(1, 33))
    def run(shape, c0):
        width = None if private == "NC1HWC0_C04" else c0
        x = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
        stored = trans_data(x, public, private, c0=width)
        back = trans_data(stored, private, public, shape=shape, c0=width)
        assert back.shape == shape
        assert (np.asarray(back) == x).all()
        assert np.asarray(stored, np.int64).sum() == x.sum()  # padding is zero

    run()


@pytest.mark.parametrize(("src", "dst"), list(itertools.permutations(PUBLIC, 2)))
def test_public_to_public(src, dst):
    if not possible(src, dst):
        assert sorted(src) != sorted(dst)
        with pytest.raises(InputError, match=f"conversion {src} to {dst}"):
            trans_data(np.zeros((2,) * 4, np.int8), src, dst)
        return
    axes = src if src != "ND" else dst
    shape = tuple(range(2, 2 + len(axes)))
    x = np.arange(math.prod(shape), dtype=np.int16).reshape(shape)
    got = trans_data(x, src, dst)
    order = [src.index(a) for a in dst] if "ND" not in (src, dst) else range(len(shape))
    assert (np.asarray(got) == x.transpose(list(order))).all()
    assert (np.asarray(trans_data(got, dst, src)) == x).all()
    place = tuple(n - 1 for n in shape)
    there = locate(place, src, dst, shape=shape)
    assert there == tuple(place[i] for i in order)
    assert locate(there, dst, src, shape=got.shape) == place


DTYPES = [
    *(["bool", "int8", "uint8", "int16", "int32", "uint32", "float16", "float32", "complex64"]),
    *(["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "int4", "float4_e2m1fn"]),
]


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("private", ["NC1HWC0", "FRACTAL_Z", "FRACTAL_NZ"])
def test_bits_are_preserved_in_every_type(name, private):
    kind = np.dtype(getattr(ml_dtypes, name, name))
    shape = (3, 5, 2, 3)
    bits = np.random.default_rng(7).integers(0, 256, math.prod(shape) * kind.itemsize, np.uint8)
    if name == "bool":
        bits &= 1
    if name in ("int4", "float4_e2m1fn"):
        bits &= 0x7
    if name == "bfloat16":
        bits[:2] = (0x81, 0x7F)  # a signalling NaN
    x = bits.view(kind).reshape(shape)
    for f in (trans_data, jax.jit(trans_data, static_argnums=(1, 2), static_argnames=("shape",))):
        stored = f(jnp.asarray(x), "NCHW", private)
        assert stored.dtype == kind
        assert stored.shape[-1] == {4: 64, 8: 32}.get(width(name, kind), 16)
        back = f(stored, private, "NCHW", shape=shape)
        assert np.asarray(back).tobytes() == x.tobytes()
    _, want = oracle.store("NCHW", private, shape, stored.shape[-1], [1] * x.size)
    flat = np.asarray(stored).ravel()[np.asarray(want) == 0]
    assert not any(flat.tobytes())


def width(name, kind):
    return 4 if name in ("int4", "float4_e2m1fn") else 8 * kind.itemsize


@pytest.mark.parametrize(("public", "private"), oracle.CASES)
def test_gradients_are_the_conversion_back(public, private):
    rank = oracle.ranks(public, private)[-1]
    shape = (2, 3, 2, 3, 2, 2)[:rank]
    x = jnp.arange(math.prod(shape), dtype=jnp.float32).reshape(shape)
    c0 = None if private == "NC1HWC0_C04" else 5
    stored, pull = jax.vjp(lambda x: trans_data(x, public, private, c0=c0), x)
    weights = jnp.arange(stored.size, dtype=jnp.float32).reshape(stored.shape) + 1
    (cotangent,) = pull(weights)
    assert (cotangent == trans_data(weights, private, public, shape=shape)).all()
    _, tangent = jax.jvp(lambda x: trans_data(x, public, private, c0=c0), (x,), (x + 1,))
    assert (tangent == trans_data(x + 1, public, private, c0=c0)).all()
    back, pull = jax.vjp(lambda y: trans_data(y, private, public, shape=shape), stored)
    assert (pull(x + 1)[0] == trans_data(x + 1, public, private, c0=c0)).all()
    assert (back == x).all()


def test_transforms():
    x = jnp.arange(2 * 3 * 5 * 2 * 3, dtype=jnp.bfloat16).reshape(2, 3, 5, 2, 3)
    for src, dst in (("NCHW", "NC1HWC0"), ("NHWC", "FRACTAL_Z"), ("NCHW", "FRACTAL_NZ")):
        one = jnp.stack([trans_data(part, src, dst) for part in x])
        many = jax.jit(jax.vmap(lambda part, s=src, d=dst: trans_data(part, s, d)))(x)
        assert (one == many).all()
    second = jax.hessian(lambda x: (trans_data(x, "NCHW", "NC1HWC0", c0=2) ** 3).sum())
    ones = jnp.ones((1, 3, 1, 1))
    assert (second(ones).reshape(3, 3) == 6 * jnp.eye(3)).all()
    rows = jax.lax.scan(lambda c, p: (c, trans_data(p, "NCHW", "NC1HWC0")), 0, x)[1]
    assert (rows == jax.vmap(lambda p: trans_data(p, "NCHW", "NC1HWC0"))(x)).all()


def test_the_stored_shape_tells_the_padded_public_one():
    x = np.ones((2, 35, 7, 9), np.float16)
    y = trans_data(x, "NCHW", "NC1HWC0")
    assert trans_data(y, "NC1HWC0", "NHWC").shape == (2, 7, 9, 48)
    assert storage_shape(y.shape, "NC1HWC0", "HWCN") == (7, 9, 48, 2)
    assert storage_shape((3, 1, 2, 16, 32), "FRACTAL_NZ", "ND") == (3, 32, 32)
    assert storage_shape((2, 3, 16, 16), "FRACTAL_Z", "ND") == (32, 48)
    assert storage_shape((1, 2, 3, 4, 5, 16), "NDC1HWC0", "NCDHW") == (1, 48, 2, 4, 5)
    assert trans_data(y, "NC1HWC0", "NC1HWC0").shape == y.shape
    nd = trans_data(y, "NC1HWC0", "NCHW", shape=x.shape)
    assert nd.dtype == np.float16


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: trans_data(np.zeros((2, 3, 4), np.float16), "NCL", "FRACTAL_Z"),
            (
                "Given: conversion NCL to FRACTAL_Z. Allowed: NCL to ND, FRACTAL_NZ; ND, NCHW, "
                "NHWC, HWCN to FRACTAL_Z. To get FRACTAL_Z, give the tensor the axes that it "
                "needs first."
            ),
        ),
        (
            lambda: trans_data(np.zeros((1, 1, 2, 2, 16)), "NC1HWC0", "FRACTAL_Z"),
            (
                "Given: conversion NC1HWC0 to FRACTAL_Z. Allowed: NC1HWC0 to NCHW, NHWC, HWCN; "
                "ND, NCHW, NHWC, HWCN to FRACTAL_Z. To get FRACTAL_Z, go through NCHW."
            ),
        ),
        (
            lambda: trans_data(np.zeros((2, 3), np.int8), "NC", "NDC1HWC0"),
            (
                "Given: conversion NC to NDC1HWC0. Allowed: NC to ND; NDHWC, NCDHW to "
                "NDC1HWC0. To get NDC1HWC0, give the tensor the axes that it needs first."
            ),
        ),
        (
            lambda: trans_data(np.zeros((4, 1, 16, 16), np.float16), "FRACTAL_Z", "NCHW"),
            (
                "Given: FRACTAL_Z array of shape (4, 1, 16, 16) without the shape it came "
                "from. Allowed: shape=, in the order of NCHW. The stored shape does not tell "
                "the sizes of C, H, W."
            ),
        ),
        (
            lambda: trans_data(
                np.zeros((1, 2, 7, 9, 16), np.int8), "NC1HWC0", "NCHW", shape=(1, 35, 7, 9)
            ),
            (
                "Given: NC1HWC0 array of shape (1, 2, 7, 9, 16) for the NCHW shape (1, 35, 7, "
                "9). Allowed: (1, 3, 7, 9, 16) (C0 = 16). Pass the public shape that this "
                "array came from, and c0= if it is not C0 of the data type."
            ),
        ),
        (
            lambda: trans_data(np.zeros((2, 3), np.int8), "NC", "ND", shape=(3, 2)),
            (
                "Given: shape=(3, 2) for an NC array of shape (2, 3). Allowed: (2, 3). shape= "
                "is the shape on the public side: leave it out here."
            ),
        ),
        (
            lambda: trans_data(np.zeros(3, np.int8), "ND", "FRACTAL_NZ"),
            (
                "Given: a tensor of rank 1 in ND for FRACTAL_NZ. Allowed: rank 2 or more. "
                "Reshape it to a matrix first; the sources disagree on what a vector becomes."
            ),
        ),
        (
            lambda: trans_data(np.zeros((2, 3, 4), np.int8), "ND", "FRACTAL_Z"),
            (
                "Given: a tensor of rank 3 in ND for FRACTAL_Z. Allowed: rank 2. Reshape it to "
                "a matrix first; the sources disagree on what a vector becomes."
            ),
        ),
        (
            lambda: trans_data(np.zeros((2, 2), np.int8), "NC1HWC0", "NCHW"),
            "Given: NC1HWC0 array of rank 2. Allowed: rank 5. Its axes are N, C1, H, W, C0.",
        ),
        (
            lambda: trans_data(np.zeros((1, 3, 2, 2), np.int8), "NCHW", "NC1HWC0_C04", c0=16),
            "Given: c0=16 for NC1HWC0_C04. Allowed: 4, which the format fixes. Leave c0 out.",
        ),
        (
            lambda: trans_data(np.zeros((1, 3, 2, 2), np.int8), "NCHW", "NC1HWC0", c0=0),
            "Given: c0=0. Allowed: an integer of 1 or more. Leave c0 out.",
        ),
        (
            lambda: trans_data([[1.0]], "ND", "FRACTAL_NZ"),
            (
                "Given: x of type list. Allowed: a jax.Array, a NumPy array, an NpuArray. Make "
                "an array of it, so that it has a data type."
            ),
        ),
        (
            lambda: storage_shape((1, 3, 2, 2), "NCHW", "NC1HWC0"),
            (
                "Given: NC1HWC0 without a width of its tiles. Allowed: dtype= (C0 follows from "
                "it) or c0=. Name the data type of the elements."
            ),
        ),
        (
            lambda: storage_shape((1, -3), "ND", "FRACTAL_NZ", c0=16),
            "Given: shape (1, -3). Allowed: a sequence of integers of 0 or more. Pass a tuple.",
        ),
        (
            lambda: locate((0, 35, 0, 0), "NCHW", "NC1HWC0", shape=(1, 35, 7, 9), dtype="half"),
            (
                "Given: index (0, 35, 0, 0) in NCHW of shape (1, 35, 7, 9). Allowed: 4 "
                "integers below these sizes. Count from 0, in the order of the format's axes."
            ),
        ),
        (
            lambda: locate((0,) * 5, "NC1HWC0", "NC1HWC0", shape=(1, 35, 7, 9), dtype="half"),
            "Given: an index from NC1HWC0 to itself. Allowed: two formats. The place is the same.",
        ),
    ],
)
def test_error_texts(call, text):
    with pytest.raises(InputError) as error:
        call()
    assert str(error.value) == text


@pytest.mark.parametrize("name", ["hif8", "fp8_e8m0", "fp4_e1m2", "int4", "complex32"])
def test_npu_arrays_stay_npu_arrays(name):
    from npusim.casting.npuarray import NpuArray

    row = dtype(name)
    word = np.uint32 if name == "complex32" else np.uint8
    codes = np.arange(3 * 5 * 2 * 2).reshape(3, 5, 2, 2) % (1 << min(row.bits, 8))
    x = NpuArray(jnp.asarray(codes.astype(word)), row)
    y = trans_data(x, "NCHW", "FRACTAL_Z")
    assert y.dtype is row
    assert y.shape == storage_shape(x.shape, "NCHW", "FRACTAL_Z", dtype=row)
    back = trans_data(y, "FRACTAL_Z", "NCHW", shape=x.shape)
    assert (np.asarray(back.codes) == codes).all()
    if row.bits == 4:
        packed = trans_data(x.pack(), "NCHW", "FRACTAL_Z")
        assert packed.packed
        assert (np.asarray(packed.unpack().codes) == np.asarray(y.codes)).all()


@pytest.mark.parametrize("bad", [3, "ab", (1.5, 2), None, (2, -1)])
def test_shapes_are_sequences_of_integers(bad):
    with pytest.raises(InputError, match="a sequence of integers of 0 or more"):
        storage_shape(bad, "ND", "FRACTAL_NZ", c0=16)


def test_64_bits_need_x64():
    x = np.arange(6).reshape(2, 3)
    off = pytest.raises(X64RequiredError, match="array of int64 while jax_enable_x64 is off")
    with jax.enable_x64(False), off:
        trans_data(x, "ND", "FRACTAL_NZ")
    with jax.enable_x64(True):
        y = trans_data(x, "ND", "FRACTAL_NZ")
        assert y.dtype == np.int64
        assert (np.asarray(trans_data(y, "FRACTAL_NZ", "ND", shape=(2, 3))) == x).all()
