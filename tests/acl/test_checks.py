"""Every parameter check of the first calls: code, class, text, and the order they come in."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from npusim import acl
from npusim._errors import (
    AclnnError,
    ConversionError,
    NpusimError,
    PromotionError,
    UnknownNameError,
    X64RequiredError,
)
from npusim.modes import Target
from tests.acl.common import CHIPS, blank, plan, run, scalar, tensor

ONE = {"Add": 1, "Sub": 1, "Mul": 0, "Div": 0}
LISTED = "fp32, fp16, bf16, fp64, int8, int16, int32, int64, uint8, bool, complex64, complex128"


def arguments(op, x, y, out, alpha=None):
    alpha = scalar(1, "int32") if alpha is None else alpha
    return (x, y, alpha, out) if ONE[op] else (x, y, out)


def f32(*shape):
    return tensor(np.ones(shape, np.float32))


def refused(code, kind, call):
    """The error of a call, checked for its class and code."""
    with pytest.raises(AclnnError) as error:
        call()
    assert isinstance(error.value, NpusimError)
    assert type(error.value) is kind
    names = {161001: "NULLPTR", 161002: "INVALID", 561103: "NULLPTR"}
    assert error.value.code == code
    assert error.value.name.endswith(names[code])
    return str(error.value)


@pytest.mark.parametrize("op", ONE)
def test_null_and_destroyed_arguments(op):
    live = arguments(op, f32(2), f32(2), f32(2))
    names = ("self", "other", "alpha", "out") if ONE[op] else ("self", "other", "out")
    for place, name in enumerate(names):
        given = list(live)
        given[place] = None
        kind = "aclScalar" if name == "alpha" else "aclTensor"
        maker = kind.replace("acl", "aclCreate")
        text = refused(161001, AclnnError, lambda given=given: plan(op, *given))
        assert text == f"Given: {name} is None. Allowed: an {kind}. Pass one made by {maker}."
        dead = scalar(1, "int32") if name == "alpha" else f32(2)
        dead.destroyed = True
        given[place] = dead
        text = refused(161001, AclnnError, lambda given=given: plan(op, *given))
        assert text.startswith(f"Given: {name}, an {kind} that was destroyed.")
        given[place] = jnp.ones(2)
        text = refused(161002, AclnnError, lambda given=given: plan(op, *given))
        assert text.startswith(f"Given: {name} of type ArrayImpl.")


@pytest.mark.parametrize("soc", CHIPS)
@pytest.mark.parametrize("op", ONE)
def test_types_that_are_not_listed(op, soc):
    for name in ("uint16", "uint32", "hif8", "complex32"):
        odd = blank((2,), name)
        call = arguments(op, odd, f32(2), f32(2))
        text = refused(161002, AclnnError, lambda call=call: plan(op, *call, soc=soc))
        assert text == (
            f"Given: self of type {name} for aclnn{op} on {soc}. Allowed: {LISTED}. Cast it to one "
            "of these types first (aclnnCast)."
        )
        call = arguments(op, f32(2), odd, f32(2))
        text = refused(161002, AclnnError, lambda call=call: plan(op, *call, soc=soc))
        assert text.startswith(f"Given: other of type {name} for aclnn{op} on {soc}.")


def test_the_output_of_mul_is_listed_too():
    text = refused(161002, AclnnError, lambda: plan("Mul", f32(2), f32(2), blank((2,), "uint16")))
    assert text.startswith("Given: out of type uint16 for aclnnMul on 950PR.")


def test_derivation_and_its_tables():
    # bf16 with f16 is fp32 on the English page, fp64 in a cell of the Chinese one.
    x, y = blank((2,), "bf16"), blank((2,), "half")
    call = arguments("Add", x, y, blank((2,), "f32"))
    assert plan("Add", *call)[1].computes_in == "fp32"
    if not jax.config.jax_enable_x64:
        kind = acl.status.AclnnX64RequiredError
        assert "fp64" in refused(561103, kind, lambda: plan("Add", *call, rules="zh"))
    text = refused(161002, AclnnError, lambda: plan("Add", *call, rules="none"))
    assert text.startswith("Given: rules='none'. Allowed: documented, implementation, zh.")


def test_no_derived_type(monkeypatch):
    # No listed pair lacks a derived type, so the check is seen with another list only.
    monkeypatch.setattr(acl.checks, "listed", lambda op, target: acl.checks.DTYPES)
    x = blank((2,), "uint16")
    call = arguments("Add", x, f32(2), f32(2))
    text = refused(161002, PromotionError, lambda: plan("Add", *call))
    assert text.startswith("Given: uint16 with fp32, which no type can be derived for")


@pytest.mark.parametrize("op", ["Add", "Sub"])
def test_alpha_must_convert_to_the_derived_type(op):
    x, out = blank((2,), "int8"), blank((2,), "int8")
    call = arguments(op, x, x, out, scalar(1.0, "fp32"))
    text = refused(161002, ConversionError, lambda: plan(op, *call))
    assert text == (
        f"Given: alpha of type fp32 for aclnn{op}, which computes in int8. Allowed: int4, int8, "
        "int16, int32, int64, uint8, uint16, uint32, uint64, bool. Create alpha with one of these "
        "types."
    )
    flags = blank((2,), "bool")
    call = arguments(op, flags, flags, flags, scalar(1.0, "fp32"))
    text = refused(161002, ConversionError, lambda: plan(op, *call))
    assert text == (
        f"Given: alpha of type fp32 for aclnn{op}, which computes in bool. Allowed: int4, int8, "
        "int16, int32, int64, uint8, uint16, uint32, uint64, bool. Create alpha with one of these "
        "types."
    )
    plan(op, *arguments(op, flags, flags, flags, scalar(2, "int8")))
    call = arguments(op, f32(2), f32(2), f32(2), scalar(1j, "complex64"))
    refused(161002, ConversionError, lambda: plan(op, *call))


@pytest.mark.parametrize("soc", CHIPS)
@pytest.mark.parametrize("op", ["Add", "Sub", "Div"])
def test_outputs_that_the_result_does_not_become(op, soc):
    out = blank((2,), "int32")
    call = arguments(op, f32(2), f32(2), out)
    text = refused(161002, ConversionError, lambda: plan(op, *call, soc=soc))
    assert text == (
        "Given: output of type int32 for a result of type fp32 (rules='documented'). Allowed: "
        "fp32, fp16, bf16, fp64. Take an output of one of these types, or cast the result yourself "
        "(npusim.cast)."
    )
    into_complex = arguments(op, f32(2), f32(2), blank((2,), "complex64"))
    refused(161002, ConversionError, lambda: plan(op, *into_complex, soc=soc))
    plan(op, *into_complex, soc=soc, rules="implementation")


def test_mul_checks_the_output_on_a2a3_alone():
    call = (f32(2), f32(2), blank((2,), "int32"))
    refused(161002, ConversionError, lambda: plan("Mul", *call, soc="A2A3"))
    plan("Mul", *call, soc="950PR")


@pytest.mark.parametrize("op", ONE)
def test_rank(op):
    deep = f32(*[1] * 9)
    call = arguments(op, f32(1), deep, f32(*[1] * 9))
    text = refused(161002, AclnnError, lambda: plan(op, *call))
    assert text == (
        f"Given: other of rank 9 for aclnn{op}. Allowed: rank 0 to 8. Reshape it: join axes that "
        "the operator treats alike."
    )
    flat = f32(*[1] * 8)
    plan(op, *arguments(op, flat, flat, f32(*[1] * 8)))


@pytest.mark.parametrize("op", ONE)
def test_shapes(op):
    call = arguments(op, f32(2, 3), f32(2), f32(2, 3))
    text = refused(161002, AclnnError, lambda: plan(op, *call))
    assert text == (
        f"Given: shapes self (2, 3) and other (2,) for aclnn{op}. Allowed: shapes whose sizes, "
        "counted from the last axis, are equal or 1. Reshape one of them so that they broadcast."
    )
    call = arguments(op, f32(2, 1), f32(3), f32(3, 2))
    text = refused(161002, AclnnError, lambda: plan(op, *call))
    assert text == (
        f"Given: out of shape (3, 2) for aclnn{op}. Allowed: (2, 3). Make a tensor of this shape."
    )


@pytest.mark.parametrize("op", ONE)
def test_formats(op):
    tiled = tensor(np.ones((2, 2), np.float32), fmt="FRACTAL_NZ")
    for place in ("self", "other", "out"):
        given = {"self": f32(2, 2), "other": f32(2, 2), "out": f32(2, 2), place: tiled}
        call = arguments(op, given["self"], given["other"], given["out"])
        text = refused(161002, AclnnError, lambda call=call: plan(op, *call))
        assert text == (
            f"Given: {place} in format FRACTAL_NZ for aclnn{op}. Allowed: ND and the other public "
            "formats. Convert it to a public format first (trans_data)."
        )
    image = tensor(np.ones((1, 2, 2, 1), np.float32), fmt="NCHW")
    assert run(op, *arguments(op, image, image, blank((1, 2, 2, 1), "f32"))).shape == (1, 2, 2, 1)


@pytest.mark.parametrize("op", ONE)
def test_outputs_that_overlap(op):
    out = acl.aclCreateTensor((2, 2), "f32", (1, 1), 0, "ND", (4,), None)
    call = arguments(op, f32(2, 2), f32(2, 2), out)
    text = refused(161002, AclnnError, lambda: plan(op, *call))
    assert text == (
        f"Given: out with strides (1, 1) for aclnn{op}, in which elements overlap. Allowed: an "
        "output in which every element has a place of its own. Take a tensor without overlap and "
        "copy from it."
    )


def test_add_looks_at_one_thing_after_the_other():
    """Each call is wrong in everything from one check on; the first of them is told."""
    tiled = tensor(np.ones((2, 2), np.float32), fmt="FRACTAL_NZ")
    ints, wide = blank((2,), "int8"), blank((3,), "bool")
    bad_alpha, odd = scalar(1.0, "fp32"), blank((9,), "uint16")
    deep = f32(*[1] * 9)
    steps = [
        ((odd, None, bad_alpha, wide), "other is None"),
        ((odd, ints, None, wide), "alpha is None"),
        ((odd, ints, bad_alpha, None), "out is None"),
        ((odd, odd, bad_alpha, wide), "self of type uint16"),
        ((ints, odd, bad_alpha, wide), "other of type uint16"),
        ((ints, ints, bad_alpha, wide), "alpha of type fp32"),
        ((ints, deep, bad_alpha, wide), "output of type bool"),
        ((f32(4), deep, bad_alpha, f32(3)), "other of rank 9"),
        ((f32(4), tiled, bad_alpha, f32(3)), "shapes self (4,)"),
        ((f32(2), tiled, bad_alpha, f32(3)), "out of shape (3,)"),
        ((f32(2), tiled, bad_alpha, f32(2, 2)), "other in format FRACTAL_NZ"),
    ]
    for call, start in steps:
        with pytest.raises(AclnnError) as error:
            plan("Add", *call)
        assert str(error.value).startswith(f"Given: {start}"), start


def test_div_looks_at_shapes_before_types():
    odd, deep = blank((9,), "uint16"), f32(*[1] * 9)
    tiled = tensor(np.ones((2, 2), np.float32), fmt="FRACTAL_NZ")
    steps = [
        ((None, None, None), "out is None"),
        ((None, None, f32(2)), "other is None"),
        ((None, odd, f32(2)), "self is None"),
        ((deep, odd, f32(2)), "self of rank 9"),
        ((f32(2), odd, f32(2)), "shapes self (2,)"),
        ((odd, odd, f32(2)), "out of shape (2,)"),
        ((odd, odd, f32(9)), "other of type uint16"),
        ((odd, f32(9), f32(9)), "self of type uint16"),
        ((tiled, f32(2), blank((2, 2), "int8")), "output of type int8"),
        ((tiled, f32(2), f32(2, 2)), "self in format FRACTAL_NZ"),
    ]
    for call, start in steps:
        with pytest.raises(AclnnError) as error:
            plan("Div", *call)
        assert str(error.value).startswith(f"Given: {start}"), start


def test_scalar_forms():
    x, out = f32(2), f32(2)
    one, number = scalar(1, "int32"), scalar(1.5, "fp32")
    for op, rest in (("Adds", (one,)), ("Subs", (one,)), ("Muls", ()), ("Divs", ())):
        with pytest.raises(AclnnError, match="other is None") as error:
            plan(op, x, None, *rest, out)
        assert error.value.code == 161001
        with pytest.raises(AclnnError, match="other of type aclTensor"):
            plan(op, x, x, *rest, out)
        with pytest.raises(AclnnError, match="self of type uint16"):
            plan(op, blank((2,), "uint16"), number, *rest, out)
        with pytest.raises(AclnnError, match=r"out of shape \(3,\)"):
            plan(op, x, number, *rest, f32(3))
        with pytest.raises(AclnnError, match="self of rank 9"):
            plan(op, f32(*[1] * 9), number, *rest, f32(*[1] * 9))
        with pytest.raises(AclnnError, match="in format FRACTAL_NZ"):
            plan(
                op, tensor(np.ones((2, 2), np.float32), fmt="FRACTAL_NZ"), number, *rest, f32(2, 2)
            )
    with pytest.raises(ConversionError):
        plan("Adds", x, number, one, blank((2,), "int8"))
    with pytest.raises(ConversionError):
        plan("Muls", x, number, blank((2,), "int8"))
    plan("Muls", x, number, blank((2,), "int8"), soc="A2A3")
    with pytest.raises(PromotionError):
        plan("Adds", blank((2,), "bool"), scalar(1, "uint16"), one, x)
    with pytest.raises(AclnnError, match="other of type uint16"):
        plan("Divs", x, scalar(1, "uint16"), x)


def test_in_place_shapes():
    one = scalar(1, "int32")
    for op, rest in (("Add", (one,)), ("Sub", (one,)), ("Div", ())):
        with pytest.raises(AclnnError) as error:
            plan(f"Inplace{op}", f32(3), f32(2, 3), *rest)
        assert str(error.value) == (
            f"Given: selfRef of shape (3,) for aclnnInplace{op}. Allowed: (2, 3). Make a tensor of "
            "this shape."
        )
        with pytest.raises(AclnnError, match="selfRef is None"):
            plan(f"Inplace{op}", None, f32(2, 3), *rest)
    with pytest.raises(AclnnError, match="out of shape"):
        plan("InplaceMul", f32(3), f32(2, 3))


def test_cast():
    x, half = f32(2), blank((2,), "half")
    steps = [
        ((None, "half", half), 161001, "self is None"),
        ((x, "half", None), 161001, "out is None"),
        ((x, "nothing", half), 161002, "data type 'nothing'"),
        ((blank((2,), "int4"), "half", half), 161002, "self of type int4 for aclnnCast on 950PR"),
        ((x, "half", blank((3,), "fp8_e8m0")), 161002, "out of type fp8_e8m0 for aclnnCast"),
        ((x, "bf16", half), 161002, "out of type fp16 for aclnnCast to bf16"),
        ((f32(*[1] * 9), "half", half), 161002, "self of rank 9"),
        ((x, "half", blank((3,), "half")), 161002, "out of shape (3,)"),
    ]
    for call, code, start in steps:
        with pytest.raises(AclnnError) as error:
            plan("Cast", *call)
        assert error.value.code == code
        assert str(error.value).startswith(f"Given: {start}"), start
    with pytest.raises(AclnnError, match="self of type hif8 for aclnnCast on A2A3"):
        plan("Cast", blank((2,), "hif8"), "half", half, soc="A2A3")


def test_casts_that_the_chip_lacks_fail_inside():
    # hif8 to fp8: both are listed, no chain leads from one to the other.
    call = (blank((2,), "hif8"), "fp8_e5m2", blank((2,), "fp8_e5m2"))
    text = refused(561103, AclnnError, lambda: plan("Cast", *call))
    assert text.startswith("Given: hif8 -> fp8_e5m2 on 950PR aclnn")


def test_64_bit_types_without_x64():
    if jax.config.jax_enable_x64:
        pytest.skip("x64 is on")
    with jax.enable_x64(True):
        x, out = blank((2,), "int64"), blank((2,), "int64")
    with pytest.raises(X64RequiredError) as error:
        plan("Add", x, x, scalar(1, "int32"), out)
    assert isinstance(error.value, AclnnError)
    assert error.value.code == 561103
    with jax.enable_x64(True):
        assert run("Add", x, x, scalar(3, "int64"), out).dtype == np.int64


def test_targets():
    call = arguments("Add", f32(2), f32(2), f32(2))
    plan("Add", *call, target="A2A3")
    with pytest.raises(AclnnError) as error:
        plan("Add", *call, target=Target("950PR", "pypto"))
    assert str(error.value) == (
        "Given: target 950PR pypto INF_NAN. Allowed: targets with api='aclnn'. Pass "
        "Target('950PR', 'aclnn')."
    )
    with pytest.raises(AclnnError, match="SoC 'none'") as error:
        plan("Add", *call, target="none")
    assert isinstance(error.value.__cause__, UnknownNameError)


def test_nothing_runs_before_the_second_call():
    out = f32(2)
    plan("Add", f32(2), f32(2), scalar(1, "int32"), out)
    assert out.to_jax().tolist() == [1, 1]
