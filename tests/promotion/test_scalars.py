"""Every tensor and scalar pair, against the operator library's rules written down again."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from npusim._errors import InputError
from npusim.dtypes import dtype
from npusim.modes import Target
from npusim.promotion import PromotionError, Scalar, result_type, scalar_widens
from tests.promotion.pages import COMPLEX, FLOATS, PAIRS, category_rule, on_950, on_a2a3

A2A3, ON_950 = Target("A2A3", "aclnn"), Target("950PR", "aclnn")


def got(tensor, scalar, **options):
    try:
        return result_type(tensor, Scalar(None, scalar), **options)
    except PromotionError:
        return None


def check(want, **options):
    wrong = {
        pair: (want(*pair), got(*pair, **options))
        for pair in PAIRS
        if got(*pair, **options) is not (want(*pair) and dtype(want(*pair)))
    }
    assert not wrong


@pytest.mark.parametrize("op", [None, "add", "sub", "mul", "div", "pow", "eq"])
def test_950(op):
    check(on_950, op=op, target=ON_950)


@pytest.mark.parametrize("op", ["ne", "lt", "le", "gt", "ge", "maximum", "minimum"])
def test_950_operators_that_keep_complex32(op):
    check(lambda t, s: on_950(t, s, keep_c32=True), op=op, target=ON_950)


@pytest.mark.parametrize("out", [None, "fp16", "fp32"])
@pytest.mark.parametrize("op", ["add", "sub", "mul", "div", "pow", "eq"])
def test_a2a3(op, out):
    check(lambda t, s: on_a2a3(op, t, s, out == "fp32"), op=op, target=A2A3, out=out)


def test_a2a3_without_a_rule_of_its_own_takes_the_950_rule():
    check(on_950, target=A2A3)
    check(lambda t, s: on_950(t, s, keep_c32=True), op="gt", target=A2A3)


def test_the_two_chips_differ_in_29_common_pairs_of_add():
    common = [p for p in PAIRS if not {"u16", "u32", "u64", "c32"} & {*p}]
    assert len([p for p in common if on_950(*p) != on_a2a3("add", *p, False)]) == 29
    assert result_type("int8", Scalar(1.5, "f16"), op="add", target=A2A3) is dtype("f16")
    assert result_type("int8", Scalar(1.5, "f16"), op="add", target=ON_950) is dtype("f32")
    assert got("f32", "c128", op="add", target=A2A3) is dtype("c128")
    assert got("f32", "c128", op="add", target=ON_950) is dtype("c64")


def test_python_numbers_are_declared_as_torch_npu_does():
    assert [str(Scalar(x).dtype) for x in (True, 1, 1.5, 1j)] == [
        "bool",
        "int64",
        "fp64",
        "complex128",
    ]
    assert result_type("bool", 3) is dtype("int64")
    assert result_type("bool", 1.5) is dtype("fp32")
    assert result_type("int8", 300) is dtype("int8")
    assert result_type("fp32", 1j) is dtype("complex64")
    assert result_type("int8", 1.5, op="add", target=A2A3) is dtype("fp64")
    assert result_type("int8", 1.5, op="add", target=A2A3, out="fp32") is dtype("fp32")


@pytest.mark.parametrize(
    ("tensor", "value", "wide"),
    [
        ("fp16", 1.001, True),
        ("fp16", 1.5, False),
        ("fp16", 65504, False),
        ("fp16", 65536, True),  # inf in fp16
        ("fp16", 2049, True),  # an integer that 11 bits do not hold
        ("fp16", 1e-7, False),  # becomes 1.19e-7: off by less than 2^-23
        ("fp16", 1.0 + 2.0**-23, False),  # the difference equals the bound
        ("fp16", 1.0 + 2.0**-22, True),
        ("fp16", float("inf"), False),
        ("fp16", float("nan"), False),
        ("fp16", 1e300, False),  # inf in fp32 and in fp16
        ("bf16", 257, True),
        ("bf16", 256, False),
        ("bf16", 0.1, True),
        ("bf16", 1e38, True),
        ("bf16", True, False),
    ],
)
def test_value_check(tensor, value, wide):
    assert scalar_widens(value, tensor) is wide
    want = dtype("fp32") if wide else dtype(tensor)
    for op in (None, "add", "sub", "mul"):
        assert result_type(tensor, value, op=op) is want
    for op in ("div", "pow", "eq", "maximum"):
        assert result_type(tensor, value, op=op) is dtype(tensor)
    assert result_type(tensor, value, target=A2A3) is dtype(tensor)


def test_a_traced_scalar_is_not_checked():
    seen = []

    @jax.jit
    def f(x, s):
        seen.append(result_type(x, s))
        return x

    x = jnp.ones(3, jnp.float16)
    f(x, 1.001)
    assert seen == [dtype("fp16")]
    assert result_type(x, 1.001) is dtype("fp32")
    # A weakly typed array is a Python number that JAX has wrapped: same rule as the number.
    weak = jnp.asarray(1.001)
    assert weak.weak_type
    assert result_type(x, weak) is dtype("fp32")
    assert result_type(jnp.ones(3, bool), jnp.asarray(1)) is dtype("int64")
    assert result_type(x, jnp.float32(1.001)) is dtype("fp32")


def test_every_scalar_of_the_category_rule_ignores_width():
    for tensor, (first, second) in itertools.product(
        ("f16", "s8", "bool", "c64"), itertools.product(FLOATS, FLOATS)
    ):
        assert got(tensor, first) is got(tensor, second)
    assert {got("s8", c) for c in COMPLEX} == {dtype("c64")}


@pytest.mark.parametrize("op", ["maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge"])
def test_rank_0_counts_as_a_scalar_in_some_operators_of_950(op):
    for ranked, other in itertools.product(("f16", "f32", "bf16", "s8", "s32", "bool"), repeat=2):
        one = jnp.zeros((2,), dtype(ranked).jax_dtype)
        zero = jax.ShapeDtypeStruct((), dtype(other).jax_dtype)
        want = dtype(category_rule(ranked, other) or "bool")
        assert result_type(one, zero, op=op) is want
        assert result_type(zero, one, op=op) is want
        plain = result_type(ranked, other)
        assert result_type(one, zero, op="add") is plain
        assert result_type(one, zero, op=op, target=A2A3) is plain
        assert result_type(zero, zero, op=op) is result_type(other, other)


def test_rank_0_keeps_the_width_of_the_other_operand():
    one, zero = np.zeros(2, np.int8), np.float64(1.5)
    assert result_type(one, zero, op="maximum") is dtype("fp64")
    assert result_type(np.zeros(2, np.float16), zero, op="maximum") is dtype("fp16")
    assert result_type(np.zeros(2, np.float16), zero, op="add") is dtype("fp64")


def test_rank_0_without_a_type():
    one, zero = np.zeros(2, np.uint16), np.float32(1.5)
    with pytest.raises(PromotionError, match="uint16 with fp32, which no type can be derived for"):
        result_type(one, zero, op="maximum")
    assert result_type(one, np.int8(1), op="maximum") is dtype("uint16")
    fp8 = jax.ShapeDtypeStruct((2,), jnp.float8_e5m2)
    assert result_type(fp8, jax.ShapeDtypeStruct((), jnp.float8_e5m2), op="maximum") is dtype(
        "e5m2"
    )


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: Scalar(None),
            (
                "Given: scalar None without a dtype. Allowed: a bool, int, float or complex. "
                "Pass a Python number, or name the dtype."
            ),
        ),
        (
            lambda: Scalar(300, "int8"),
            (
                "Given: scalar 300 of type int8. Allowed: -128 to 127. "
                "Pass a value that its type holds, or a float."
            ),
        ),
        (
            lambda: scalar_widens(1.0, "fp32"),
            "Given: type fp32. Allowed: fp16, bf16. Only these two widen to fp32.",
        ),
    ],
)
def test_error_texts(make, text):
    with pytest.raises(InputError) as error:
        make()
    assert str(error.value) == text
