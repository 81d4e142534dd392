"""What the entry points take, refuse, fall back to, warn of and tell."""

import itertools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import npusim as npu
from npusim import CastMode, Target
from tests.casting import common
from tests.casting.common import LAB, SHORT, TARGETS, array_of, ascendc_rows, pypto_rows, words_of
from tests.helpers import same_words
from tests.oracle import tables
from tests.oracle.formats import FORMATS, IntFormat

MODES = tuple(m.short for m in CastMode)
PYPTO = {soc: Target(soc, "pypto") for soc in ("A2A3", "950PR")}


def what_runs(src, dst, modes, default, asked):
    """The mode that pypto runs, by its page."""
    if asked == "NONE":
        return default or "RINT"
    if asked in modes:
        return asked
    if dst == "hif8":
        return "ROUND"
    to_int = isinstance(FORMATS[dst], IntFormat) and not isinstance(FORMATS[src], IntFormat)
    return "TRUNC" if to_int else "RINT"


def between_integers(src, dst):
    return all(isinstance(FORMATS[name], IntFormat) for name in (src, dst))


@pytest.mark.parametrize("soc", PYPTO)
def test_pypto_tells_what_mode_runs(soc):
    for src, dst, modes, default, note in pypto_rows(soc):
        for asked in MODES:
            resolved = npu.resolve_cast(SHORT[src], SHORT[dst], asked, target=PYPTO[soc])
            assert resolved.requested.short == asked
            if src == dst and asked == "NONE":
                assert resolved.steps == ()
                continue
            assert len(resolved.steps) == 1
            want = what_runs(src, dst, modes, default, asked)
            assert resolved.mode.short == want, (src, dst, asked)
            falls_back = asked not in ("NONE", want) and not note.startswith("deq")
            falls_back = falls_back and not between_integers(src, dst)  # nothing is rounded
            assert resolved.fallback == falls_back, (src, dst, asked)
            assert resolved.grade == "documented"
            assert resolved.source == "pypto.cast page"


@pytest.mark.parametrize("soc", [pytest.param("A2A3", marks=pytest.mark.slow), "950PR"])
def test_a_fallback_is_warned_of_exactly_where_it_changes_the_mode(soc):
    for src, dst, modes, default, note in pypto_rows(soc):
        if {src, dst} & common.WIDE:
            continue
        x = array_of(common.probe(src, dst), src)
        for asked in ("NONE", "FLOOR", "HYBRID"):
            with warnings.catch_warnings(record=True) as caught, jax.disable_jit():
                warnings.simplefilter("always")
                npu.cast(x, SHORT[dst], asked, target=PYPTO[soc])
            runs = what_runs(src, dst, modes, default, asked)
            exact = "widening" in note and (src, dst) != ("s16", "u32")  # negatives are clamped
            exact = exact or src in ("s4", "e2m1", "e1m2") or (src, dst) == ("s16", "f32")
            quiet = exact or note.startswith("deq") or asked in ("NONE", runs)
            quiet = quiet or between_integers(src, dst)
            kinds = [w.category for w in caught]
            assert kinds == ([] if quiet else [npu.CastFallbackWarning]), (src, dst, asked)
            if caught:
                assert asked in str(caught[0].message)
                assert runs in str(caught[0].message)
                assert caught[0].filename == __file__


def test_hif8_rounds_ties_away_whatever_is_asked():
    codes = common.probe("f32", "hif8")
    want = tables.cast_codes(codes, "f32", "hif8", "ROUND", False)
    for asked in MODES:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", npu.CastFallbackWarning)
            got = npu.cast(array_of(codes, "f32"), "hif8", asked, target=PYPTO["950PR"])
        same_words(codes, words_of(got), want, asked)


def test_pypto_runs_the_five_modes_for_fp8_and_notes_it():
    resolved = npu.resolve_cast("float", "fp8_e4m3", "FLOOR", target=PYPTO["950PR"])
    assert resolved.mode is CastMode.CAST_FLOOR
    assert any("RINT alone" in note for note in resolved.notes)


@pytest.mark.parametrize("table", TARGETS)
def test_ascendc_refuses_other_modes(table):
    target = TARGETS[table]
    for src, dst, modes, _, note in ascendc_rows(table):
        for asked in MODES:
            legal = asked in modes or note == "deq" or (not modes and asked == "NONE")
            if legal:
                npu.resolve_cast(SHORT[src], SHORT[dst], asked, target=target)
                continue
            with pytest.raises(npu.UnsupportedCastError) as error:
                npu.resolve_cast(SHORT[src], SHORT[dst], asked, target=target)
            text = str(error.value)
            assert f"mode {asked}" in text
            assert all(mode in text.split("Allowed: ")[1] for mode in modes), text


EVERY_TARGET = (*TARGETS.values(), *PYPTO.values(), Target("A2A3", "aclnn"), Target(api="aclnn"))


@pytest.mark.parametrize("target", EVERY_TARGET, ids=str)
def test_other_pairs_are_refused_and_the_error_names_who_has_them(target):
    listed = {(str(r.src), str(r.dst)) for r in npu.supported_casts(target)}
    have = {
        other: {(str(r.src), str(r.dst)) for r in npu.supported_casts(other)}
        for other in EVERY_TARGET
    }
    names = [name for name in SHORT.values()]
    for src, dst in itertools.permutations(names, 2):
        if (src, dst) in listed:
            continue
        with pytest.raises(npu.UnsupportedCastError) as error:
            npu.resolve_cast(src, dst, target=target)
        text = str(error.value)
        assert f"{src} -> {dst} on {target}" in text
        assert "Target(api='numerics')" in text
        owners = [other for other, pairs in have.items() if (src, dst) in pairs]
        for owner in owners:
            assert str(owner) in text
        assert ("The pair exists on" in text) == bool(owners)


def test_a_refused_pair_is_refused_by_cast_as_well():
    with pytest.raises(npu.UnsupportedCastError, match="A2A3 pypto"):
        npu.cast(jnp.ones(2, jnp.float16), "int4", target=PYPTO["950PR"])
    with pytest.raises(npu.UnsupportedCastError, match="Allowed: ROUND, HYBRID"):
        npu.cast(jnp.ones(2), "hif8", "RINT", target=TARGETS["950-memory"])


def test_hybrid_in_the_laboratory_exists_for_two_pairs():
    for src in ("fp32", "fp16"):
        assert npu.resolve_cast(src, "hif8", "HYBRID", target=LAB).mode is CastMode.CAST_HYBRID
    for src, dst in (("bf16", "hif8"), ("fp32", "fp8_e4m3"), ("int8", "hif8")):
        with pytest.raises(npu.UnsupportedCastError, match="HYBRID"):
            npu.resolve_cast(src, dst, "HYBRID", target=LAB)


def test_defaults_of_the_entry_points():
    x = jnp.array([2.5, 300.0, -300.0], jnp.float32)
    assert npu.cast(x, "int32").tolist() == [2, 300, -300]  # pypto: TRUNC
    assert npu.cast(x, "int16").tolist() == [2, 300, -300]
    assert npu.cast(x.astype("float16"), "int8").tolist() == [2, 44, -44]  # pypto: OFF
    half = x.astype("float16")
    ascendc = TARGETS["A2A3"]
    assert npu.cast(half, "int8", target=ascendc).tolist() == [2, 127, -128]  # RINT, ON
    assert npu.cast(x + 1, "int8", target=LAB).tolist() == [4, 127, -128]  # RINT, ON
    assert npu.cast(jnp.array([3.5]), "int8", target=LAB).tolist() == [4]


def test_infinities_of_pypto_with_saturation_off():
    """+inf to -1 and -inf to 0 for three pairs, MAX and MIN for the others and with ON."""
    inf = np.array([np.inf, -np.inf, np.nan])
    for soc, target in PYPTO.items():
        for src, dst, *_ in pypto_rows(soc):
            fmt = FORMATS[dst]
            if not isinstance(fmt, IntFormat) or src not in ("f32", "f16", "bf16") or dst == "s64":
                continue
            x = jnp.asarray(np.resize(inf, common.SIZE), npu.dtype(SHORT[src]).jax_dtype)
            ends = [fmt.max_value, fmt.min_value, 0]
            edge = (src, dst) in {("f32", "s16"), ("f16", "s16"), ("f16", "s8")}
            for mode, on in (("TRUNC", False), ("RINT", False), ("RINT", True)):
                with jax.disable_jit():
                    got = npu.cast(x, SHORT[dst], mode, on, target=target)
                got = got.decode() if isinstance(got, npu.NpuArray) else got
                assert got[:3].tolist() == ([-1, 0, 0] if edge and not on else ends), (src, dst, on)


def test_bf16_to_fp16_saturates_by_satmode_under_pypto():
    x = jnp.array([1e9, -1e9, np.inf, np.nan, 1.0], jnp.bfloat16)
    off = npu.cast(x, "half", target=PYPTO["950PR"])
    on = npu.cast(x, "half", satmode="ON", target=PYPTO["950PR"])
    assert off.tolist()[:3] == [np.inf, -np.inf, np.inf]
    assert np.isnan(off[3])
    assert on.tolist() == [65504, -65504, 65504, 0, 1]


def test_float_overflow_of_pypto_is_the_device_mode_not_satmode():
    x = jnp.array([1e9, -1e9, np.inf, np.nan], jnp.float32)
    for soc, on in itertools.product(PYPTO, (False, True)):
        keep = npu.cast(x, "half", satmode=on, target=Target(soc, "pypto"))
        assert keep.tolist()[:3] == [np.inf, -np.inf, np.inf]
        clamp = npu.cast(x, "half", satmode=on, target=Target(soc, "pypto", "SATURATE"))
        assert clamp.tolist() == [65504, -65504, 65504, 0]


def test_saturating_overflow_on_950_is_hypothetical():
    for api in ("pypto", "aclnn"):
        target = Target("950PR", api, "SATURATE")
        assert npu.resolve_cast("fp32", "fp16", target=target).grade == "hypothetical"
        target = Target("A2A3", api, "SATURATE")
        assert npu.resolve_cast("fp32", "fp16", target=target).grade != "hypothetical"


def test_e8m0_has_no_saturation_choice_on_the_chip():
    """NaN stays NaN on 950 whatever is asked; the laboratory turns it into 0 if asked."""
    x = npu.from_codes(np.array([0xFF, 0x00], np.uint8), "fp8_e8m0")
    for on in (False, True):
        got = npu.cast(x, "bf16", satmode=on, target=TARGETS["950-reg"])
        assert words_of(got).tolist() == [0x7FFF, 0x0040]
    assert words_of(npu.cast(x, "bf16", satmode="ON", target=LAB)).tolist() == [0, 0x0040]


def test_same_type_casts():
    x = jnp.array([1.5, -0.0, np.nan], jnp.float16)
    for target in (*PYPTO.values(), LAB, Target(api="aclnn")):
        same_words(words_of(x), words_of(npu.cast(x, "half", target=target)), words_of(x), target)
    y = jnp.array([1.5, -0.25, 2.5], jnp.float32)
    for target in PYPTO.values():
        assert npu.cast(y, "fp32", target=target).tolist() == y.tolist()  # NONE
        assert npu.cast(y, "fp32", "RINT", target=target).tolist() == [2, 0, 2]
    assert npu.cast(y, "fp32", "RINT", target=LAB).tolist() == y.tolist()


def test_pypto_limits_its_input_and_the_others_do_not():
    for shape in ((), (0,), (1, 1, 1, 1, 1)):
        x = jnp.zeros(shape, jnp.float32)
        with pytest.raises(npu.InputError, match="rank 1 to 4"):
            npu.cast(x, "half", target=PYPTO["950PR"])
        for target in (LAB, TARGETS["A2A3"], Target(api="aclnn")):
            mode = "RINT" if target.api == "ascendc" else None
            assert npu.cast(x, "half", mode, target=target).shape == shape


def test_deqscale_where_it_has_no_use_is_refused():
    with pytest.raises(npu.InputError, match="deqscale"):
        npu.cast(jnp.ones(2), "half", deqscale=0.5)


def test_deqscale_broadcasts_and_is_rounded_to_half():
    x = np.array([[1000000, 1000000], [100, 200]], np.int32)
    scale = np.array([0.01, 0.1])
    got = npu.cast(x, "half", deqscale=scale, target=PYPTO["A2A3"])
    want = np.stack([common.deq(x[:, i], code, False) for i, code in enumerate((0x211F, 0x2E66))])
    same_words(x.view(np.uint32), words_of(got), want.T, "deq")
    traced = jax.jit(lambda s: npu.cast(x, "half", deqscale=s, target=PYPTO["A2A3"]))(scale)
    same_words(x.view(np.uint32), words_of(traced), want.T, "deq, traced scale")


def test_a_pair_that_another_level_rounds_is_not_passed_through():
    """950's Reg Cast has no float to float; returning the input would ignore the mode."""
    with pytest.raises(npu.UnsupportedCastError, match="950PR ascendc memory"):
        npu.cast(
            np.float32([0.5]), "fp32", "RINT", target=npu.Target("950PR", "ascendc", level="reg")
        )
