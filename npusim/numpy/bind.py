"""`bind`: the functions of `npusim.numpy` for one chip and one table."""

import functools
import importlib
import inspect
from typing import Any

from npusim.modes import Target
from npusim.numpy.env import DEFAULT, env
from npusim.promotion.tables import check_rules


class Bound:
    """The functions of `npusim.numpy` with ``target`` and ``rules`` fixed; see `bind`.

    Immutable and hashable, so it may be closed over or passed as a static argument of jit.
    """

    __slots__ = ("rules", "target")

    target: Target
    rules: str

    def __init__(self, target: Target, rules: str):
        object.__setattr__(self, "target", target)
        object.__setattr__(self, "rules", rules)

    def __setattr__(self, name: str, value: Any):
        raise AttributeError(f"Bound is immutable; make another with bind() to change {name}")

    def __getattr__(self, name: str) -> Any:
        found = getattr(importlib.import_module("npusim.numpy"), name)
        if not callable(found):
            return found
        takes = inspect.signature(found).parameters
        given = {k: getattr(self, k) for k in ("target", "rules") if k in takes}
        return functools.partial(found, **given) if given else found

    def __dir__(self) -> list[str]:
        return list(importlib.import_module("npusim.numpy").__all__)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bound) and (self.target, self.rules) == (other.target, other.rules)

    def __hash__(self) -> int:
        return hash((Bound, self.target, self.rules))

    def __repr__(self) -> str:
        return f"npusim.numpy.bind({str(self.target)!r}, rules={self.rules!r})"


def bind(target: Target | str = DEFAULT, rules: str = "documented") -> Bound:
    """Return the functions of `npusim.numpy` for one chip and one derivation table.

    The result stands where ``npusim.numpy`` stands: ``nnp = npusim.numpy.bind("A2A3")``. It is a
    value, not a mode: nothing is global, and jit sees which one a function uses.

    Args:
        target: a Target, or a chip's name for its aclnn entry point.
        rules: documented, implementation or zh.

    Raises:
        UnknownNameError: no such chip or table.

    Example:
        >>> import jax.numpy as jnp
        >>> a2 = bind("A2A3")
        >>> a2.mean(jnp.array([1.0, 2.0], jnp.float16))
        Array(1.5, dtype=float16)
    """
    at = env(target, check_rules(rules))
    return Bound(at.target, at.rules)
