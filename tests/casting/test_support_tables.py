"""The package's support tables against the vendor's, row by row."""

import pytest

import npusim as npu
from npusim import Target
from tests.casting.common import LAB, SHORT, TARGETS, ascendc_rows, pypto_rows
from tests.numerics.names import ORACLE
from tests.oracle import chains
from tests.oracle.formats import FORMATS

NAME = {short: name for name, short in SHORT.items()}


def rows_of(target):
    return [(NAME[str(r.src)], NAME[str(r.dst)], r) for r in npu.supported_casts(target)]


@pytest.mark.parametrize("table", TARGETS)
def test_ascendc_table(table):
    target = TARGETS[table]
    want = {(src, dst): (modes, sat, note) for src, dst, modes, sat, note in ascendc_rows(table)}
    got = rows_of(target)
    assert [(src, dst) for src, dst, _ in got] == list(want)
    for src, dst, row in got:
        modes, satmode, note = want[src, dst]
        listed = [m.short for m in row.modes]
        assert set(listed) == set(modes), (src, dst)
        assert (row.kind == "deq") == (note == "deq"), (src, dst)
        assert (row.kind == "integral") == (src == dst), (src, dst)
        if satmode:
            assert row.takes_satmode == (satmode == "yes"), (src, dst)
        takes_none = "NONE" in modes or row.kind == "deq"
        assert (row.default is not None) == takes_none, (src, dst)
        assert row.target == target
        assert row.grade == "documented"
        assert row.source


@pytest.mark.parametrize("soc", ["A2A3", "950PR"])
def test_pypto_table(soc):
    want = {(src, dst): (modes, default) for src, dst, modes, default, _ in pypto_rows(soc)}
    got = rows_of(Target(soc, "pypto"))
    assert [(src, dst) for src, dst, _ in got] == list(want)
    for src, dst, row in got:
        modes, default = want[src, dst]
        assert {m.short for m in row.modes} == set(modes), (src, dst)
        assert row.default.short == (default or "RINT"), (src, dst)
        assert (row.kind == "integral") == (src == dst), (src, dst)
        assert (row.kind == "deq") == ((src, dst) == ("s32", "f16")), (src, dst)
        assert row.inf_wraps == ((src, dst) in chains.PYPTO_EDGE_PAIRS), (src, dst)


def paths(path):
    """The pairs whose path the documents give."""
    out = set()
    for src in FORMATS:
        for dst in FORMATS:
            try:
                path(src, dst)
            except LookupError:
                continue
            if src != dst and not {src, dst} & {"hf32_10", "hf32_11"}:
                out.add((src, dst))
    return out


def test_aclnn_has_every_pair_with_a_documented_path():
    table = {(src, dst) for src, dst, _ in rows_of(Target("A2A3", "aclnn"))}
    assert paths(chains.path_a2a3) <= table
    table = {(src, dst) for src, dst, _ in rows_of(Target("950PR", "aclnn"))}
    missing = paths(chains.path_950) - table
    # The operator takes neither int4 nor e8m0 as a source; the oracle's rule for bool and for
    # integers is wider than its list of types.
    assert all({"s4", "e8m0"} & set(pair) for pair in missing), sorted(missing)


def test_aclnn_rows_take_no_mode():
    for soc in ("A2A3", "950PR"):
        for _, _, row in rows_of(Target(soc, "aclnn")):
            assert row.modes == ()
            assert row.default is None
            assert row.steps


def test_the_laboratory_has_every_pair():
    rows = npu.supported_casts(LAB)
    pairs = {(str(r.src), str(r.dst)) for r in rows}
    assert len(pairs) == len(rows)
    every = {*ORACLE, "complex32", "complex64", "complex128"}
    assert pairs == {(a, b) for a in every for b in {*every, "hf32"} if a != b}
    hybrid = {(str(r.src), str(r.dst)) for r in rows if "HYBRID" in {m.short for m in r.modes}}
    assert hybrid == {("fp32", "hif8"), ("fp16", "hif8")}
    assert all(len(r.modes) in (6, 7) for r in rows)
