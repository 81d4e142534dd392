"""aclTensor: views against NumPy's as_strided, every getter, bits, formats, and error texts."""

import inspect

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npusim._errors import AclnnError, NpusimError, X64RequiredError
from npusim.acl import tensor as acl
from npusim.acl.enums import aclDataType, aclFormat
from npusim.acl.tensor import aclCreateTensor, aclTensor
from npusim.casting import array, from_codes, to_codes
from npusim.dtypes import DT_FP16, DTYPES
from npusim.layouts import FORMATS, storage_shape, trans_data


def strided(data, dims, strides, offset):
    """The view, by NumPy."""
    steps = tuple(step * data.itemsize for step in strides)
    words = data.view(f"uint{8 * data.itemsize}")  # NumPy cannot stride types of ml_dtypes
    return np.lib.stride_tricks.as_strided(words[offset:], dims, steps).view(data.dtype)


def made(dims, strides, offset, data, dtype="int32"):
    return aclCreateTensor(dims, dtype, strides, offset, "ND", data.shape, data)


@settings(max_examples=12)
@given(st.data())
def test_views_are_those_of_numpy(data):
    rank = data.draw(st.integers(0, 4))
    dims = tuple(data.draw(st.integers(0 if rank else 1, 4)) for _ in range(rank))
    strides = tuple(data.draw(st.integers(0, 6)) for _ in range(rank))
    offset = data.draw(st.integers(0, 5))
    reach = offset + sum(max(n - 1, 0) * s for n, s in zip(dims, strides, strict=True))
    flat = np.arange(reach + 1 + data.draw(st.integers(0, 3)), dtype=np.int32)
    tensor = made(dims, strides, offset, flat)
    want = strided(flat, dims, strides, offset)
    got = tensor.to_jax()
    assert got.shape == want.shape
    assert (np.asarray(got) == want).all()
    places = tensor.view.places()
    assert tensor.view.overlaps == (len(np.unique(places)) < places.size)
    if not tensor.view.overlaps:
        values = np.arange(want.size, dtype=np.int32).reshape(dims) + 1000
        tensor.write(values)
        strided(flat, dims, strides, offset)[...] = values
        assert (np.asarray(tensor.memory.array) == flat).all()


def test_strides_of_none_mean_no_gaps():
    tensor = made((2, 3), None, 1, np.arange(8, dtype=np.int32))
    assert tensor.to_jax().tolist() == [[1, 2, 3], [4, 5, 6]]
    assert acl.aclGetViewStrides(tensor) == (3, 1)
    tensor.write(jnp.zeros((2, 3), jnp.int32))
    assert tensor.memory.array.tolist() == [0, 0, 0, 0, 0, 0, 0, 7]


def test_every_getter():
    data = np.arange(20, dtype=np.float16).reshape(4, 5)
    tensor = aclCreateTensor((2, 3), aclDataType.ACL_FLOAT16, (5, 2), 1, 2, (4, 5), data)
    assert acl.aclGetViewShape(tensor) == (2, 3)
    assert acl.aclGetViewStrides(tensor) == (5, 2)
    assert acl.aclGetViewOffset(tensor) == 1
    assert acl.aclGetStorageShape(tensor) == (4, 5)
    assert acl.aclGetFormat(tensor) is aclFormat.ACL_FORMAT_ND
    assert acl.aclGetDataType(tensor) is aclDataType.ACL_FLOAT16
    assert tensor.dtype is DT_FP16
    assert tensor.to_jax().tolist() == [[1, 3, 5], [6, 8, 10]]
    assert repr(tensor) == (
        "aclTensor((2, 3), ACL_FLOAT16, strides=(5, 2), offset=1, ACL_FORMAT_ND, storage=(4, 5))"
    )


GETTERS = [name for name in dir(acl) if name.startswith("aclGet")]


@pytest.mark.parametrize("name", GETTERS)
def test_getters_refuse_null_and_destroyed(name):
    getter = getattr(acl, name)
    (what,) = inspect.signature(getter).parameters
    with pytest.raises(AclnnError) as error:
        getter(None)
    assert (error.value.code, error.value.name) == (161001, "ACLNN_ERR_PARAM_NULLPTR")
    assert str(error.value) == (
        f"Given: {what} is None. Allowed: an aclTensor. Pass one made by aclCreateTensor."
    )
    tensor = aclTensor.from_jax(jnp.ones(3))
    assert acl.aclDestroyTensor(tensor) == 0
    with pytest.raises(AclnnError) as error:
        getter(tensor)
    assert error.value.code == 161001
    assert str(error.value) == (
        f"Given: {what}, an aclTensor that was destroyed. Allowed: a live aclTensor. Make a new "
        "one with aclCreateTensor."
    )
    with pytest.raises(AclnnError) as error:
        getter(jnp.ones(3))
    assert (error.value.code, error.value.name) == (161002, "ACLNN_ERR_PARAM_INVALID")
    assert str(error.value) == (
        f"Given: {what} of type ArrayImpl. Allowed: an aclTensor. Make one with aclCreateTensor."
    )


def test_there_are_six_getters_of_tensors():
    assert len(GETTERS) == 6


def test_destroyed_tensors_are_of_no_use():
    tensor = aclTensor.from_jax(jnp.ones(3))
    acl.aclDestroyTensor(tensor)
    assert repr(tensor) == "aclTensor(destroyed)"
    for use in (tensor.to_jax, lambda: tensor.write(jnp.ones(3)), lambda: again(tensor)):
        with pytest.raises(AclnnError) as error:
            use()
        assert error.value.code == 161001
    assert acl.aclDestroyTensor(None) == 0


def again(tensor):
    acl.aclDestroyTensor(tensor)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (
            (None, "half", None, 0, "ND", (2,), None),
            161001,
            "Given: viewDims is None. Allowed: a sequence of integers. Pass the shape.",
        ),
        (
            ((2,), "half", None, 0, "ND", None, None),
            161001,
            "Given: storageDims is None. Allowed: a sequence of integers. Pass the shape.",
        ),
        (
            ((2,), "half", (-1,), 1, "ND", (2,), None),
            161002,
            (
                "Given: strides (-1,). Allowed: integers of 0 or more. aclCreateTensor cannot walk "
                "backwards: flip the data instead."
            ),
        ),
        (
            ((2,), "half", None, -1, "ND", (2,), None),
            161002,
            (
                "Given: offset -1. Allowed: integers of 0 or more. aclCreateTensor cannot walk "
                "backwards: flip the data instead."
            ),
        ),
        (
            ((2, 2), "half", (2,), 0, "ND", (4,), None),
            161002,
            (
                "Given: 1 strides for 2 view dims. Allowed: 2 strides, or None. Pass one stride an "
                "axis; None means without gaps."
            ),
        ),
        (
            ((2, 2), "half", (3, 1), 1, "ND", (5,), None),
            161002,
            (
                "Given: a view of dims (2, 2), strides (3, 1) and offset 1, which reaches element "
                "5. Allowed: elements 0 to 4 of the storage. Take smaller dims, strides or "
                "offset, or more storage."
            ),
        ),
        (
            ((2, 2), "half", None, 0.5, "ND", (5,), None),
            161002,
            "Given: offset 0.5. Allowed: integers. Count in elements, not in bytes.",
        ),
        (
            ((2, 2), "half", "no", 0, "ND", (5,), None),
            161002,
            "Given: strides 'no'. Allowed: integers. Count in elements, not in bytes.",
        ),
        (
            ((2, -2), "half", None, 0, "ND", (5,), None),
            161002,
            "Given: viewDims (2, -2). Allowed: a sequence of integers of 0 or more. Pass a tuple.",
        ),
        (
            ((2, 2), "half", None, 0, "NCHW", (4,), None),
            161002,
            (
                "Given: format NCHW for a tensor of rank 2. Allowed: ND, NC. NCHW has rank 4: "
                "reshape, or take one of these formats."
            ),
        ),
        (
            ((2,), "half", None, 0, "ND", (2,), np.ones(2, np.float32)),
            161002,
            (
                "Given: data of type fp32 for a tensor of type fp16. Allowed: data of type fp16. "
                "Cast the data first (npusim.cast), or name its own type."
            ),
        ),
        (
            ((2,), "half", None, 0, "ND", (2,), np.ones(3, np.float16)),
            161002,
            (
                "Given: memory of 3 elements of type fp16 for storage dims (2,) of type fp16. "
                "Allowed: 2 elements of type fp16. Make storageDims the shape of the whole memory."
            ),
        ),
        (
            ((4, 4), "half", None, 0, "FRACTAL_NZ", (1, 2, 16, 16), None),
            161002,
            (
                "Given: storage dims (1, 2, 16, 16) for a tensor of shape (4, 4) in FRACTAL_NZ. "
                "Allowed: (1, 1, 16, 16) (C0 = 16). npusim.layouts.storage_shape tells the shape."
            ),
        ),
        (
            ((4, 4), "half", (1, 4), 0, "FRACTAL_NZ", (1, 1, 16, 16), None),
            161002,
            (
                "Given: strides (1, 4) and offset 0 for a tensor in FRACTAL_NZ. Allowed: strides "
                "of None and offset 0. The tiles of a private format have no strides: convert to "
                "ND first (trans_data)."
            ),
        ),
        (
            ((4, 4), "half", None, 0, "NC1HWC0", (4, 4), None),
            161002,
            (
                "Given: format NC1HWC0 for a tensor of rank 2. Allowed: rank 4. Reshape the "
                "tensor to an axis order that NC1HWC0 is made of."
            ),
        ),
        (
            ((4,), "hf32", None, 0, "ND", (4,), None),
            161002,
            None,
        ),
        (((4,), 5, None, 0, "ND", (4,), None), 161002, None),
        (((4,), "half", None, 0, 9, (4,), None), 161002, None),
        (((4,), "half", None, 0, "ND", (4,), [1, 2, 3, 4]), 161002, None),
    ],
)
def test_what_create_refuses(arguments, code, text):
    with pytest.raises(AclnnError) as error:
        aclCreateTensor(*arguments)
    assert error.value.code == code
    assert isinstance(error.value, NpusimError)
    if text is not None:
        assert str(error.value) == text


def test_unknown_numbers_are_told_with_what_there_is():
    with pytest.raises(AclnnError, match=r"^Given: aclDataType 5\. Allowed: 0 ACL_FLOAT, 1 ACL_"):
        aclCreateTensor((4,), 5, None, 0, "ND", (4,), None)
    with pytest.raises(AclnnError, match=r"^Given: aclFormat 9\. Allowed: 0 ACL_FORMAT_NCHW, 1 "):
        aclCreateTensor((4,), "half", None, 0, 9, (4,), None)
    with pytest.raises(AclnnError, match="data type hf32, which aclDataType does not have"):
        aclCreateTensor((4,), "hf32", None, 0, "ND", (4,), None)


def test_enums_cover_the_rows():
    rows = {row.acl_name: row.acl_number for row in DTYPES if row.acl_name}
    assert {t.name: int(t) for t in aclDataType} == rows
    assert {f.name: int(f) for f in aclFormat} == {
        f"ACL_FORMAT_{row.name}": row.number for row in FORMATS
    }


@pytest.mark.parametrize(
    "name", ["float16", "bfloat16", "float32", "float8_e4m3fn", "float8_e5m2", "int8", "bool"]
)
def test_bits_are_moved_untouched(name):
    kind = np.dtype(getattr(ml_dtypes, name, name))
    bits = np.random.default_rng(3).integers(0, 256, 24 * kind.itemsize, np.uint8)
    if name == "bool":
        bits &= 1
    data = bits.view(kind)
    tensor = made((3, 4), (1, 5), 2, data, kind)
    want = strided(data, (3, 4), (1, 5), 2)
    kept = np.asarray(tensor.to_jax())
    assert kept.tobytes() == want.tobytes()
    tensor.write(jnp.asarray(data[:12].reshape(3, 4)))
    after = data.copy()
    strided(after, (3, 4), (1, 5), 2)[...] = data[:12].reshape(3, 4)
    assert np.asarray(tensor.memory.array).tobytes() == after.tobytes()


@pytest.mark.parametrize("name", ["hif8", "int4", "fp4_e2m1", "fp8_e8m0", "complex32"])
def test_codes_are_held_as_codes(name):
    codes = np.arange(1, 13, dtype=np.uint32 if name == "complex32" else np.uint8)
    tensor = made((2, 3), (1, 4), 1, from_codes(codes, name), name)
    assert np.asarray(to_codes(tensor.to_jax())).tolist() == [[2, 6, 10], [3, 7, 11]]
    tensor.write(from_codes(np.zeros((2, 3), codes.dtype), name))
    assert np.asarray(tensor.memory.array.codes).tolist() == [1, 0, 0, 4, 5, 0, 0, 8, 9, 0, 0, 12]
    empty = aclCreateTensor((2,), name, None, 0, "ND", (2,), None)
    assert np.asarray(to_codes(empty.to_jax())).tolist() == [0, 0]


def test_packed_codes_and_ml_dtypes_arrays_are_taken():
    packed = array([1.0, 2.0, 3.0, 4.0], "fp4_e2m1").pack()
    tensor = made((2, 2), (1, 2), 0, packed, "fp4_e2m1")
    assert tensor.to_jax().decode().tolist() == [[1, 3], [2, 4]]
    scales = np.array([1.0, 2.0], ml_dtypes.float8_e8m0fnu)
    assert made((2,), None, 0, scales, "fp8_e8m0").to_jax().decode().tolist() == [1, 2]


@pytest.mark.parametrize(
    ("private", "shape", "public"),
    [
        ("FRACTAL_NZ", (20, 33), "ND"),
        ("FRACTAL_NZ", (2, 3, 20, 5), "ND"),
        ("FRACTAL_Z", (20, 33), "ND"),
        ("FRACTAL_Z", (3, 5, 2, 2), "NCHW"),
        ("NC1HWC0", (3, 5, 2, 2), "NCHW"),
        ("NC1HWC0_C04", (3, 5, 2, 2), "NCHW"),
        ("NDC1HWC0", (3, 5, 2, 2, 1), "NCDHW"),
        ("FRACTAL_Z_3D", (3, 5, 2, 2, 1), "NCDHW"),
    ],
)
def test_private_formats_hold_tiles(private, shape, public):
    x = np.arange(np.prod(shape), dtype=np.float16).reshape(shape)
    tensor = aclTensor.from_jax(x, f"ACL_FORMAT_{private}")
    assert acl.aclGetViewShape(tensor) == shape
    assert acl.aclGetStorageShape(tensor) == storage_shape(shape, public, private, dtype="half")
    tiles = trans_data(x, public, private)
    assert (np.asarray(tensor.memory.array) == np.asarray(tiles).ravel()).all()
    assert (np.asarray(tensor.to_jax()) == x).all()
    tensor.write(x + 1)
    assert (np.asarray(tensor.to_jax()) == x + 1).all()
    assert acl.aclGetFormat(tensor) is aclFormat[f"ACL_FORMAT_{private}"]


def test_any_c0_is_a_c0():
    tensor = aclCreateTensor((4, 4), "half", None, 0, "FRACTAL_NZ", (2, 1, 16, 3), None)
    tensor.write(jnp.arange(16, dtype=jnp.float16).reshape(4, 4))
    assert tensor.to_jax().ravel().tolist() == list(range(16))


def test_public_formats_lie_as_they_are():
    x = jnp.arange(24, dtype=jnp.int8).reshape(1, 2, 3, 4)
    for name in ("NCHW", "NHWC", "HWCN", "ND"):
        tensor = aclTensor.from_jax(x, name)
        assert (tensor.to_jax() == x).all()
        assert acl.aclGetFormat(tensor).name == f"ACL_FORMAT_{name}"
    with pytest.raises(AclnnError, match="format NCL for a tensor of rank 4"):
        aclTensor.from_jax(x, "NCL")


def test_memory_can_be_shared_and_otherwise_is_not():
    x = np.zeros(6, np.float32)
    a, b = made((3,), None, 0, x, "f32"), made((3,), None, 0, x, "f32")
    c = aclCreateTensor((3,), "f32", (2,), 1, "ND", (6,), a.memory)
    a.write(np.float32([1, 2, 3]))
    assert b.to_jax().tolist() == [0, 0, 0]
    assert c.to_jax().tolist() == [2, 0, 0]
    c.write(np.float32([7, 8, 9]))
    assert a.to_jax().tolist() == [1, 7, 3]
    with pytest.raises(AclnnError, match="memory of 6 elements of type fp32 for storage dims"):
        aclCreateTensor((3,), "half", None, 0, "ND", (6,), a.memory)


def test_write_refuses_another_shape_or_type():
    tensor = aclTensor.from_jax(jnp.ones((2, 3), jnp.float32))
    with pytest.raises(AclnnError) as error:
        tensor.write(jnp.ones((3, 2), jnp.float32))
    assert str(error.value) == (
        "Given: values of shape (3, 2) for a tensor of shape (2, 3). Allowed: (2, 3). Reshape or "
        "broadcast them first."
    )
    with pytest.raises(AclnnError, match="data of type fp16 for a tensor of type fp32"):
        tensor.write(jnp.ones((2, 3), jnp.float16))


def test_64_bit_types_without_x64():
    if jax.config.jax_enable_x64:
        pytest.skip("x64 is on")
    with pytest.raises(X64RequiredError) as error:
        made((2,), None, 0, np.zeros(2), "fp64")
    assert isinstance(error.value, AclnnError)
    assert (error.value.code, error.value.name) == (561103, "ACLNN_ERR_INNER_NULLPTR")
    assert "jax_enable_x64" in str(error.value)
    with pytest.raises(X64RequiredError):
        aclCreateTensor((2,), "int64", None, 0, "ND", (2,), None)
    with jax.enable_x64(True):
        tensor = made((2,), (2,), 0, np.arange(4), "int64")
        assert tensor.to_jax().tolist() == [0, 2]


def test_jit_and_gradients():
    def through(x):
        tensor = aclCreateTensor((2, 2), "f32", (2, 1), 1, "ND", (6,), x)
        out = aclCreateTensor((2, 2), "f32", (1, 3), 0, "ND", (8,), None)
        out.write(tensor.to_jax() * tensor.to_jax())
        return out.to_jax().sum() + out.memory.array[3]

    x = jnp.arange(6, dtype=jnp.float32)
    assert float(jax.jit(through)(x)) == 1 + 4 + 9 + 16 + 4
    for gradient in (jax.jit(jax.grad(through)), jax.jacfwd(through)):
        assert gradient(x).tolist() == [0, 2, 8, 6, 8, 0]

    def twice(x):
        tensor = aclCreateTensor((3, 2), "f32", (0, 1), 0, "ND", (2,), x)
        return tensor.to_jax().sum()

    assert jax.grad(twice)(jnp.ones(2, jnp.float32)).tolist() == [3, 3]
    tiles = jax.grad(lambda x: aclTensor.from_jax(x, "FRACTAL_NZ").to_jax()[1].sum())
    assert tiles(jnp.ones((2, 3))).tolist() == [[0, 0, 0], [1, 1, 1]]
