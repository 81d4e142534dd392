"""The oracle against every golden row."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from tests.golden import data
from tests.oracle import chains, tables
from tests.oracle.casts import cast
from tests.oracle.formats import FORMATS, Special, decode

COMPLEX = {"c32", "c64"}


def result_of(row):
    """Value and exact outcome of one example of the precision page, or None for a non-value."""
    src, dst, mode = row["src"], row["dst"], row["mode"]
    try:
        code = data.code_of(row["input"], src)
    except ValueError:
        return None
    code = chains.integral_f32(code, mode) if src == dst else cast(code, src, dst, mode, True)
    return decode(code, dst)


def printed_equal(document, exact):
    """Whether the printed number is the exact one, to its last digit if it is in decimals."""
    if "e-" not in document:
        return Fraction(document) == exact
    digits, exponent = document.split("e")
    places = len(digits.split(".")[1]) - int(exponent)
    return abs(Fraction(document) - exact) <= Fraction(1, 2 * 10**places)


def test_precision_page_134_results_followed_15_contradicted():
    rows = data.rows("ascendc_precision_examples")
    counts = Counter()
    for row in rows:
        exact = result_of(row)
        agrees = exact is not None and printed_equal(row["document"], exact)
        assert row["exact"] == ("" if exact is None else str(exact)), row
        assert agrees == (row["follows"] == "yes"), row
        assert agrees or row["reason"], row
        counts[row["follows"]] += 1
    assert counts == {"yes": 134, "no": 15}
    assert sum("decimal digits" in row["reason"] for row in rows) == 5
    assert len({(row["src"], row["dst"], row["mode"]) for row in rows}) == 149


@pytest.mark.parametrize("name", data.CAST_FILES)
def test_cast_rows(name):
    wrong = []
    for code, src, dst, mode, sat, want, row in data.cast_cases(name):
        got = cast(code, src, dst, mode, sat)
        table = tables.cast_codes(np.array([code], np.uint64), src, dst, mode, sat)[0]
        if got != want or table != want:
            wrong.append(f"{row} {mode} sat={sat}: {got:#x} and {table:#x}, want {want:#x}")
    assert not wrong, "\n".join(wrong[:20])


def test_deq_rows():
    for row in data.rows("deq"):
        scale = data.code_of(row["scale"], "f16")
        for sat in (False, True):
            want = data.code_of(row["on" if sat else "off"], "f16")
            assert chains.deq(int(row["src"]), scale, sat) == want, row


def test_integral_f32_rows():
    for row in data.rows("integral_f32"):
        code = data.code_of(row["input"], "f32")
        assert chains.integral_f32(code, row["mode"]) == data.code_of(row["result"], "f32"), row


def test_pypto_rows():
    for row in data.rows("pypto_examples"):
        src, dst = row["src"], row["dst"]
        code = data.code_of(row["input"], src)
        got = chains.pypto_edge(code, src, dst, row["mode"], row["satmode"] == "ON")
        assert got == data.code_of(row["result"], dst), row


def test_rows_not_followed_differ_and_are_what_the_oracle_says():
    for row in data.rows("boundary_not_followed"):
        code = data.code_of(row["input"], row["src"])
        ours = data.code_of(row["ours"], row["dst"])
        assert data.code_of(row["document"], row["dst"]) != ours, row
        assert row["reason"], row
        for mode in data.modes_of(row["mode"]):
            assert cast(code, row["src"], row["dst"], mode, row["satmode"] == "on") == ours, row


def test_golden_rows_are_not_repeated():
    for name in (*data.CAST_FILES, "deq", "integral_f32", "pypto_examples"):
        rows = Counter(tuple(row.values()) for row in data.rows(name))
        assert max(rows.values()) == 1, name


def test_fp4_rows_list_every_code():
    for fmt in ("e2m1", "e1m2"):
        codes = [int(r["input"], 16) for r in data.rows("fp4") if r["src"] == fmt]
        assert set(codes) == set(range(16))
        assert not any(isinstance(decode(code, fmt), Special) for code in set(codes) - {8})


def test_pypto_support_tables_are_whole():
    rows = data.rows("pypto_cast_support")
    assert Counter(row["soc"] for row in rows) == {"A2A3": 25, "950PR": 46}
    assert len({(row["soc"], row["src"], row["dst"]) for row in rows}) == 71
    for row in rows:
        modes = row["modes"].split("|") if row["modes"] else []
        assert set(modes) <= {"RINT", "ROUND", "FLOOR", "CEIL", "TRUNC", "ODD"}
        assert row["default"] in (modes or [""]), row
        assert ("ODD" in modes) == ((row["src"], row["dst"]) == ("FP32", "FP16")), row


def test_ascendc_support_tables_are_whole():
    rows = data.rows("ascendc_support")
    assert Counter(row["table"] for row in rows) == {"A2A3": 25, "950-memory": 64, "950-reg": 56}
    assert len({(row["table"], row["src"], row["dst"]) for row in rows}) == 145
    for row in rows:
        assert {row["src"], row["dst"]} <= FORMATS.keys() | COMPLEX, row
        assert (row["satmode"] in ("yes", "no")) == (row["table"] == "950-reg"), row
        assert bool(row["modes"]) != bool(row["note"]), row


def test_the_precision_page_shows_only_pairs_of_the_950_memory_table():
    shown = {(row["src"], row["dst"]) for row in data.rows("ascendc_precision_examples")}
    table = {
        (row["src"], row["dst"])
        for row in data.rows("ascendc_support")
        if row["table"] == "950-memory"
    }
    without_number = {("s32", "f16"), ("c32", "c64"), ("c64", "c64"), ("c64", "c32")}
    assert table - shown == without_number
    assert shown <= table
