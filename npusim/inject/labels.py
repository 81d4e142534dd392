"""What an operand is: a parameter, a gradient, or neither.

A label is an integer. Parameters are followed through operations that only move or convert them;
each step that makes it less certain that the value is used as a weight lowers the strength, so
that in ``embedding[token] @ kernel`` the looked-up row is the input and the kernel the weight.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from npusim.inject import _compat

GRAD = -1
INPUT = 0
WEIGHT = 4
Label = int

# Operations that move values without changing them: position of their data operand; None: all.
_MOVES: dict[str, int | None] = {
    "bitcast_convert_type": 0,
    "broadcast_in_dim": 0,
    "concatenate": None,
    "convert_element_type": 0,
    "copy": 0,
    "copy_p": 0,
    "device_put": 0,
    "dynamic_slice": 0,
    "expand_dims": 0,
    "gather": 0,
    "name": 0,
    "optimization_barrier": None,
    "pad": 0,
    "pvary": 0,
    "reduce_precision": 0,
    "reshape": 0,
    "rev": 0,
    "sharding_constraint": 0,
    "slice": 0,
    "split": 0,
    "squeeze": 0,
    "transpose": 0,
}
_BLANK = ("empty", "empty2")
_POSITIONWISE = ("optimization_barrier",)
_LOOKUP = "gather"


def join(a: Label | None, b: Label | None) -> Label | None:
    """Return the label of a value that is one of two; None says nothing (a constant)."""
    if a is None or b is None:
        return b if a is None else a
    return GRAD if GRAD in (a, b) else min(a, b)


def carried(before: Label | None, after: Label | None) -> Label | None:
    """Return the label of a loop's carry that starts as ``before`` and comes back as ``after``.

    A parameter that the loop updates (a training loop) stays a weight, but a weaker one than one
    that never changes, so that a learned initial state is not taken for the kernel beside it.
    """
    if before is not None and before > INPUT and after != before:
        return before - 1 if before in (WEIGHT, 2) else before
    return join(before, after)


def roles(labels: Sequence[Label | None], direction: str) -> tuple[str, ...]:
    """Return the role of each operand of an operation.

    Among operands that descend from parameters the surest is the weight, the others are inputs.

    Example:
        >>> roles([INPUT, WEIGHT], "forward"), roles([2, WEIGHT], "forward")
        (('input', 'weight'), ('input', 'weight'))
        >>> roles([GRAD, WEIGHT], "backward"), roles([GRAD, INPUT], "forward")
        (('grad', 'weight'), ('input', 'input'))
    """
    surest = max((label or 0 for label in labels), default=0)

    def role(label: Label | None) -> str:
        if label == GRAD and direction == "backward":
            return "grad"
        return "weight" if label and label == surest > INPUT else "input"

    return tuple(role(label) for label in labels)


def results(eqn: Any, labels: Sequence[Label | None], direction: str) -> list[Label | None]:
    """Return the labels of an equation's results, for an equation without bodies."""
    name = _compat.name_of(eqn)
    count = len(eqn.outvars)
    moved: Label | None = None
    if name in _POSITIONWISE:
        return list(labels)
    if name == "select_n":
        moved = _all(labels[1:])
    elif name in _MOVES:
        position = _MOVES[name]
        moved = _all(labels) if position is None else labels[position]
        if name == _LOOKUP and moved is not None and moved > INPUT:
            moved = max(moved - 2, 1)
    if moved is not None:
        return [moved] * count
    if direction == "backward":
        return [GRAD] * count
    if name in _MOVES or name in _BLANK:
        # Made of constants alone, as what a branch returns in the place of another's residual.
        return [None] * count
    # A gradient that forward code scales or clips is still a gradient.
    return [GRAD if GRAD in labels else INPUT] * count


def _all(labels: Iterable[Label | None]) -> Label | None:
    out: Label | None = None
    for label in labels:
        out = join(out, label)
    return out


def fixpoint(
    step: Callable[[list[Label | None]], list[Label | None]], start: Sequence[Label | None]
) -> list[Label | None]:
    """Return the labels of a loop's carries, given those that one iteration makes of them."""
    labels = list(start)
    for _ in range(2 * WEIGHT + 2):
        after = step(labels)
        joined = [carried(b, a) for b, a in zip(labels, after, strict=True)]
        if joined == labels:
            break
        labels = joined
    return labels
