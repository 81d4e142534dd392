"""aclnnCast, chain by chain, against the paths the documents give."""

import jax
import numpy as np
import pytest

import npusim as npu
from npusim import Target
from tests.casting import common
from tests.casting.common import COMPLEX_PARTS, SHORT, array_of, words_of
from tests.helpers import same_words
from tests.oracle import chains, tables
from tests.oracle.formats import FORMATS, FloatFormat

NAME = {short: name for name, short in SHORT.items()}
PATHS = {"A2A3": chains.path_a2a3, "950PR": chains.path_950}
pytestmark = pytest.mark.usefixtures("strict_promotion")


def declared(resolved, device_saturates):
    """The steps that resolve_cast tells, as the oracle runs them."""
    for step in resolved.steps:
        name = NAME[str(step.dst)]
        if step.through_bits:
            yield f"s{step.through_bits}", step.mode.short, True
        yield name, step.mode.short, step.saturate


@pytest.mark.parametrize("overflow", ["INF_NAN", "SATURATE"])
@pytest.mark.parametrize("soc", PATHS)
def test_every_pair(soc, overflow):
    target = Target(soc, "aclnn", overflow)
    device = overflow == "SATURATE"
    given = 0
    with jax.enable_x64(True), jax.disable_jit():
        for row in npu.supported_casts(target):
            src, dst = NAME[str(row.src)], NAME[str(row.dst)]
            if {src, dst} & set(COMPLEX_PARTS):
                continue  # test_complex.py
            if device and not isinstance(FORMATS[dst], FloatFormat):
                continue  # the overflow mode bears on floats alone
            codes = common.probe(src, dst)
            got = words_of(npu.cast(array_of(codes, src), SHORT[dst], target=target))
            try:
                path = PATHS[soc](src, dst)
                given += 1
            except LookupError:
                path = tuple(declared(npu.resolve_cast(row.src, row.dst, target=target), device))
            want = common.along(codes, src, path, device)
            same_words(codes, got, want, f"{src} -> {dst} on {target}: {path}")
    assert given > (3 if device else 15)


def test_paths_that_round_twice_differ_from_one_rounding():
    """Values chosen so that a single rounding gives another code."""
    cases = {
        ("950PR", "f32", "e2m1"): 0x3E800001,  # just above 1/4, the middle of 0 and 1/2
        ("950PR", "f16", "e1m2"): 0x3001,  # just above 1/8, likewise
        ("950PR", "s64", "bf16"): (1 << 32) + (1 << 24) + 1,  # a tie after float32
        ("950PR", "s32", "bf16"): (1 << 30) + (1 << 22) + 1,
        ("950PR", "f32", "s8"): 0x4F000000,  # 2**31: int32 saturates, its low byte is -1
        ("950PR", "f16", "u8"): 0xFBFF,  # -65504: low byte of the int32
        ("A2A3", "s32", "s8"): 2049,  # half has no odd numbers there
    }
    for (soc, src, dst), code in cases.items():
        codes = np.array([code], tables.container(src))
        target = Target(soc, "aclnn")
        with jax.enable_x64(True):
            got = words_of(npu.cast(array_of(codes, src), SHORT[dst], target=target))
        steps = npu.resolve_cast(SHORT[src], SHORT[dst], target=target)
        want = common.along(codes, src, tuple(declared(steps, False)), False)
        same_words(codes, got, want, f"{src} -> {dst}")
        mode = npu.resolve_cast(SHORT[src], SHORT[dst], target=target).mode.short
        assert tables.cast_codes(codes, src, dst, mode, True) != want, (src, dst)


def test_float_to_eight_bits_keeps_the_low_byte_of_a_saturated_int32():
    x = np.array([300.0, -300.0, 3e9, -3e9, np.inf, -np.inf, np.nan, -0.5], np.float32)
    for soc in PATHS:
        got = npu.cast(x, "int8", target=Target(soc, "aclnn"))
        assert got.tolist() == [44, -44, -1, 0, -1, 0, 0, 0]
    got = npu.cast(x[:2], "uint8", target=Target("A2A3", "aclnn"))
    assert got.tolist() == [44, 212]


def test_int32_to_int8_on_a2_goes_through_half():
    x = np.array([2047, 2048, 2049, 2051, 65519, -2049], np.int32)
    got = npu.cast(x, "int8", target=Target("A2A3", "aclnn"))
    halves = np.array([2047, 2048, 2048, 2052, 65504, -2048])
    assert got.tolist() == halves.astype(np.int8).tolist()


@pytest.mark.parametrize("argument", [{"mode": "RINT"}, {"satmode": "ON"}])
def test_mode_and_saturation_are_refused(argument):
    with pytest.raises(npu.UnsupportedCastError, match="Leave"):
        npu.cast(np.float32([1]), "half", target=Target("950PR", "aclnn"), **argument)


def test_a_chain_through_int64_needs_no_x64():
    """The operator passes uint32 through int64, which is exact, so one rounding is all there is."""
    x = np.array([1, 2**32 - 1], np.uint32)
    assert npu.cast(x, "fp32", target=Target("950PR", "aclnn")).tolist() == [1, 2**32]
