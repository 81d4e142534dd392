"""Every pair of the conversion rules, against the rules written down again."""

import jax.numpy as jnp
import pytest

from npusim._errors import UnknownNameError
from npusim.dtypes import dtype
from npusim.promotion import ConversionError, can_cast, check_conversion, conversion_table
from tests.promotion.pages import COMPLEX, FLOATS, PAIRS, TYPES

INTS = tuple(t for t in TYPES if t not in (*FLOATS, *COMPLEX, "bool"))
OTHER_FLOATS = ("hif8", "fp8_e4m3", "fp8_e5m2", "fp8_e8m0", "fp4_e2m1", "fp4_e1m2")


def page(src, dst):
    """The rule list, with bool as a source and complex32 as decided."""
    if src == dst:
        return True
    if dst == "bool":
        return False
    if src in COMPLEX or dst in COMPLEX:
        return src in COMPLEX and dst in COMPLEX
    return not (src in FLOATS and dst in INTS)


def code(src, dst):
    """CanCast of the operator library."""
    if src in COMPLEX and dst not in COMPLEX:
        return False
    if src in (*FLOATS, *OTHER_FLOATS) and dst in INTS:
        return False
    return src == "bool" or dst != "bool"


@pytest.mark.parametrize(("rules", "rule"), [("documented", page), ("zh", page)])
def test_every_pair_of_the_page(rules, rule):
    assert [p for p in PAIRS if can_cast(*p, rules=rules) is not rule(*p)] == []


def test_every_pair_of_the_code():
    pairs = [
        (a, b) for a in (*TYPES, *OTHER_FLOATS, "int4") for b in (*TYPES, *OTHER_FLOATS, "int4")
    ]
    assert [p for p in pairs if can_cast(*p, rules="implementation") is not code(*p)] == []


def test_the_page_and_the_code_differ_where_real_becomes_complex():
    differing = [p for p in PAIRS if page(*p) != code(*p)]
    assert len(differing) == 39
    assert all(dst in COMPLEX and src not in COMPLEX for src, dst in differing)


def test_types_the_page_does_not_name_convert_to_themselves_only():
    assert can_cast("hif8", "hif8")
    assert can_cast("hf32", "hf32")
    assert not can_cast("hif8", "fp32")
    assert can_cast("hif8", "fp32", rules="implementation")
    assert can_cast("fp32", "int4", rules="implementation")
    assert not can_cast("hf32", "fp32", rules="implementation")


def test_assumed_cells_are_bool_sources_and_complex32():
    for cell in conversion_table():
        assumed = cell.grade == "assumed"
        if assumed:
            assert str(cell.lhs) == "bool" or "complex32" in (str(cell.lhs), str(cell.rhs))
    assert {c.grade for c in conversion_table("implementation")} == {"implementation"}


def test_arrays_are_judged_by_their_type():
    assert can_cast(jnp.ones(2, jnp.float32), jnp.ones(2, jnp.float16))
    assert not can_cast(jnp.ones(2, jnp.float32), "int8")


def test_refusal():
    check_conversion("s32", "f16")
    with pytest.raises(ConversionError) as error:
        check_conversion(jnp.ones(2, jnp.float32), "int8")
    assert error.value.code == 161002
    assert (error.value.src, error.value.dst) == (dtype("f32"), dtype("int8"))
    assert error.value.allowed == tuple(map(dtype, ("fp32", "fp16", "bf16", "fp64")))
    assert str(error.value) == (
        "Given: output of type int8 for a result of type fp32 (rules='documented'). Allowed: fp32, "
        "fp16, bf16, fp64. Take an output of one of these types, or cast the result yourself "
        "(npusim.cast)."
    )
    with pytest.raises(UnknownNameError):
        can_cast("f32", "f16", rules="none")
