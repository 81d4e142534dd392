"""aclScalar, the arrays and the list: values, sizes, destroying, and error texts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from npusim._errors import AclnnError
from npusim.acl import companions as acl
from npusim.acl.tensor import aclTensor
from npusim.dtypes import dtype
from tests.oracle import casts
from tests.oracle.formats import decode, encode


@pytest.mark.parametrize(
    ("value", "name", "held"),
    [
        (1.1, "fp16", 1.099609375),
        (1.1, "fp32", 1.10000002384185791015625),
        (1.1, "fp64", 1.1),
        (1.1, "bf16", 1.1015625),
        # Halfway after a rounding to float32: rounds once, so down.
        (1.00390625 - 2**-40, "bf16", 1.0),
        (2.6, "hif8", 2.5),
        (3, "int8", 3),
        (3.0, "int8", 3),
        (-128, "int8", -128),
        (2**64 - 1, "uint64", 2**64 - 1),
        (True, "bool", True),
        (True, "fp16", 1.0),
        (1 + 0.1j, "complex64", complex(1, np.float32(0.1))),
        (1 + 0.1j, "complex32", complex(1, np.float16(0.1))),
        (0.1, "complex128", 0.1 + 0j),
        (float("inf"), "fp16", float("inf")),
        (float("-inf"), "bf16", float("-inf")),
        (np.float32(0.5), "fp16", 0.5),
        (np.int64(7), "int16", 7),
    ],
)
def test_scalars_are_rounded_to_their_type(value, name, held):
    scalar = acl.aclCreateScalar(value, name)
    assert scalar.value == held
    assert type(scalar.value) is type(held)
    assert scalar.dtype is dtype(name)
    assert scalar.scalar.dtype is scalar.dtype


@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "s8", "u8", "bool", "e4m3fn"])
def test_conversions_against_the_oracle(name):
    row = dtype({"e4m3fn": "fp8_e4m3"}.get(name, name))
    for number in (0.0, 1.5, -2.25, 300.7, -0.1, 65519.0, 1e-8, 7 / 3):
        code = encode(casts.Fraction(number), "f64")
        got = acl.aclCreateScalar(number, "fp64").to(row)
        if name in ("s8", "u8", "bool"):
            want = decode(casts.cast(code, "f64", name, "TRUNC", sat=False), name)
        else:
            want = decode(casts.cast(code, "f64", name, "RINT", sat=True), name)
        assert got == (0 if want is casts.NEG_ZERO else want), number


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (
            (None, "half"),
            161001,
            "Given: value is None. Allowed: a number. Pass the values themselves.",
        ),
        (
            ("1", "half"),
            161002,
            "Given: scalar '1'. Allowed: a Python or NumPy number. Pass one number.",
        ),
        (
            (1j, "half"),
            161002,
            (
                "Given: scalar 1j for type fp16. Allowed: numbers that the type can hold. Take the "
                "part that you mean, or declare another type."
            ),
        ),
        (
            (1.5, "int8"),
            161002,
            (
                "Given: scalar 1.5 for type int8. Allowed: numbers that the type can hold. Take "
                "the part that you mean, or declare another type."
            ),
        ),
        (
            (128, "int8"),
            161002,
            "Given: scalar 128 for type int8. Allowed: -128 to 127. Declare a wider type.",
        ),
        (
            (65505.0, "half"),
            161002,
            "Given: scalar 65505.0 for type fp16. Allowed: -65504 to 65504. Declare a wider type.",
        ),
    ],
)
def test_what_scalars_refuse(arguments, code, text):
    with pytest.raises(AclnnError) as error:
        acl.aclCreateScalar(*arguments)
    assert error.value.code == code
    assert str(error.value) == text


def test_a_non_finite_number_is_no_integer():
    with pytest.raises(AclnnError, match="numbers that the type can hold"):
        acl.aclCreateScalar(float("nan"), "int8")
    with pytest.raises(AclnnError, match="numbers that the type can hold"):
        acl.aclCreateScalar(float("inf"), "bool")


def test_scalars_live_on_the_host():
    with pytest.raises(AclnnError) as error:
        jax.jit(lambda x: acl.aclCreateScalar(x, "half").value)(1.0)
    assert error.value.code == 161002
    assert str(error.value) == (
        "Given: scalar as a traced value. Allowed: a concrete number. An aclScalar lives on the "
        "host: make it outside jit, or pass a tensor of rank 0."
    )
    assert acl.aclCreateScalar(jnp.float32(1.5), "half").value == 1.5


ARRAYS = [
    ("Int", [1, -2, 2**63 - 1], [1, -2, 2**63 - 1]),
    ("Float", [0.5, 3, 0.1], [0.5, 3.0, float(np.float32(0.1))]),
    ("Bool", [True, False], [True, False]),
]


@pytest.mark.parametrize(("kind", "given", "held"), ARRAYS)
def test_arrays(kind, given, held):
    create = getattr(acl, f"aclCreate{kind}Array")
    size = getattr(acl, f"aclGet{kind}ArraySize")
    destroy = getattr(acl, f"aclDestroy{kind}Array")
    array = create(given)
    assert type(array).__name__ == f"acl{kind}Array"
    assert list(array) == held
    assert size(array) == len(array) == len(held)
    assert list(create(np.asarray(given))) == held
    assert size(create([])) == 0
    assert repr(array) == f"acl{kind}Array({held})"
    assert destroy(array) == destroy(None) == 0
    assert repr(array) == f"acl{kind}Array(destroyed)"
    for use in (size, destroy):
        with pytest.raises(AclnnError) as error:
            use(array)
        assert error.value.code == 161001
        assert str(error.value) == (
            f"Given: array, an acl{kind}Array that was destroyed. Allowed: a live acl{kind}Array. "
            f"Make a new one with aclCreate{kind}Array."
        )
    for use in (size, create):
        with pytest.raises(AclnnError) as error:
            use(None)
        assert error.value.code == 161001
    with pytest.raises(AclnnError) as error:
        size([1])
    assert error.value.code == 161002


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (
            "Int",
            [1.0],
            "Given: 1.0 in an aclIntArray. Allowed: integers of 64 bits. Pass integers.",
        ),
        (
            "Int",
            [2**63],
            (
                "Given: 9223372036854775808 in an aclIntArray. Allowed: integers of 64 bits. Pass "
                "integers."
            ),
        ),
        ("Float", [1j], "Given: 1j in an aclFloatArray. Allowed: real numbers. Pass numbers."),
        ("Bool", [1], "Given: 1 in an aclBoolArray. Allowed: booleans. Compare with 0 first."),
        ("Int", 3, "Given: value 3. Allowed: a sequence of integers. Pass a list."),
    ],
)
def test_what_arrays_refuse(kind, value, text):
    with pytest.raises(AclnnError) as error:
        getattr(acl, f"aclCreate{kind}Array")(value)
    assert error.value.code == 161002
    assert str(error.value) == text


def test_tensor_lists_own_their_tensors():
    tensors = [aclTensor.from_jax(jnp.ones(n)) for n in (1, 2)]
    made = acl.aclCreateTensorList(tensors)
    assert acl.aclGetTensorListSize(made) == 2
    assert list(made) == tensors
    acl.aclDestroyTensor(tensors[0])
    assert acl.aclDestroyTensorList(made) == 0
    assert all(t.destroyed for t in tensors)
    assert acl.aclDestroyTensorList(None) == 0
    with pytest.raises(AclnnError) as error:
        acl.aclDestroyTensorList(made)
    assert error.value.code == 161001
    with pytest.raises(AclnnError, match=r"value\[0\], an aclTensor that was destroyed"):
        acl.aclCreateTensorList(tensors)
    with pytest.raises(AclnnError, match=r"value\[0\] is None"):
        acl.aclCreateTensorList([None])
    with pytest.raises(AclnnError, match="tensorList is None"):
        acl.aclGetTensorListSize(None)


def test_destroyed_scalars():
    scalar = acl.aclCreateScalar(1, "int8")
    assert acl.aclDestroyScalar(scalar) == acl.aclDestroyScalar(None) == 0
    assert repr(scalar) == "aclScalar(destroyed)"
    with pytest.raises(AclnnError) as error:
        acl.aclDestroyScalar(scalar)
    assert error.value.code == 161001
