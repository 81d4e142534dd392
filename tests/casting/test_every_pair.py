"""Every pair of every table through npu.cast, in every mode it takes, against the oracle.

The modes run operation by operation, which needs no compilation; the default of every pair of
pypto runs compiled as well, of Ascend C in the slow suite. That compiled and eager bits agree for
every mode is in tests/transforms.
"""

import jax
import pytest

import npusim as npu
from npusim import Target
from tests.casting import common
from tests.casting.common import TARGETS, ascendc_rows, pypto_rows, words_of, x64_for
from tests.helpers import same_words
from tests.oracle.formats import FORMATS, CodeFormat, FloatFormat

pytestmark = pytest.mark.usefixtures("strict_promotion")


def check(codes, src, dst, want, what, **arguments):
    got = npu.cast(common.array_of(codes, src), common.SHORT[dst], **arguments)
    same_words(codes, words_of(got), want, what)


# A2/A3's pairs are among those of the 950's memory level and of pypto: in the slow suite.
@pytest.mark.parametrize(
    "table", [pytest.param("A2A3", marks=pytest.mark.slow), "950-memory", "950-reg"]
)
def test_ascendc(table):
    target = TARGETS[table]
    for src, dst, modes, _, _ in ascendc_rows(table):
        if "c64" in (src, dst):
            continue  # test_complex.py
        codes = common.probe(src, dst)
        with x64_for(src, dst):
            for mode in modes or (None,):
                rule = "RINT" if mode in (None, "NONE") else mode
                for on in (True, False):
                    want = common.ascendc(codes, src, dst, rule, on)
                    what = f"{src} -> {dst} {mode} {on} on {target}"
                    with jax.disable_jit():
                        check(codes, src, dst, want, what, mode=mode, satmode=on, target=target)


@pytest.mark.slow
def test_ascendc_compiled():
    """By default, or in the last mode where there is no default."""
    target = TARGETS["950-memory"]
    for src, dst, modes, _, note in ascendc_rows("950-memory"):
        if "c64" in (src, dst):
            continue
        codes = common.probe(src, dst)
        with x64_for(src, dst):
            if "NONE" in modes or note == "deq":  # the default mode, and saturation by default
                want = common.ascendc(codes, src, dst, "RINT", True)
                check(codes, src, dst, want, f"{src} -> {dst} by default", target=target)
                continue
            mode = modes[-1] if modes else None
            want = common.ascendc(codes, src, dst, mode or "RINT", False)
            what = f"{src} -> {dst} {mode} compiled"
            check(codes, src, dst, want, what, mode=mode, satmode=False, target=target)


@pytest.mark.parametrize("soc", ["A2A3", "950PR"])
def test_pypto(soc):
    target = Target(soc, "pypto")
    for src, dst, modes, default, _ in pypto_rows(soc):
        codes = common.probe(src, dst)
        with x64_for(src, dst):
            for mode in modes or (None,):
                for on in (True, False):
                    want = common.pypto(codes, src, dst, mode or "RINT", on)
                    what = f"{src} -> {dst} {mode} {on} on {target}"
                    with jax.disable_jit():
                        check(codes, src, dst, want, what, mode=mode, satmode=on, target=target)
            mode = default or "RINT"  # but NONE returns float32 as it is
            want = codes if src == dst else common.pypto(codes, src, dst, mode, False)
            check(codes, src, dst, want, f"{src} -> {dst} by default on {target}", target=target)


@pytest.mark.parametrize("soc", ["A2A3", "950PR"])
def test_pypto_on_a_device_that_saturates(soc):
    """The overflow mode bears on float destinations alone, and on all of them."""
    target = Target(soc, "pypto", "SATURATE")
    for src, dst, modes, _, _ in pypto_rows(soc):
        if not isinstance(FORMATS[dst], FloatFormat | CodeFormat):
            step, saturating = (
                npu.resolve_cast(common.SHORT[src], common.SHORT[dst], target=t).steps[0]
                for t in (Target(soc, "pypto"), target)
            )
            assert step == saturating, (src, dst)
            continue
        codes = common.probe(src, dst)
        with x64_for(src, dst), jax.disable_jit():
            for mode in modes or (None,):
                want = common.pypto(codes, src, dst, mode or "RINT", False, True)
                what = f"{src} -> {dst} {mode} on {target}"
                check(codes, src, dst, want, what, mode=mode, target=target)
