"""Every golden row of the vendor pages through npu.cast, under the entry point it belongs to."""

from collections import Counter, defaultdict

import jax
import numpy as np
import pytest

import npusim as npu
from npusim import Target
from tests.casting import common
from tests.casting.common import (
    LAB,
    SHORT,
    TARGETS,
    array_of,
    ascendc_rows,
    pypto_rows,
    words_of,
    x64_for,
)
from tests.golden import data
from tests.golden.test_golden_oracle import printed_equal
from tests.helpers import same_words
from tests.oracle import chains, tables
from tests.oracle.formats import FORMATS, IntFormat, decode

pytestmark = pytest.mark.usefixtures("strict_promotion")
BOUNDARIES = tuple(name for name in data.CAST_FILES if name.startswith("boundary"))


def run(codes, src, dst, **arguments):
    """Codes of one cast; padded, so that shapes repeat and operations compile once."""
    size = -(-len(codes) // common.SIZE) * common.SIZE
    padded = np.resize(np.array(codes, tables.container(src)), size)
    with x64_for(src, dst), jax.disable_jit():
        return words_of(npu.cast(array_of(padded, src), SHORT[dst], **arguments))[: len(codes)]


def check_groups(groups):
    """Groups: (src, dst, arguments as items) to a list of (code, wanted code)."""
    assert groups
    for (src, dst, items), cases in groups.items():
        codes, want = zip(*cases, strict=True)
        got = run(codes, src, dst, **dict(items))
        want = np.array(want, tables.container(dst))
        codes = np.array(codes, tables.container(src))
        same_words(codes, got, want, f"{src} -> {dst} {dict(items)}")


def arguments(mode, sat, target):
    return (("mode", mode), ("satmode", sat), ("target", target))


@pytest.mark.parametrize("name", data.CAST_FILES)
def test_cast_rows_in_the_laboratory(name):
    groups = defaultdict(list)
    for code, src, dst, mode, sat, want, _ in data.cast_cases(name):
        groups[src, dst, arguments(mode, sat, LAB)].append((code, want))
    check_groups(groups)


@pytest.mark.parametrize("table", TARGETS)
def test_boundary_rows_on_their_chips(table):
    modes = {(src, dst): modes for src, dst, modes, _, _ in ascendc_rows(table)}
    groups = defaultdict(list)
    for name in BOUNDARIES:
        for code, src, dst, mode, sat, want, row in data.cast_cases(name):
            chip = row["chips"] == "all" or table.startswith(row["chips"])
            if chip and mode in modes.get((src, dst), ()):
                groups[src, dst, arguments(mode, sat, TARGETS[table])].append((code, want))
            elif chip and modes.get((src, dst)) == ("NONE",) and mode == "RINT":
                groups[src, dst, arguments(None, sat, TARGETS[table])].append((code, want))
    check_groups(groups)
    assert sum(map(len, groups.values())) > 200


@pytest.mark.parametrize("soc", ["A2A3", "950PR"])
def test_boundary_rows_under_pypto(soc):
    """Integers by satmode, floats by the device's overflow mode; infinities may be peculiar."""
    modes = {(src, dst): modes for src, dst, modes, _, _ in pypto_rows(soc)}
    groups = defaultdict(list)
    for name in BOUNDARIES:
        for code, src, dst, mode, sat, want, row in data.cast_cases(name):
            if row["chips"] not in ("all", soc.removesuffix("PR")):
                continue
            if mode not in modes.get((src, dst), ()) or src == dst:
                continue
            if isinstance(FORMATS[dst], IntFormat):
                edge = (src, dst) in chains.PYPTO_EDGE_PAIRS and row["input"] in ("inf", "-inf")
                if not edge or sat:
                    groups[src, dst, arguments(mode, sat, Target(soc, "pypto"))].append(
                        (code, want)
                    )
            else:
                target = Target(soc, "pypto", "SATURATE" if sat else "INF_NAN")
                groups[src, dst, arguments(mode, False, target)].append((code, want))
    check_groups(groups)


def test_precision_page_134_results_followed_15_contradicted():
    """All 149 printed results at the default saturation of the page, on the 950."""
    modes = {(src, dst): modes for src, dst, modes, _, _ in ascendc_rows("950-memory")}
    counts = Counter()
    groups = defaultdict(list)
    for row in data.rows("ascendc_precision_examples"):
        src, dst = row["src"], row["dst"]
        assert (src, dst) in modes
        if not row["exact"]:  # the source has no such value
            with pytest.raises(ValueError, match="not a value"):
                data.code_of(row["input"], src)
            counts[row["follows"]] += 1
            continue
        mode = row["mode"] if row["mode"] in modes[src, dst] else None
        groups[src, dst, mode].append((data.code_of(row["input"], src), row))
    for (src, dst, mode), cases in groups.items():
        got = run([c for c, _ in cases], src, dst, mode=mode, target=TARGETS["950-memory"])
        for code, (_, row) in zip(got, cases, strict=True):
            exact = decode(int(code), dst)
            assert str(exact) == row["exact"], row
            assert printed_equal(row["document"], exact) == (row["follows"] == "yes"), row
            counts[row["follows"]] += 1
    assert counts == {"yes": 134, "no": 15}


def test_pypto_examples():
    groups = defaultdict(list)
    for row in data.rows("pypto_examples"):
        src, dst = row["src"], row["dst"]
        case = data.code_of(row["input"], src), data.code_of(row["result"], dst)
        for soc in ("A2A3", "950PR"):
            if (src, dst) in {pair[:2] for pair in pypto_rows(soc)}:
                target = Target(soc, "pypto")
                pair = (src, dst) == ("s64", "s32")  # takes no mode
                mode = None if pair else row["mode"]
                groups[src, dst, arguments(mode, row["satmode"], target)].append(case)
                if row["mode"] == "TRUNC":  # the default of float to integer
                    groups[src, dst, arguments(None, row["satmode"], target)].append(case)
    check_groups(groups)


def test_the_page_opens_with_300():
    x = np.array([300, -300, 50], np.float16)
    assert npu.cast(x, npu.DT_INT8, satmode="OFF").tolist() == [44, -44, 50]
    assert npu.cast(x, npu.DT_INT8, satmode="ON").tolist() == [127, -128, 50]


@pytest.mark.parametrize("soc", ["A2A3", "950PR"])
def test_deq_rows(soc):
    for row in data.rows("deq"):
        x = np.array([int(row["src"])], np.int32)
        code = data.code_of(row["scale"], "f16")
        scale = float(decode(code, "f16"))
        for sat in (False, True):
            want = np.array([data.code_of(row["on" if sat else "off"], "f16")], np.uint16)
            pypto = Target(soc, "pypto", "SATURATE" if sat else "INF_NAN")
            got = npu.cast(x, "half", target=pypto, deqscale=scale)
            same_words(x.view(np.uint32), words_of(got), want, f"{row} pypto")
            got = npu.cast(x, "half", satmode=sat, target=Target(soc, "ascendc"), deqscale=scale)
            same_words(x.view(np.uint32), words_of(got), want, f"{row} ascendc")


WITH_INTEGRAL = (
    TARGETS["A2A3"],
    TARGETS["950-memory"],
    Target("A2A3", "pypto"),
    Target("950PR", "pypto"),
)


@pytest.mark.parametrize("target", WITH_INTEGRAL, ids=str)
def test_integral_rows(target):
    groups = defaultdict(list)
    for row in data.rows("integral_f32"):
        case = data.code_of(row["input"], "f32"), data.code_of(row["result"], "f32")
        groups["f32", "f32", arguments(row["mode"], None, target)].append(case)
    check_groups(groups)


def test_rows_not_followed():
    for row in data.rows("boundary_not_followed"):
        src, dst = row["src"], row["dst"]
        ours = np.array([data.code_of(row["ours"], dst)], tables.container(dst))
        codes = np.array([data.code_of(row["input"], src)], tables.container(src))
        for mode in data.modes_of(row["mode"]):
            got = run(codes, src, dst, mode=mode, satmode=row["satmode"], target=LAB)
            if (src, dst, row["satmode"]) == ("e8m0", "bf16", "on"):
                continue  # see test_entry_points.py
            same_words(codes, got, ours, str(row))
