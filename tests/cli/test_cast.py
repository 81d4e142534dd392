"""``npusim cast``: its texts, its exact reading of numbers, and its explanations."""

import csv
import io
from fractions import Fraction

import jax
import numpy as np
import pytest

import npusim as npu
from npusim.casting.support import laboratory_row
from npusim.cli.exact import exact_values, parse, parse_code
from npusim.cli.trace import trace
from tests.cli.run import data, out, run

HEADLINE = """\
┏━━━━━━━┳━━━━━━┳━━━━━━━━━━━┳━━━━━━┳━━━━━━━━━━━┳━━━━━━━━━━━┓
┃ input ┃ fp16 ┃ fp16 code ┃ int8 ┃ int8 code ┃ bits      ┃
┡━━━━━━━╇━━━━━━╇━━━━━━━━━━━╇━━━━━━╇━━━━━━━━━━━╇━━━━━━━━━━━┩
│ 300   │ 300  │ 0x5CB0    │ 44   │ 0x2C      │ 0010 1100 │
│ -300  │ -300 │ 0xDCB0    │ -44  │ 0xD4      │ 1101 0100 │
│ 50    │ 50   │ 0x5240    │ 50   │ 0x32      │ 0011 0010 │
└───────┴──────┴───────────┴──────┴───────────┴───────────┘
cast    fp16 -> int8 on 950PR pypto INF_NAN: mode TRUNC (the pair's default), satmode OFF
step    fp16 -> int8: TRUNC, keep low bits, +inf to -1, -inf to 0
source  pypto.cast page (documented)
note    OFF sends +inf to -1 and -inf to 0
"""

EXPLAINED = """
65519
  step    fp32 -> fp16, RINT
  source  65519 = 0x477FEF00
          sign 0  exponent 10001110 (142 - 127 = 15)  mantissa 11111111110111100000000
  bits    1.1111111111 | 0111100000000  x 2^15   (kept | discarded)
          last kept 1, guard 0, sticky 1
  carry   0: below one half: no carry
  result  65504 = 0x7BFF
          sign 0  exponent 11110 (30 - 15 = 15)  mantissa 1111111111
"""


def test_headline():
    words = ["cast", "300", "-300", "50", "--from", "half", "--to", "int8", "--sat", "off"]
    assert out(*words) == HEADLINE
    assert run(*words).stderr == ""


def test_headline_saturated():
    rows = data("cast", "300", "-300", "50", "--from", "half", "--to", "int8", "--sat", "on")
    assert [row["result"] for row in rows] == [127, -128, 50]
    assert {row["satmode"] for row in rows} == {"ON"}


def test_explained_text():
    text = out("cast", "65519", "--from", "float", "--to", "half", "--explain", "--mode", "rint")
    assert text.endswith(EXPLAINED)


def test_narrow_terminal_loses_nothing():
    words = ["cast", "9223372036854775807", "--from", "int64", "--to", "float", "--explain"]
    text = out(*words, columns=80)
    assert max(map(len, text.splitlines())) <= 80
    letters = "".join(text.split())
    assert "111111111111111111111111111111111111111" in letters  # the discarded bits
    assert "0x5F000000" in letters


def test_json_and_csv_hold_the_same():
    words = ["cast", "0.1", "-inf", "nan", "--from", "half", "--to", "fp32"]
    rows = data(*words)
    assert [row["source"] for row in rows] == ["0.0999755859375", "-inf", "nan"]
    assert [row["result"] for row in rows] == [0.0999755859375, "-inf", "nan"]
    assert [row["rounded"] for row in rows] == [True, False, False]
    table = list(csv.DictReader(io.StringIO(out(*words, "--format", "csv"))))
    assert [row["code"] for row in table] == [row["code"] for row in rows]
    assert table[0]["rounded"] == "yes"
    assert table[0]["rule_source"] == "pypto.cast page"
    assert table[0]["grade"] == "documented"


def test_all_modes_side_by_side():
    text = out("cast", "2.5", "-2.5", "--from", "half", "--to", "int32", "--all-modes")
    assert "│ input ┃ fp16" not in text
    header = text.splitlines()[1]
    assert [w.strip() for w in header.strip("┃").split("┃")] == [
        "input", "fp16", "RINT", "FLOOR", "CEIL", "ROUND", "TRUNC",
    ]  # fmt: skip
    words = ["cast", "2.5", "--from", "half", "--to", "int32", "--all-modes", "--api", "numerics"]
    rows = data(*words)
    assert [(row["mode"], row["result"]) for row in rows] == [
        ("RINT", 2), ("FLOOR", 2), ("CEIL", 3), ("ROUND", 3), ("TRUNC", 2), ("ODD", 3),
    ]  # fmt: skip


def test_all_modes_where_there_are_none():
    rows = data("cast", "1", "--from", "int8", "--to", "half", "--all-modes")
    assert [row["mode"] for row in rows] == ["RINT"]
    rows = data("cast", "1.5", "--from", "float", "--to", "int8", "--all-modes", "--api", "aclnn")
    assert [row["mode"] for row in rows] == ["TRUNC"]


def test_codes():
    rows = data("cast", "0x7C00", "0b1", "31745", "--codes", "--from", "half", "--to", "int8")
    assert [row["source"] for row in rows] == ["inf", "5.9604644775390625e-08", "nan"]
    assert [row["result"] for row in rows] == [-1, 0, 0]


def test_wide_types_without_further_ado():
    assert not jax.config.jax_enable_x64
    rows = data("cast", "9223372036854775807", "--from", "int64", "--to", "fp32")
    assert rows[0]["result"] == 2**63
    rows = data("cast", "1e300", "--from", "fp64", "--to", "int64", "--api", "ascendc",
                "--mode", "trunc")  # fmt: skip
    assert rows[0]["result"] == 2**63 - 1
    assert not jax.config.jax_enable_x64


def test_options_reach_the_cast():
    words = [
        "cast",
        "1e9",
        "--from",
        "float",
        "--to",
        "half",
        "--overflow",
        "saturate",
        "--soc",
        "A2A3",
    ]
    assert data(*words)[0]["result"] == 65504
    words = ["cast", "1", "--from", "bf16", "--to", "e8m0", "--api", "ascendc", "--level", "reg"]
    assert data(*words)[0]["code"] == "0x7F"
    words = ["cast", "1000000", "--from", "int32", "--to", "half", "--deqscale", "0.01"]
    assert data(*words)[0]["result"] == 10000


def test_complex_parts():
    words = [
        "cast",
        "1+2j",
        "1e5-0.5j",
        "-infj",
        "3",
        "--from",
        "complex64",
        "--to",
        "complex32",
        "--api",
        "ascendc",
    ]
    rows = data(*words, "--sat", "off")
    assert [row["result"] for row in rows] == ["1+2j", "inf-0.5j", "0-infj", "3+0j"]
    explained = data(*words, "--explain")
    assert [step["part"] for step in explained[0]["steps"]] == ["real part", "imaginary part"]


def test_one_rounding_however_long_the_number():
    # A tie of float32 that float64 cannot tell from its neighbours.
    tie = Fraction(1) + Fraction(1, 1 << 24)
    digits = str(10**60 + (10**60 >> 24))
    text = f"{digits[0]}.{digits[1:]}1"
    assert Fraction(text) > tie
    value, rounded = parse(text, npu.DT_FP32)
    assert value.magnitude == 1 + Fraction(1, 1 << 23)
    assert rounded
    assert "rounded to nearest even to be fp32" in out(
        "cast", text, "--from", "fp32", "--to", "half"
    )


@pytest.mark.parametrize("name", ["half", "bf16", "e4m3", "hif8", "e2m1", "e8m0", "float"])
def test_reading_as_the_library_rounds(name):
    fmt = npu.dtype(name)
    rng = np.random.default_rng(0)
    exponents = rng.uniform(-9, 9 if fmt.max > 40000 else 2, 200)
    values = np.abs(rng.normal(size=200)) * np.exp2(exponents)
    values = values[values < float(fmt.max)]
    got = [parse(repr(float(v)), fmt)[0].magnitude for v in values]
    if name == "e8m0":  # a cast drops the mantissa; text is rounded like any other
        assert all(g.numerator.bit_count() == 1 for g in got)
        return
    with jax.enable_x64(True):
        made = npu.cast(values, fmt, "RINT", "OFF", target=npu.Target(api="numerics"))
        codes = np.asarray(npu.to_codes(made)).tolist()
    want = [v.magnitude for v in exact_values(codes, fmt)]
    if name != "hif8":  # ties aside, which random values do not hit
        assert got == want
    else:
        assert sum(g != w for g, w in zip(got, want, strict=True)) == 0


def test_fallback_is_a_note_on_stderr():
    result = run("cast", "1.8125", "--from", "float", "--to", "hif8", "--mode", "rint")
    assert "note: fp32 -> hif8 on 950PR pypto INF_NAN does not take RINT" in result.stderr
    assert "mode ROUND (RINT is not available)" in result.stdout


ERRORS = {
    "dtype": ("cast 1 --from fp9 --to int8", "Given: data type 'fp9'."),
    "mode": ("cast 1 --from half --to int8 --mode up", "Given: cast mode 'up'."),
    "pair": ("cast 1 --from half --to int4", "The pair exists on: A2A3 pypto INF_NAN;"),
    "text": ("cast one --from half --to int8", "Given: 'one' as a value of fp16."),
    "range": ("cast 70000 --from half --to int8", "Given: 70000 as fp16, outside its range."),
    "fraction": ("cast 1.5 --from int8 --to half", "Given: 1.5 as int8."),
    "special": ("cast inf --from int8 --to half", "int8 has no inf"),
    "code": ("cast 0x10000 --codes --from half --to int8", "Given: '0x10000' as a code of fp16."),
    "option": ("cast 1 --from half --to int8 --moed rint", "Did you mean '--mode'?"),
    "format": ("cast 1 --from half --to int8 --format xml", "Given: --format xml."),
    "huge": ("cast 1e99999 --from half --to int8", "Given: '1e99999' as a value of fp16."),
    "soc": ("cast 1 --from half --to int8 --soc 910X", "Given: SoC '910X'."),
    "scale": ("cast 1 --from half --to int8 --deqscale 2", "Given: deqscale for fp16 -> int8"),
    "hf32": ("cast 1 --from hf32 --to half", "Given: --from hf32."),
}


@pytest.mark.parametrize("case", ERRORS)
def test_one_clear_line_and_exit_code_2(case):
    words, text = ERRORS[case]
    result = run(*words.split(), code=2)
    assert result.stdout == ""
    assert result.stderr.startswith("error: Given: ")
    assert result.stderr.count("\n") == 1
    assert text in result.stderr


def test_missing_arguments_are_code_2():
    assert "--from" in run("cast", "1", "--to", "int8", code=2).stderr


def value_of(kept: str, carry: int, exponent: int) -> Fraction:
    """What the kept bits and the carry of an explanation stand for."""
    whole, _, fraction = kept.partition(".")
    return (int(whole + fraction, 2) + carry) * Fraction(2) ** (exponent - len(fraction))


PAIRS = [
    ("half", "int8"), ("half", "e4m3"), ("half", "hif8"), ("half", "e2m1"), ("half", "bf16"),
    ("bf16", "half"), ("bf16", "e1m2"), ("float", "half"), ("float", "hif8"), ("float", "hf32"),
    ("float", "int32"), ("int32", "float"), ("int32", "half"), ("int16", "e5m2"), ("hif8", "e2m1"),
    ("e4m3", "int4"),
]  # fmt: skip


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_explanations_add_up_to_what_the_kernels_give(pair):
    src, dst = map(npu.dtype, pair)
    target = npu.Target(api="numerics")
    rng = np.random.default_rng(7)
    kind = f"uint{max(src.bits, 8)}"
    codes = rng.integers(0, 1 << src.bits, 120, dtype=kind, endpoint=False)
    if src is npu.DT_FP32:  # most random words are out of any range
        near = (rng.normal(size=120) * np.exp2(rng.uniform(-20, 17, 120))).astype(np.float32)
        codes = np.concatenate([near.view(np.uint32) & np.uint32(0xFFFFF000), near.view(np.uint32)])
    if src is npu.DT_INT32:  # and of every length
        codes >>= rng.integers(0, 32, 120, dtype=kind)
    checked = 0
    for mode in laboratory_row(target, src, dst).modes:
        resolved = npu.resolve_cast(src, dst, mode, "OFF", target)
        for ((_, parts),) in trace(npu.from_codes(codes, src), resolved, 1.0):
            (part,) = parts
            if not part.kept or part.overflow:
                continue
            size = value_of(part.kept, part.carry, part.exponent)
            got = exact_values([parse_code(part.result_code, _held(dst))], _held(dst))[0]
            assert got.magnitude == size, part
            bits = part.discarded
            if bits and "..." not in bits:
                assert part.guard == int(bits[0])
                assert part.sticky == int("1" in bits[1:])
            checked += 1
    assert checked > 60


def _held(fmt):
    return npu.DT_FP32 if fmt is npu.DT_HF32 else fmt


def explain(*words: str):
    (row,) = data("cast", *words, "--explain")
    return row["steps"]


def test_explained_tie_and_overflow():
    (step,) = explain("-65520", "--from", "float", "--to", "half")
    assert step["kept"] == "1.1111111111"
    assert step["discarded"] == "1000000000000"
    assert (step["last"], step["guard"], step["sticky"], step["carry"]) == (1, 1, 0, 1)
    assert step["why"] == "a tie, and the last kept bit is odd: carry"
    assert step["overflow"] == "-65536 < -65504: becomes -inf"


def test_explained_low_bits():
    (step,) = explain("300", "--from", "half", "--to", "int8")
    assert step["kept"] == "100101100"
    assert step["overflow"] == "300 > 127: the low 8 bits of 1_0010_1100 are kept: 44"
    (step,) = explain("300", "--from", "half", "--to", "int8", "--sat", "on")
    assert step["overflow"] == "300 > 127: clamped to 127"
    (step,) = explain("inf", "--from", "half", "--to", "int8")
    assert step["overflow"].startswith("inf becomes -1: it passes through a saturating int32")


def test_explained_hybrid():
    words = ["16", "--from", "float", "--to", "hif8", "--api", "ascendc", "--mode", "hybrid"]
    (step,) = explain(*words)
    assert step["result"] == "20"
    assert step["why"] == "the next 14 bits = 0 >= 0 = bits 13..0 of the float: carry"
    (step,) = explain("40960", *words[1:])
    assert step["overflow"] == "40960 >= 40960: becomes 32768, the largest finite value"


def test_explained_chains_and_scales():
    steps = explain("3e9", "--from", "float", "--to", "e2m1", "--api", "aclnn")
    assert [step["step"] for step in steps] == ["fp32 -> bf16, RINT", "bf16 -> fp4_e2m1, RINT"]
    steps = explain("1000000", "--from", "int32", "--to", "half", "--deqscale", "0.01")
    assert [step["source"] for step in steps] == ["1000000", "10002.13671875"]


def test_explained_csv_is_one_row_a_step():
    words = [
        "cast",
        "2.5",
        "300",
        "--from",
        "half",
        "--to",
        "int8",
        "--all-modes",
        "--explain",
        "--format",
        "csv",
    ]
    rows = list(csv.DictReader(io.StringIO(out(*words))))
    assert len(rows) == 10
    assert rows[0]["kept"] == "10"
    assert rows[0]["discarded"] == "100000000"
