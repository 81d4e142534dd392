"""Error and warning classes, and the one helper that writes their texts.

Every message says three things: what was given, what is allowed, what to do.
"""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any


class NpusimError(Exception):
    """Base class of every error npusim raises on purpose."""


class UnknownNameError(NpusimError, ValueError):
    """A dtype, mode, SoC, entry point or option that npusim does not know."""


class UnsupportedCastError(NpusimError, ValueError):
    """A pair or mode that the chip and entry point in question do not have."""


class InputError(NpusimError, ValueError):
    """An operand whose type, shape or values do not fit the call."""


class CarrierError(NpusimError, TypeError):
    """A destination whose values the floating-point carrier cannot hold."""


class X64RequiredError(NpusimError, TypeError):
    """A 64-bit type while JAX runs with 64-bit types switched off."""


class TracedValueError(NpusimError, TypeError):
    """A traced value where a static one is needed."""


# What an aclnn call returns instead of 0, by number.
# Source: hicann/opbase include/nnopbase/opdev/op_errno.h.
ACLNN_STATUS: Mapping[int, str] = {
    161001: "ACLNN_ERR_PARAM_NULLPTR",
    161002: "ACLNN_ERR_PARAM_INVALID",
    361001: "ACLNN_ERR_RUNTIME_ERROR",
    561000: "ACLNN_ERR_INNER",
    561001: "ACLNN_ERR_INNER_INFERSHAPE_ERROR",
    561002: "ACLNN_ERR_INNER_TILING_ERROR",
    561003: "ACLNN_ERR_INNER_FIND_KERNEL_ERROR",
    561101: "ACLNN_ERR_INNER_CREATE_EXECUTOR",
    561103: "ACLNN_ERR_INNER_NULLPTR",
}


class AclnnError(NpusimError):
    """What an aclnn call reports by a status other than 0.

    Attributes:
        code: the status: 161001 for a null or destroyed handle, 161002 for a parameter, 561103
            for what fails inside the call.
    """

    code: int = 161002

    def __init__(self, text: str, *, code: int | None = None):
        super().__init__(text)
        if code is not None:
            self.code = code

    @property
    def name(self) -> str:
        """The status by name, e.g. ``ACLNN_ERR_PARAM_INVALID``."""
        return ACLNN_STATUS[self.code]


class PromotionError(AclnnError, TypeError):
    """Data types that aclnn cannot derive a common type for.

    Attributes:
        code: 161002, the parameter error that the aclnn call returns.
        operands: the data types in question.
        partners: for each of them, the data types it could be combined with.
    """

    def __init__(
        self,
        text: str,
        *,
        operands: tuple[Any, ...] = (),
        partners: Mapping[Any, tuple[Any, ...]] | None = None,
    ):
        super().__init__(text)
        self.operands = operands
        self.partners = dict(partners or {})


class ConversionError(AclnnError, TypeError):
    """A result type that aclnn does not convert to the output's data type.

    Attributes:
        code: 161002, the parameter error that the aclnn call returns.
        src: data type of the result.
        dst: data type of the output.
        allowed: the data types that ``src`` converts to.
    """

    def __init__(
        self, text: str, *, src: Any = None, dst: Any = None, allowed: tuple[Any, ...] = ()
    ):
        super().__init__(text)
        self.src, self.dst, self.allowed = src, dst, allowed


class PolicyError(NpusimError, ValueError):
    """An injection policy or rule that contradicts itself or its target."""


class ConfigError(NpusimError, ValueError):
    """A configuration file with a wrong key or value."""


class CastFallbackWarning(UserWarning):
    """The requested mode is not available for the pair; another one runs."""


class UnusedRuleWarning(UserWarning):
    """A policy rule matched no site."""


class OpaqueKernelWarning(UserWarning):
    """A kernel whose inside injection cannot see, so that no rule reaches it."""


def message(given: str, allowed: str, remedy: str) -> str:
    """Return the three-part text every npusim error carries.

    Example:
        >>> message("format 'fp9'", "bf16, fp16", "Pass one of these names.")
        "Given: format 'fp9'. Allowed: bf16, fp16. Pass one of these names."
    """
    return f"Given: {given}. Allowed: {allowed}. {remedy}"


def nearest(name: str, names: Iterable[str]) -> str:
    """Return ``"Did you mean 'x'? "`` for the closest of ``names``, or an empty string.

    Example:
        >>> nearest("RIMT", ["RINT", "FLOOR"])
        "Did you mean 'RINT'? "
    """
    close = difflib.get_close_matches(name, list(names), n=1, cutoff=0.6)
    return f"Did you mean {close[0]!r}? " if close else ""
