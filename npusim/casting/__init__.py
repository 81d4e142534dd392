"""Casts by the rules of a chip's entry point: storage casts, differentiable casts, the tables."""

from npusim.casting.array import array as array
from npusim.casting.array import from_codes as from_codes
from npusim.casting.array import to_codes as to_codes
from npusim.casting.cast import cast as cast
from npusim.casting.fake import fake_cast as fake_cast
from npusim.casting.fake import grad_cast as grad_cast
from npusim.casting.npuarray import NpuArray as NpuArray
from npusim.casting.provenance import Decision as Decision
from npusim.casting.provenance import provenance as provenance
from npusim.casting.resolve import ResolvedCast as ResolvedCast
from npusim.casting.resolve import Step as Step
from npusim.casting.resolve import resolve_cast as resolve_cast
from npusim.casting.support import SupportedCast as SupportedCast
from npusim.casting.support import supported_casts as supported_casts
from npusim.numerics import FormatParams as FormatParams

__all__ = [
    "Decision",
    "FormatParams",
    "NpuArray",
    "ResolvedCast",
    "Step",
    "SupportedCast",
    "array",
    "cast",
    "fake_cast",
    "from_codes",
    "grad_cast",
    "provenance",
    "resolve_cast",
    "supported_casts",
    "to_codes",
]
