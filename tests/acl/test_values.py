"""Results of the two-step calls against exact arithmetic, rounded by the oracle."""

import operator
from fractions import Fraction

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from npusim import acl
from npusim.modes import Target
from tests.acl.common import CHIPS, bits, blank, plan, run, scalar, tensor
from tests.oracle import casts
from tests.oracle.formats import FORMATS, NEG_ZERO, decode

KINDS = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32}
EXACT = {"Add": operator.add, "Sub": operator.sub, "Mul": operator.mul, "Div": operator.truediv}
N = 250


def alpha_of_one(op):
    return (scalar(1, "int32"),) if op in ("Add", "Sub") else ()


def rounded(value, *names):
    """An exact value rounded to one format after the other; the last code, zeros without sign."""
    code = 0
    for name in names:
        code = casts.to_float(value, FORMATS[name], "RINT", sat=False)
        value = decode(code, name)
    return 0 if value is NEG_ZERO else code


def drawn(name, seed, n=N):
    """Finite values far enough from the ends of float32 that no result lies below 2^-126."""
    words = np.random.default_rng(seed).integers(0, 1 << 16, n, np.uint16)
    if name == "bf16":  # exponent field 97 to 159: magnitudes 2^-30 to 2^32
        words = (words & 0x807F) | ((97 + words // 128 % 63) << 7).astype(np.uint16)
    if name == "f32":
        return (drawn("bf16", seed, n).astype(np.float32) * np.float32(1.0001)).astype(np.float32)
    x = words.view(KINDS[name])
    x = np.where(np.isfinite(x.astype(np.float32)), x, KINDS[name](1.5))
    return np.where(x == 0, KINDS[name](1), x)


@pytest.mark.parametrize("soc", CHIPS)
@pytest.mark.parametrize("op", EXACT)
@pytest.mark.parametrize(
    ("a", "b", "out"),
    [
        ("f16", "f16", "f16"),
        ("bf16", "bf16", "bf16"),
        ("f16", "bf16", "f16"),
        ("f16", "f32", "bf16"),
    ],
)
def test_random_pairs_of_floats(op, a, b, out, soc):
    x, y = drawn(a, 1), drawn(b, 2)
    got = run(op, tensor(x), tensor(y), *alpha_of_one(op), blank((N,), out), soc=soc)
    mixed = a != b
    steps = ("f32", out) if mixed else (out,)
    want = [
        rounded(EXACT[op](Fraction(float(p)), Fraction(float(q))), *steps)
        for p, q in zip(x, y, strict=True)
    ]
    words = bits(got)
    words = np.where((words & 0x7FFF) == 0, 0, words)
    assert words.tolist() == want


def every(name):
    """Every value of an 8-bit type, and each against each."""
    values = np.arange(256, dtype=np.uint8).view(name) if name != "bool" else np.arange(2) == 1
    return values[:, None], values[None, :]


@pytest.mark.parametrize("soc", CHIPS)
@pytest.mark.parametrize("op", ["Add", "Sub", "Mul"])
@pytest.mark.parametrize("name", ["int8", "uint8"])
def test_every_pair_of_8_bit_integers_wraps(op, name, soc):
    x, y = every(name)
    got = run(op, tensor(x), tensor(y), *alpha_of_one(op), blank((256, 256), name), soc=soc)
    exact = EXACT[op](x.astype(np.int64), y.astype(np.int64))
    assert (np.asarray(got) == exact.astype(name)).all()


@pytest.mark.parametrize("soc", CHIPS)
def test_every_pair_of_int8_with_uint8_meets_in_int16(soc):
    x, y = every("int8")[0], every("uint8")[1]
    for op in ("Add", "Mul"):
        got = run(op, tensor(x), tensor(y), *alpha_of_one(op), blank((256, 256), "int16"), soc=soc)
        exact = EXACT[op](x.astype(np.int64), y.astype(np.int64))
        assert (np.asarray(got) == exact.astype(np.int16)).all()


@pytest.mark.parametrize("soc", CHIPS)
@pytest.mark.parametrize("name", ["int8", "uint8"])
def test_every_quotient_of_8_bit_integers(name, soc):
    x, y = every(name)
    got = run("Div", tensor(x), tensor(y), blank((256, 256), "f32"), soc=soc)
    with np.errstate(all="ignore"):  # float32 division of NumPy is IEEE's
        want = x.astype(np.float32) / y.astype(np.float32)
    assert np.array_equal(np.asarray(got), want, equal_nan=True)
    draw = np.random.default_rng(5).integers(0, 256, (60, 2))
    for i, j in draw:
        if int(y[0, j]):
            code = rounded(Fraction(int(x[i, 0]), int(y[0, j])), "f32")
            assert np.asarray(got)[i, j].view(np.uint32) & 0x7FFF_FFFF == code & 0x7FFF_FFFF


@pytest.mark.parametrize("soc", CHIPS)
def test_bools(soc):
    x, y = (tensor(v) for v in every("bool"))
    one = alpha_of_one("Add")
    assert run("Add", x, y, *one, blank((2, 2), "bool"), soc=soc).tolist() == [[0, 1], [1, 1]]
    assert run("Mul", x, y, blank((2, 2), "bool"), soc=soc).tolist() == [[0, 0], [0, 1]]
    assert run("Sub", x, y, *one, blank((2, 2), "bool"), soc=soc).tolist() == [[0, 1], [1, 0]]
    quotient = run("Div", y, y, blank((1, 2), "f16"), soc=soc)
    assert np.isnan(quotient[0, 0])
    assert quotient[0, 1] == 1


@pytest.mark.parametrize("soc", CHIPS)
def test_random_int16_pairs_wrap(soc):
    rng = np.random.default_rng(4)
    x, y = (rng.integers(-(2**15), 2**15, N, np.int16) for _ in range(2))
    for op in ("Add", "Sub", "Mul"):
        got = run(op, tensor(x), tensor(y), *alpha_of_one(op), blank((N,), "int16"), soc=soc)
        want = EXACT[op](x.astype(np.int64), y.astype(np.int64)).astype(np.int16)
        assert (np.asarray(got) == want).all()


def test_the_pages_own_examples():
    x = tensor([1.0, 65504.0], "float16")
    y = tensor([2.0**-12, 1.0], "float32")
    size, executor = plan("Add", x, y, scalar(1, "int32"), out := blank((2,), "f32"))
    assert repr(executor) == "aclOpExecutor(aclnnAdd, computes in fp32)"
    acl.aclnnAdd(None, size, executor, None)
    assert out.to_jax().tolist() == [1 + 2**-12, 65505.0]
    flags = tensor([True, False], "bool")
    size, executor = plan("Add", y, flags, scalar(1, "int32"), out)
    assert executor.computes_in == "fp32"
    acl.aclnnAdd(None, size, executor, None)
    assert out.to_jax().tolist() == [1 + 2**-12, 1.0]


@pytest.mark.parametrize("soc", CHIPS)
def test_a_result_beyond_the_output_follows_the_overflow_mode(soc):
    x = tensor([300.0, -300.0], "float32")
    out = blank((2,), "f16")
    assert run("Mul", x, x, out, soc=soc).tolist() == [float("inf")] * 2
    held = run("Mul", x, x, out, target=Target(soc, "aclnn", "SATURATE"))
    assert held.tolist() == [65504.0] * 2


def test_float_products_become_integers_on_950_alone():
    x, y = tensor([2.5, -300.7, 7e4], "float32"), tensor([1.0, 1.0, 1.0], "float32")
    assert run("Mul", x, y, blank((3,), "int32")).tolist() == [2, -300, 70000]
    assert run("Mul", x, y, blank((3,), "int8")).tolist() == [2, -300 + 256, 70000 % 256]
    with pytest.raises(acl.AclnnError):
        plan("Mul", x, y, blank((3,), "int32"), soc="A2A3")


def test_quotients_of_integers_become_integers_on_a2a3_alone():
    x, y = tensor([7, -7, 100], "int32"), tensor([2, 2, -3], "int32")
    assert run("Div", x, y, blank((3,), "int32"), soc="A2A3").tolist() == [3, -3, -33]
    with pytest.raises(acl.AclnnError):
        plan("Div", x, y, blank((3,), "int32"))


# -- alpha of Add and Sub


def exact_axpy(x, y, alpha, *names):
    """Self and alpha times other in float32, each step rounded, then to the formats named."""
    product = decode(rounded(Fraction(float(y)) * Fraction(float(alpha)), "f32"), "f32")
    return rounded(Fraction(float(x)) + product, "f32", *names)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    ("soc", "name", "form"),
    [
        ("A2A3", "f16", "half"),
        ("950PR", "f16", "float"),
        ("950PR", "bf16", "float"),
        ("A2A3", "bf16", "twice"),
        ("A2A3", "f32", "float"),
        ("950PR", "f32", "float"),
    ],
)
def test_alpha_rounds_as_the_operator_does(soc, name, form, sign):
    op = "Add" if sign > 0 else "Sub"
    if sign < 0 and soc == "A2A3":
        form = "float"  # Sub computes in float32 there
    x, y = drawn(name, 6), drawn(name, 7)
    if name == "f16":  # results beyond half say little
        x, y = (np.ldexp(np.frexp(v.astype(np.float32))[0], 3).astype(np.float16) for v in (x, y))
    alpha = Fraction(11, 10)
    number = scalar(1.1, "fp32")
    got = run(op, tensor(x), tensor(y), number, blank((N,), name), soc=soc)
    held = {"half": "f16", "float": "f32", "twice": name}[form]
    factor = decode(rounded(alpha, held), held) * sign
    want = []
    for p, q in zip(x, y, strict=True):
        if form == "twice":
            product = rounded(Fraction(float(q)) * factor, "bf16")
            want.append(rounded(Fraction(float(p)) + decode(product, "bf16"), "bf16"))
        else:
            want.append(exact_axpy(p, q, factor, *(() if name == "f32" else (name,))))
    assert np.asarray(got).view(np.uint32 if name == "f32" else np.uint16).tolist() == want


def test_alpha_of_bf16_rounds_twice_on_a2a3_and_once_on_950():
    x, y = tensor([2.0**-8], "bfloat16"), tensor([1.0], "bfloat16")
    alpha, out = scalar(1 + 2**-8 + 2**-10, "fp32"), blank((1,), "bf16")
    # As a bf16 alpha is 1 + 2^-7, and the sum is a tie that goes up; in float32 it is below one.
    assert run("Add", x, y, alpha, out, soc="A2A3").tolist() == [1 + 2**-6]
    assert run("Add", x, y, alpha, out, soc="950PR").tolist() == [1 + 2**-7]


def test_sub_on_a2a3_keeps_float32_up_to_the_output():
    x, y = tensor([1.0], "float16"), tensor([1.0], "float16")
    alpha = scalar(2**-13, "fp32")
    out = blank((1,), "f32")
    assert run("Sub", x, y, alpha, out, soc="A2A3").tolist() == [1 - 2**-13]
    assert run("Sub", x, y, alpha, out, soc="950PR").tolist() == [1.0]  # rounded to half first
    assert plan("Sub", x, y, alpha, out, soc="A2A3")[1].computes_in == "fp32"


def test_int32_with_alpha_goes_through_float32_on_a2a3():
    x, y = tensor([2**24 + 1, 5], "int32"), tensor([1, 7], "int32")
    two = scalar(2, "int32")
    out = blank((2,), "int32")
    assert run("Add", x, y, two, out, soc="950PR").tolist() == [2**24 + 3, 19]
    assert run("Add", x, y, two, out, soc="A2A3").tolist() == [2**24 + 2, 19]
    assert run("Add", x, y, scalar(1, "int32"), out, soc="A2A3").tolist() == [2**24 + 2, 12]
    assert run("Sub", x, y, two, out, soc="A2A3").tolist() == [2**24 - 1, -9]


@pytest.mark.parametrize("soc", CHIPS)
def test_integers_with_alpha_wrap(soc):
    x, y = every("int8")
    got = run("Add", tensor(x), tensor(y), scalar(-3, "int64"), blank((256, 256), "int8"), soc=soc)
    exact = x.astype(np.int64) - 3 * y.astype(np.int64)
    assert (np.asarray(got) == exact.astype(np.int8)).all()
    got = run("Sub", tensor(x), tensor(y), scalar(7, "int16"), blank((256, 256), "int8"), soc=soc)
    exact = x.astype(np.int64) - 7 * y.astype(np.int64)
    assert (np.asarray(got) == exact.astype(np.int8)).all()


@pytest.mark.parametrize("soc", CHIPS)
def test_bool_sums_take_alpha_as_a_bool(soc):
    x, y = (tensor(v) for v in every("bool"))
    out = blank((2, 2), "bool")
    for alpha in (scalar(2, "int32"), scalar(True, "bool")):
        assert run("Add", x, y, alpha, out, soc=soc).tolist() == [[0, 1], [1, 1]]
    assert run("Add", x, y, scalar(0, "int8"), out, soc=soc).tolist() == [[0, 0], [1, 1]]


def test_a_complex_alpha_of_one_multiplies_on_950_only():
    x = tensor([complex(1, float("inf"))], "complex64")
    y = tensor([0j], "complex64")
    one = scalar(1, "complex64")
    out = blank((1,), "complex64")
    assert run("Add", y, x, one, out, soc="A2A3").tolist() == [complex(1, float("inf"))]
    spoiled = complex(run("Add", y, x, one, out, soc="950PR")[0])
    assert np.isnan(spoiled.real)  # inf times the 0 of 1 + 0j
    assert run("Add", x, y, scalar(2j, "complex64"), out, soc="A2A3")[0].imag == float("inf")


def test_alpha_is_compared_with_1_in_float64_on_950():
    with jax.enable_x64(True):
        x, y = tensor([0.0], "float64"), tensor([3.0], "float64")
        alpha, out = scalar(1 + 2**-40, "fp64"), blank((1,), "fp64")
        assert run("Add", x, y, alpha, out, soc="950PR").tolist() == [3 + 3 * 2**-40]
        assert run("Add", x, y, alpha, out, soc="A2A3").tolist() == [3.0]
        # A comparison asks for above 1 or below 1, and NaN is neither.
        assert run("Add", x, y, scalar(float("nan"), "fp64"), out).tolist() == [3.0]


def test_complex_sums():
    x, y = tensor([1 + 2j], "complex64"), tensor([0.5], "float32")
    out = blank((1,), "complex64")
    assert run("Add", x, y, scalar(2j, "complex64"), out).tolist() == [1 + 3j]
    assert run("Mul", x, x, out).tolist() == [-3 + 4j]
    assert run("Div", x, x, out).tolist() == [1 + 0j]


# -- scalars


@pytest.mark.parametrize("soc", CHIPS)
def test_adds_of_half_with_a_number_that_half_does_not_hold(soc):
    x, out = tensor([1.0], "float16"), blank((1,), "f32")
    number, one = scalar(1.001, "fp32"), scalar(1, "fp32")
    got = run("Adds", x, number, one, out, soc=soc).tolist()
    half = float(np.float16(1) + np.float16(1.001))
    assert got == [half if soc == "A2A3" else float(np.float32(1) + np.float32(1.001))]
    number, alpha = scalar(1.0, "fp32"), scalar(1.001, "fp32")
    executor = plan("Adds", x, number, alpha, out, soc=soc)[1]
    assert executor.computes_in == ("fp16" if soc == "A2A3" else "fp32")
    executor = plan("Subs", x, number, alpha, out, soc=soc)[1]
    assert executor.computes_in == "fp32"


def test_subs():
    x, out = tensor([5, 6], "int8"), blank((2,), "int8")
    assert run("Subs", x, scalar(2, "int64"), scalar(3, "int64"), out).tolist() == [-1, 0]
    flags, out = tensor([True, False], "bool"), blank((2,), "int32")
    yes = scalar(True, "bool")
    assert run("Adds", flags, yes, yes, out).tolist() == [1, 1]


def test_muls_rounds_to_the_tensors_type_before_the_output():
    x, out = tensor([1.0], "float16"), blank((1,), "f32")
    number = scalar(1.0004, "fp32")
    assert run("Muls", x, number, out).tolist() == [float(np.float16(1.0004))]
    y, out = tensor([3.0], "bfloat16"), blank((1,), "f32")
    number = scalar(1.001, "fp64")
    want = float(np.float32(3.003).astype(ml_dtypes.bfloat16))
    assert run("Muls", y, number, out, soc="A2A3").tolist() == [want]
    assert run("Muls", y, scalar(1.001, "fp32"), out, soc="A2A3").tolist() == [
        float(np.float32(3) * np.float32(1.001))
    ]
    z, out = tensor([100], "int8"), blank((1,), "int8")
    assert run("Muls", z, scalar(3, "int64"), out, soc="A2A3").tolist() == [300 - 256]


def test_divs_by_the_reciprocal_on_950():
    values = np.arange(1, 200, dtype=np.float32)
    three = scalar(3.0, "fp64")
    exact = values / np.float32(3)
    inverse = values * np.float32(1 / 3)
    assert (exact != inverse).any()
    got = run("Divs", tensor(values), three, blank((199,), "f32"))
    assert (np.asarray(got) == inverse).all()
    got = run("Divs", tensor(values), three, blank((199,), "f32"), soc="A2A3")
    assert (np.asarray(got) == exact).all()
    gaps = acl.aclCreateTensor((100,), "f32", (2,), 0, "ND", (200,), np.resize(values, 200))
    got = run("Divs", gaps, three, blank((100,), "f32"))
    assert (np.asarray(got) == np.resize(values, 200)[::2] / np.float32(3)).all()
    half = tensor([1.0], "float16")
    assert run("Divs", half, scalar(0.0, "fp32"), blank((1,), "f16")).tolist() == [float("inf")]
    whole = tensor([7], "int32")
    assert run("Divs", whole, scalar(2, "int32"), blank((1,), "f32")).tolist() == [3.5]
    assert run("Divs", half, scalar(3.0, "fp32"), blank((1,), "f32"), soc="A2A3").tolist() == [
        float(np.float32(1) / np.float32(3))
    ]


# -- outputs, in place, traces


def test_outputs_respect_strides_and_offset():
    x, y = tensor([[1.0, 2.0], [3.0, 4.0]], "float32"), tensor([10.0, 20.0], "float32")
    out = acl.aclCreateTensor((2, 2), "f16", (1, 3), 1, "ND", (7,), np.full(7, -1, np.float16))
    run("Add", x, y, scalar(1, "fp32"), out)
    assert out.memory.array.tolist() == [-1, 11, 13, -1, 22, 24, -1]


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div"])
def test_in_place(op):
    x, y = tensor([[6.0, 8.0]], "float32"), tensor([2.0, 4.0], "float16")
    got = run(f"Inplace{op}", x, y, *alpha_of_one(op))
    assert got.tolist() == [[EXACT[op](6.0, 2.0), EXACT[op](8.0, 4.0)]]
    assert x.to_jax().tolist() == got.tolist()


def test_empty_tensors_change_nothing():
    x = tensor(np.zeros((0, 3), np.float32))
    out = blank((0, 3), "f16")
    assert run("Add", x, tensor(np.zeros(3, np.float32)), scalar(1, "fp32"), out).shape == (0, 3)
    assert run("Mul", x, x, out).shape == (0, 3)
    assert run("Cast", x, "half", out).shape == (0, 3)


def test_jit_and_gradients():
    def through(x, y):
        out = acl.aclCreateTensor((2,), "bf16", (2,), 1, "ND", (4,), None)
        got = run("Add", tensor(x), tensor(y), scalar(2, "int32"), out)
        return (got.astype(jnp.float32) * jnp.array([1.0, 3.0], jnp.float32)).sum()

    x, y = jnp.array([1.0, 2.0], jnp.float16), jnp.array([0.1, 0.2], jnp.float32)
    plain, (dx, dy) = jax.value_and_grad(through, (0, 1))(x, y)
    assert float(plain) == float(jax.jit(through)(x, y))
    assert dx.tolist() == [1, 3]
    assert dy.tolist() == [2, 6]


def test_cast():
    x = tensor([2.9, -300.5, float("nan"), 1e9], "float32")
    out = blank((4,), "int8")
    assert run("Cast", x, "int8", out, soc="950PR").tolist() == [2, -300 + 256, 0, 10**9 % 256]
    assert run("Cast", x, acl.ACL_INT8, out, soc="A2A3").shape == (4,)
    codes = blank((4,), "hif8")
    got = run("Cast", tensor([1.0, 2.6, -0.1, 0.0], "float16"), "hif8", codes)
    assert got.decode().tolist() == [1.0, 2.5, -0.09375, 0.0]
    flags = run("Cast", tensor([0.0, -0.0, 3.0], "float32"), "bool", blank((3,), "bool"))
    assert flags.tolist() == [False, False, True]
    same = run("Cast", tensor([1.5], "float16"), 1, blank((1,), "half"))
    assert same.tolist() == [1.5]
