"""Snapshot of the public surface: a name that comes or goes is a decision, made here."""

import types

import pytest

import npusim
from npusim import casting

# Room names (lazily loaded ones too) are in test_layers.py.
NPUSIM = """
    AclnnError CarrierError CastFallbackWarning CastMode CastSpec ConfigError
    ConversionError DT_BF16 DT_BOOL DT_COMPLEX128 DT_COMPLEX32 DT_COMPLEX64 DT_DOUBLE
    DT_FP16 DT_FP32 DT_FP4_E1M2X2 DT_FP4_E2M1X2 DT_FP8E4M3 DT_FP8E5M2 DT_FP8E8M0 DT_HF32
    DT_HF8 DT_INT16 DT_INT32 DT_INT4 DT_INT64 DT_INT8 DT_UINT16 DT_UINT32 DT_UINT64
    DT_UINT8 DataType FormatParams InputError NpuArray NpusimError OverflowMode Policy
    PolicyError PromotionError Rule SaturationMode SoC Target TracedValueError
    UnknownNameError UnsupportedCastError UnusedRuleWarning X64RequiredError array
    can_cast cast dtype fake_cast from_codes grad_cast preset presets report resolve_cast
    result_type simulate supported_casts to_codes
"""

CASTING = """
    Decision FormatParams NpuArray ResolvedCast Step SupportedCast array cast fake_cast
    from_codes grad_cast provenance resolve_cast supported_casts to_codes
"""


def is_room(name):
    lazy = npusim._LAZY.get(name, "") is None
    return lazy or isinstance(vars(npusim).get(name), types.ModuleType)


def test_names_of_npusim():
    internal = {"Any", "importlib"}
    public = {name for name in dir(npusim) if not name.startswith("_")} - internal
    assert sorted(name for name in public if not is_room(name)) == NPUSIM.split()


def test_names_of_casting():
    assert sorted(casting.__all__) == CASTING.split()
    assert all(hasattr(casting, name) for name in CASTING.split())


@pytest.mark.parametrize("name", NPUSIM.split())
def test_every_name_is_there(name):
    assert getattr(npusim, name) is not None


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        npusim.nonsense  # noqa: B018


def test_every_public_function_and_class_says_what_it_does():
    for name in (*NPUSIM.split(), *("casting." + n for n in CASTING.split())):
        value = npusim
        for part in name.split("."):
            value = getattr(value, part)
        if not name.startswith("DT_"):
            assert value.__doc__, name
