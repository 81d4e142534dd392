"""Operands of every kind, folds of more than two, refusals and their texts."""

import dataclasses
import itertools
import pickle

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from npusim._errors import InputError, UnknownNameError
from npusim.dtypes import DT_COMPLEX32, dtype
from npusim.promotion import PromotionError, result_type
from tests.promotion.pages import CODE, TYPES, UNSIGNED, chinese, printed


@dataclasses.dataclass
class Coded:
    """Stands for an NpuArray: all that counts is its dtype."""

    dtype: object
    shape: tuple = (2,)


def test_operands_of_every_kind():
    x = jnp.ones(2, jnp.bfloat16)
    assert result_type(x) is dtype("bf16")
    assert result_type(x, np.ones(2, np.float32)) is dtype("fp32")
    assert result_type(x, jnp.int8, "bool", np.dtype(np.uint8)) is dtype("bf16")
    assert result_type(Coded(DT_COMPLEX32), x) is DT_COMPLEX32
    assert result_type(jax.ShapeDtypeStruct((3,), jnp.float16), ml_dtypes.bfloat16) is dtype("fp32")
    assert jax.eval_shape(lambda y: y.astype(result_type(y, "f32").jax_dtype), x).dtype == "float32"


def test_64_bits_from_numpy_are_not_narrowed():
    assert result_type(np.ones(2), jnp.ones(2, jnp.float32)) is dtype("fp64")
    assert result_type(np.arange(2), "int8") is dtype("int64")
    assert result_type(np.float64(1.5), "fp16") is dtype("fp64")  # a tensor of rank 0, no scalar


@pytest.mark.parametrize("rules", ["documented", "implementation", "zh"])
def test_every_triple_is_folded_or_refused(rules):
    table = {"documented": printed("english_page"), "implementation": CODE, "zh": chinese()}[rules]

    def fold(a, b, c):
        first = table[a, b]
        return first and table[first, c]

    refused = set()
    for triple in itertools.combinations(TYPES, 3):
        wanted = {fold(*order) for order in itertools.permutations(triple)}
        try:
            got = result_type(*triple, rules=rules)
        except PromotionError:
            assert len(wanted) > 1 or wanted == {None}
            refused.add(triple)
        else:
            assert wanted == {str_of(got)}
    promotable = {t for t in refused if not set(t) & set(UNSIGNED)}
    assert len(promotable) == {"documented": 1, "implementation": 0, "zh": 8}[rules]


def str_of(row):
    return next(name for name in TYPES if dtype(name) is row)


def test_the_fold_that_depends_on_the_order():
    assert result_type("f16", "c32") is dtype("c32")
    with pytest.raises(PromotionError) as error:
        result_type("f16", "bf16", "c32")
    assert error.value.code == 161002
    assert set(error.value.operands) == {dtype("f16"), dtype("bf16"), dtype("c32")}
    assert str(error.value) == (
        "Given: 3 types whose derivation depends on the order (rules='documented'): complex32 + "
        "bf16 + fp16 = complex32, bf16 + fp16 + complex32 = complex64. Allowed: operands that give "
        "one type in every order. Combine two of them first with npusim.cast, in the order that "
        "the operators run in."
    )
    assert result_type("f16", "bf16", "c32", rules="implementation") is dtype("c64")
    assert result_type("f16", "bf16", "bf16", "f16", "s8") is dtype("f32")
    with pytest.raises(PromotionError, match=r"bf16 \+ fp16 = fp64"):
        result_type("f16", "bf16", "bf16", rules="zh")


def test_scalars_whose_order_matters_are_refused():
    from npusim.modes import Target
    from npusim.promotion import Scalar

    target = Target("A2A3", "aclnn")
    with pytest.raises(PromotionError, match="depends on the order"):
        result_type("s8", Scalar(1.0, "f16"), Scalar(1.0, "bf16"), op="add", target=target)
    assert result_type("s8", 1, 1.5, True) is dtype("fp32")


def test_a_pair_without_a_type():
    with pytest.raises(PromotionError) as error:
        result_type("u16", "c64")
    assert str(error.value) == (
        "Given: uint16 with complex64, which no type can be derived for (rules='documented'). "
        "Allowed: uint16 with uint16; complex64 with fp32, fp16, bf16, fp64, int8, int16, int32, "
        "int64, uint8, bool, complex32, complex64, complex128. Cast one of them first with "
        "npusim.cast (rules='implementation' gives complex64)."
    )
    assert error.value.partners[dtype("u16")] == (dtype("u16"),)
    with pytest.raises(PromotionError, match="no type can be derived"):
        result_type("c64", "u16", rules="implementation")  # its mirror cell has a type


def test_a_scalar_without_a_type():
    with pytest.raises(PromotionError) as error:
        result_type("u16", 1.5)
    assert error.value.operands == (dtype("u16"), dtype("fp64"))
    assert str(error.value) == (
        "Given: uint16 tensor with fp64 scalar, which no type can be derived for. Allowed: uint16 "
        "with scalars of int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool, "
        "complex32, complex64, complex128. Cast the tensor first with npusim.cast, or declare the "
        "scalar with another type."
    )


def test_errors_survive_pickling():
    with pytest.raises(PromotionError) as error:
        result_type("u16", "f32")
    again = pickle.loads(pickle.dumps(error.value))
    assert again.args == error.value.args
    assert again.operands == error.value.operands
    assert again.partners == error.value.partners


@pytest.mark.parametrize(
    ("args", "options", "kind", "text"),
    [
        ((1, 2.0), {}, InputError, "at least one dtype, array or NpuArray"),
        (([1.0],), {}, InputError, "operand .1.0. of type list"),
        ((None,), {}, InputError, "of type NoneType"),
        (("fp9",), {}, UnknownNameError, "data type 'fp9'"),
        ((float, "f32"), {}, UnknownNameError, "data type <class 'float'>"),
        (("f16",), {"rules": "documentet"}, UnknownNameError, "Did you mean 'documented'"),
        (("f16",), {"op": "ad"}, UnknownNameError, "Did you mean 'add'"),
        (("f16",), {"op": 3}, UnknownNameError, "operator op=3"),
    ],
)
def test_misuse(args, options, kind, text):
    with pytest.raises(kind, match=text):
        result_type(*args, **options)


def test_operator_names_as_the_vendor_writes_them():
    for name in ("add", "adds", "aclnnAdd", "aclnnAdds", "Add"):
        assert result_type("f16", 1.001, op=name) is dtype("fp32")
    assert result_type("f16", 1.001, op="aclnnEqScalar") is dtype("fp16")
    assert result_type("f16", 1.001, op="PowTensorScalar".lower()) is dtype("fp16")
