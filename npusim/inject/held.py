"""In which format each value is held, for rules that follow what an operation reads.

A gray operator of CANN's mixed precision runs as the one before it does, torch's promote list takes
the widest operand: both ask where a value was rounded last. Formats are therefore followed from
the operation that left them through whatever only moves values, into and out of bodies.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import jax.numpy as jnp

from npusim.dtypes import dtype as dtype_of
from npusim.inject import _compat
from npusim.inject.kinds import OP_KINDS
from npusim.inject.labels import Label
from npusim.inject.spec import CARRIERS

WIDE = ("fp32", "fp64")
COMPUTES = frozenset(OP_KINDS["all"]) - set(OP_KINDS["index"]) - set(OP_KINDS["convert"])
"""Primitives that make new values; what others leave is held as it was."""


@dataclasses.dataclass(frozen=True)
class Held:
    """How a value is held.

    Attributes:
        format: short name of the format; None: a constant, or no float.
        maker: the operation that left it in that format.
        fixed: whether it is a parameter or a constant.
        scalar: whether it has no dimensions.
        before: how the operand of a conversion to float32 was held.
    """

    format: str | None
    maker: str = ""
    fixed: bool = False
    scalar: bool = False
    before: "Held | None" = None

    @property
    def narrow(self) -> bool:
        """Whether it is held in a format narrower than float32."""
        return self.format is not None and self.format not in WIDE


NOTHING = Held(None, fixed=True)


def join(a: Held, b: Held) -> Held:
    """Return how a value is held that is one of two.

    Example:
        >>> half, other = Held("fp16"), Held("bf16")
        >>> join(half, half).format, join(half, other).format
        ('fp16', 'fp32')
    """
    if a.format is None or b.format is None:
        return b if a.format is None else a
    fixed, scalar = a.fixed and b.fixed, a.scalar and b.scalar
    if a.format == b.format:
        return dataclasses.replace(a, fixed=fixed, scalar=scalar)
    maker = a.maker if not a.narrow else b.maker
    return Held("fp32", maker or "one of several", fixed, scalar)


def followed(follow: str, operands: Iterable[Held]) -> Held:
    """Return the operand that a rule with this ``follow`` goes by; `NOTHING` if there is none."""
    floats = [operand for operand in operands if operand.format is not None]
    if not floats:
        return NOTHING
    if follow == "previous":
        # Constants and variables come last where the operators' dtypes are chosen (hicann/ge,
        # op_format_dtype_strategy_manager.h), and a conversion to float32 is looked through
        # (op_dtype_selection_strategy_allow_mix_precision_base.cc).
        first = next((operand for operand in floats if not operand.fixed), floats[0])
        return first.before or first
    arrays = [operand for operand in floats if not operand.scalar]
    found, *others = arrays or floats
    for other in others:
        found = join(found, other)
    return found


class Formats:
    """How every value of the jaxprs that are being planned is held; does nothing unless ``on``.

    Attributes:
        on: whether a rule of the policy follows.
        given: how the operands of the call that is being planned are held.
    """

    def __init__(self, on: bool):
        self.on = on
        self.given: list[Held] = []
        self._known: dict[Any, Held] = {}
        self._outside: dict[Any, tuple[Any, Held]] = {}

    def start(self, variables: Sequence[Any], given: Sequence[Label | None]) -> None:
        """Note the inputs of a jaxpr that nothing is known of: held as their dtypes say."""
        for variable, label in zip(variables, given, strict=True):
            if self.on and variable not in self._known:
                fixed = bool(label and label > 0)
                self._known[variable] = _as_typed(variable.aval, "an argument", fixed=fixed)

    def constants(self, variables: Sequence[Any]) -> None:
        """Note the constants of a jaxpr."""
        if self.on:
            self.enter(variables, [_as_typed(v.aval, "a constant", fixed=True) for v in variables])

    def read(self, atom: Any, scope: Any = None) -> Held:
        """How a value is held for an equation in this scope: what leaves one is cast on the way."""
        if not self.on or _compat.is_literal(atom):
            return NOTHING
        made_in, outside = self._outside.get(atom, (scope, NOTHING))
        return self._known[atom] if made_in == scope else outside

    def call(self, eqn: Any, scope: Any) -> None:
        """Note the operands of a call, for the one who plans its body."""
        self.given = [self.read(atom, scope) for atom in eqn.invars] if self.on else []

    def enter(self, variables: Sequence[Any], held: Sequence[Held]) -> None:
        """Note how the inputs of a body are held."""
        if self.on:
            self._known.update(zip(variables, held, strict=True))

    def leave(self, results: Sequence[Any], bodies: Sequence[Sequence[Any]]) -> None:
        """Note how the results of a call are held: as those of its bodies, joined."""
        if not self.on:
            return
        for number, result in enumerate(results):
            held = self.read(bodies[0][number])
            for outs in bodies[1:]:
                held = join(held, self.read(outs[number]))
            self._known[result] = held

    def widened(self, carries: Sequence[Any], results: Sequence[Any]) -> bool:
        """Join what a loop carries with what one iteration makes of it; whether that changed it."""
        if not self.on:
            return False
        changed = False
        for carry, result in zip(carries, results, strict=True):
            held = join(self._known[carry], self.read(result))
            changed |= held.format != self._known[carry].format
            self._known[carry] = held
        return changed

    def made(self, eqn: Any, scope: Any, output: str | None, maker: str) -> None:
        """Note how the results of an equation are held, which a rule casts to ``output``."""
        if not self.on:
            return
        operands = [self.read(atom, scope) for atom in eqn.invars]
        for variable in eqn.outvars:
            held = _as_typed(variable.aval, maker)
            if held.format is not None and output is not None:
                held = dataclasses.replace(held, format=output)
            elif held.format is not None and _compat.name_of(eqn) not in COMPUTES:
                held = _moved(eqn, operands, held)
            self._known[variable] = dataclasses.replace(held, scalar=_is_scalar(variable.aval))

    def left(self, variables: Sequence[Any], scope: Any, output: str | None, maker: str) -> None:
        """Note that what a scope made is cast to ``output`` for everybody outside of it."""
        if not self.on or output is None:
            return
        for variable in variables:
            inside = self._known[variable]
            if inside.format is not None:
                held = dataclasses.replace(inside, format=output, maker=maker)
                self._outside[variable] = (scope, held)


def _moved(eqn: Any, operands: Sequence[Held], typed: Held) -> Held:
    """How a value is held that was moved, or converted by the user's own hand."""
    floats = [operand for operand in operands if operand.format is not None]
    if not floats:
        return dataclasses.replace(typed, fixed=all(operand.fixed for operand in operands))
    held = floats[0]
    for other in floats[1:] if _compat.name_of(eqn) in ("concatenate", "select_n") else ():
        held = join(held, other)
    converts = _compat.name_of(eqn) == _compat.CONVERT
    if not converts or eqn.invars[0].aval.dtype == eqn.outvars[0].aval.dtype:
        return held
    return dataclasses.replace(typed, fixed=held.fixed, before=None if typed.narrow else held)


def _as_typed(aval: Any, maker: str, fixed: bool = False) -> Held:
    dtype = getattr(aval, "dtype", None)
    if dtype is None or not jnp.issubdtype(dtype, jnp.floating):
        return NOTHING
    name = dtype_of(dtype).short if dtype in CARRIERS else str(dtype)
    return Held(name, maker, fixed, _is_scalar(aval))


def _is_scalar(aval: Any) -> bool:
    return not getattr(aval, "shape", ())
