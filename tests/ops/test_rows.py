"""The rows against the pages and code they were taken from, written down again."""

import pytest

from npusim import dtypes, ops
from npusim._errors import ConversionError, InputError, UnknownNameError
from npusim.modes import SoC
from npusim.promotion.tables import operators as scalar_operators

N = "fp32 fp16 fp64 int64 int32 int16 int8 uint8 bool"
NUMBERS = f"{N} bf16"
ACCEPTED = {  # promotion reference, section 3
    "add": (f"{NUMBERS} complex64 complex128", f"{NUMBERS} complex64 complex128 complex32"),
    "subtract": (f"{NUMBERS} complex64 complex128", f"{NUMBERS} complex64 complex128 complex32"),
    "multiply": (f"{NUMBERS} complex64 complex128", f"{NUMBERS} complex64 complex128 complex32"),
    "divide": (f"{NUMBERS} complex64 complex128",) * 2,
    "floor_divide": (NUMBERS,) * 2,
    "maximum": (NUMBERS,) * 2,
    "power": (f"{NUMBERS} complex64 complex128".replace(" bool", ""),) * 2,
    "mean": (f"{NUMBERS} complex64 complex128".replace(" bool", ""),) * 2,
    "sum": (f"{NUMBERS} complex64 complex128",) * 2,
    "softmax": ("fp32 fp16 fp64 bf16",) * 2,
    "layer_norm": ("fp32 fp16 bf16",) * 2,
    "gelu": ("fp32 fp16 bf16",) * 2,
    "exp": ("fp32 fp16 fp64 bf16 complex64 complex128 bool int64",) * 2,
    "sqrt": (f"{NUMBERS} complex64 complex128",) * 2,
    "equal": (f"{NUMBERS} complex64 complex128", f"{NUMBERS} complex64 complex128 uint64"),
    "where": (
        f"{NUMBERS} uint16 uint32 uint64 complex64 complex128",
        f"{NUMBERS} uint16 uint32 uint64 complex64 complex128 complex32",
    ),
}
COMPUTE = [  # section 3.1
    ("add", "fp16", "fp32", "fp32"),
    ("add", "bf16", "fp32", "fp32"),
    ("add", "int8", "fp16", "int8"),
    ("add", "bool", "fp16", "int8"),
    ("add", "int16", "int16", "int16"),
    ("multiply", "int8", "fp32", "int32"),
    ("multiply", "bf16", "fp32", "fp32"),
    ("divide", "int32", "fp32", "fp32"),
    ("maximum", "uint8", "fp16", "uint8"),
    ("maximum", "fp16", "fp16", "fp16"),
    ("equal", "bf16", "fp32", "bf16"),
    ("equal", "bool", "fp16", "int8"),
    ("exp", "fp16", "fp32", "fp32"),
    ("exp", "int64", "fp32", "fp32"),
    ("sqrt", "int64", "fp64", "fp64"),
    ("sum", "bf16", "fp32", "fp32"),
    ("sum", "int32", "int32", "int32"),
    ("sum", "int8", "fp16", "fp16"),
    ("mean", "fp16", "fp32", "fp32"),
    ("softmax", "bf16", "fp32", "fp32"),
    ("layer_norm", "fp16", "fp32", "fp32"),
    ("gelu", "fp16", "fp32", "fp32"),
]


@pytest.mark.parametrize("op", ACCEPTED)
def test_accepted_types(op):
    for soc, want in zip(("A2A3", "950PR"), ACCEPTED[op], strict=True):
        got = {str(row.dtype) for row in ops.operator_rows(op, soc)}
        assert got == set(want.split()), soc


@pytest.mark.parametrize(("op", "dtype", "a2a3", "ninefifty"), COMPUTE)
def test_compute_types(op, dtype, a2a3, ninefifty):
    assert str(ops.operator_row(op, "A2A3", dtype).compute) == a2a3
    assert str(ops.operator_row(op, "950PR", dtype).compute) == ninefifty


def test_results():
    for op, dtype, want in (
        ("divide", "int8", "fp32"),
        ("sqrt", "int64", "fp32"),
        ("equal", "complex64", "bool"),
        ("abs", "complex64", "fp32"),
        ("abs", "int8", "int8"),
    ):
        assert str(ops.operator_row(op, "950PR", dtype).result) == want


def test_forms():
    for op, dtype, soc, want in (
        ("softmax", "fp16", "A2A3", "half_shift"),
        ("softmax", "bf16", "A2A3", ""),
        ("softmax", "fp16", "950PR", ""),
        ("mean", "fp16", "A2A3", "scale_first"),
        ("mean", "fp16", "950PR", ""),
        ("gelu", "fp32", "A2A3", "tanh"),
    ):
        assert ops.operator_row(op, soc, dtype).form == want


def test_every_row_says_where_it_comes_from():
    for op in ops.operators():
        for soc in SoC:
            for row in ops.operator_rows(op, soc):
                assert row.grade in ("implementation", "documented", "assumed"), row
                assert row.source, row
                assert (row.grade == "assumed") == (row.source == "npusim"), row
                assert row.compute.stored_as == "jax" or row.compute is row.dtype


def test_output_rules():
    row = ops.operator_row("multiply", "A2A3", "fp32")
    ops.check_output(row, dtypes.dtype("int8"), scalar=True)
    with pytest.raises(ConversionError):
        ops.check_output(row, dtypes.dtype("int8"))
    row = ops.operator_row("divide", "A2A3", "int32")
    ops.check_output(row, dtypes.dtype("int32"))
    ops.check_output(row, dtypes.dtype("fp16"))
    with pytest.raises(ConversionError):
        ops.check_output(row, dtypes.dtype("bool"))
    with pytest.raises(ConversionError, match=r"Given: output of type fp32 .* Allowed: fp16"):
        ops.check_output(ops.operator_row("sum", "A2A3", "fp16"), dtypes.dtype("fp32"))


def test_errors():
    with pytest.raises(UnknownNameError, match="Did you mean 'multiply'"):
        ops.operator_rows("multply", "A2A3")
    with pytest.raises(InputError, match="Allowed: fp16, bf16, fp32"):
        ops.operator_row("gelu", "A2A3", "fp64")
    with pytest.raises(InputError, match="950PR takes it"):
        ops.operator_row("equal", "A2A3", "uint64")


def test_the_scalar_tables_know_the_same_operators():
    named = {"add", "sub", "mul", "div", "pow", "eq", "ne", "lt", "le", "gt", "ge"}
    assert named | {"maximum", "minimum"} == set(scalar_operators())


# promotion reference, section 3.2: cubeMathType 0 to 4
CUBE = {
    ("fp32", "fp32"): "fp32 hf32 fp16 hf32 fp32",
    ("fp32", "fp16"): "fp32 hf32 fp16 hf32 fp32",
    ("fp16", "fp16"): "fp16 fp16 fp16 fp16 fp16",
    ("fp32", "bf16"): "fp32 hf32 fp16 hf32 fp32",
    ("fp16", "bf16"): "fp32 fp32 fp16 fp32 fp32",
    ("bf16", "bf16"): "bf16 bf16 bf16 bf16 bf16",
}


@pytest.mark.parametrize("op", ["matmul", "conv"])
@pytest.mark.parametrize("soc", ["A2A3", "950PR"])
@pytest.mark.parametrize("pair", CUBE)
def test_cube_compute_types(pair, soc, op):
    for number, want in enumerate(CUBE[pair].split()):
        for lhs, rhs in (pair, pair[::-1]):
            row = ops.cube_row(lhs, rhs, soc, number, op)
            assert str(row.lhs_compute) == str(row.rhs_compute) == want
            assert str(row.accumulate) == "fp32"
            assert str(row.output) == (pair[0] if pair[0] == pair[1] else "fp32")


def test_cube_pairs_by_chip():
    assert str(ops.cube_row("int8", "int8", "A2A3").accumulate) == "int32"
    assert str(ops.cube_row("hif8", "hif8", "950PR", op="conv").output) == "fp32"
    mixed = ops.cube_row("fp8_e4m3", "fp8_e5m2", "950PR")
    assert (str(mixed.lhs_compute), str(mixed.rhs_compute)) == ("fp8_e4m3", "fp8_e5m2")
    with pytest.raises(InputError, match=r"Allowed: fp32 x fp32.*950PR takes it"):
        ops.cube_row("hif8", "hif8", "A2A3")
    with pytest.raises(InputError, match="A2A3 takes it"):
        ops.cube_row("int4", "int4", "950PR")
    with pytest.raises(UnknownNameError, match="3 USE_HF32"):
        ops.cube_row("fp32", "fp32", math_type=5)
    with pytest.raises(UnknownNameError, match="matmul, conv"):
        ops.cube_row("fp32", "fp32", op="gemm")
