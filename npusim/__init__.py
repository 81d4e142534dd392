"""Bit-exact, differentiable simulation of Huawei Ascend NPU numerics in JAX.

    >>> import jax.numpy as jnp, npusim as npu
    >>> npu.cast(jnp.array([300.0, -300.0, 50.0], jnp.float16), "int8")
    Array([ 44, -44,  50], dtype=int8)

The core is here; the rooms with heavier imports (`npusim.flax`, `npusim.pypto` ...) load when
they are first used.
"""

import importlib
from typing import Any

from npusim._errors import AclnnError as AclnnError
from npusim._errors import CarrierError as CarrierError
from npusim._errors import CastFallbackWarning as CastFallbackWarning
from npusim._errors import ConfigError as ConfigError
from npusim._errors import ConversionError as ConversionError
from npusim._errors import InputError as InputError
from npusim._errors import NpusimError as NpusimError
from npusim._errors import PolicyError as PolicyError
from npusim._errors import PromotionError as PromotionError
from npusim._errors import TracedValueError as TracedValueError
from npusim._errors import UnknownNameError as UnknownNameError
from npusim._errors import UnsupportedCastError as UnsupportedCastError
from npusim._errors import UnusedRuleWarning as UnusedRuleWarning
from npusim._errors import X64RequiredError as X64RequiredError
from npusim.casting import FormatParams as FormatParams
from npusim.casting import NpuArray as NpuArray
from npusim.casting import array as array
from npusim.casting import cast as cast
from npusim.casting import fake_cast as fake_cast
from npusim.casting import from_codes as from_codes
from npusim.casting import grad_cast as grad_cast
from npusim.casting import resolve_cast as resolve_cast
from npusim.casting import supported_casts as supported_casts
from npusim.casting import to_codes as to_codes
from npusim.dtypes import DT_BF16 as DT_BF16
from npusim.dtypes import DT_BOOL as DT_BOOL
from npusim.dtypes import DT_COMPLEX32 as DT_COMPLEX32
from npusim.dtypes import DT_COMPLEX64 as DT_COMPLEX64
from npusim.dtypes import DT_COMPLEX128 as DT_COMPLEX128
from npusim.dtypes import DT_DOUBLE as DT_DOUBLE
from npusim.dtypes import DT_FP4_E1M2X2 as DT_FP4_E1M2X2
from npusim.dtypes import DT_FP4_E2M1X2 as DT_FP4_E2M1X2
from npusim.dtypes import DT_FP8E4M3 as DT_FP8E4M3
from npusim.dtypes import DT_FP8E5M2 as DT_FP8E5M2
from npusim.dtypes import DT_FP8E8M0 as DT_FP8E8M0
from npusim.dtypes import DT_FP16 as DT_FP16
from npusim.dtypes import DT_FP32 as DT_FP32
from npusim.dtypes import DT_HF8 as DT_HF8
from npusim.dtypes import DT_HF32 as DT_HF32
from npusim.dtypes import DT_INT4 as DT_INT4
from npusim.dtypes import DT_INT8 as DT_INT8
from npusim.dtypes import DT_INT16 as DT_INT16
from npusim.dtypes import DT_INT32 as DT_INT32
from npusim.dtypes import DT_INT64 as DT_INT64
from npusim.dtypes import DT_UINT8 as DT_UINT8
from npusim.dtypes import DT_UINT16 as DT_UINT16
from npusim.dtypes import DT_UINT32 as DT_UINT32
from npusim.dtypes import DT_UINT64 as DT_UINT64
from npusim.dtypes import DataType as DataType
from npusim.dtypes import dtype as dtype
from npusim.modes import CastMode as CastMode
from npusim.modes import OverflowMode as OverflowMode
from npusim.modes import SaturationMode as SaturationMode
from npusim.modes import SoC as SoC
from npusim.modes import Target as Target
from npusim.promotion import can_cast as can_cast
from npusim.promotion import result_type as result_type

__version__ = "0.1.0"

_LAZY = {
    "CastSpec": "npusim.inject",
    "Policy": "npusim.inject",
    "Rule": "npusim.inject",
    "preset": "npusim.inject",
    "presets": "npusim.inject",
    "report": "npusim.inject",
    "simulate": "npusim.inject",
    "acl": None,
    "flax": None,
    "numpy": None,
    "ops": None,
    "pypto": None,
    "training": None,
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'npusim' has no attribute {name!r}")
    home = _LAZY[name]
    if home is None:
        return importlib.import_module(f"npusim.{name}")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
