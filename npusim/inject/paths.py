"""From a name stack to the path a rule is matched against.

JAX marks an equation with the scopes it was made in and the transforms that rewrote it:
``transpose(jvp(Net))/block_0/attn/...qhd,...khd->...hqk``. A rule should not have to know how a
gradient was taken, so transforms, rematerialisation, einsum subscripts and Linen's method suffixes
become fields of their own and the path keeps the module names alone: ``Net/block_0/attn``.
"""

import dataclasses
import re
from collections.abc import Iterable
from typing import Literal, NamedTuple

Direction = Literal["forward", "backward"]

_REMATTED = "rematted_computation"
_SUBSCRIPTS = re.compile(r"[A-Za-z.,\s]*->[A-Za-z.\s]*|[A-Za-z.\s]*(,[A-Za-z.\s]*)+")
_METHOD = re.compile(r"(?P<name>[^.]+)\.(?P<method>[A-Za-z_]\w*|<lambda>)")


class Call(NamedTuple):
    """A function that was called, and a number by which two calls in one jaxpr are told apart."""

    name: str
    site: int = 0


@dataclasses.dataclass(frozen=True)
class Place:
    """Where an equation stands.

    Attributes:
        names: module path, outermost first.
        direction: ``backward`` for an equation that transposition made.
        recomputed: whether rematerialisation repeats an equation that ran before.
        einsum: the subscripts, for an operation that `jnp.einsum` made.
        method: Linen's method, where a module was entered by another one than ``__call__``.
        source: the user's line. What JAX's own jitted functions (``jnp.where``) consist of has none
            and stands at the line of the call.
        functions: the functions whose calls made it, outermost first, where a rule asks.
    """

    names: tuple[str, ...] = ()
    direction: Direction = "forward"
    recomputed: bool = False
    einsum: str | None = None
    method: str | None = None
    source: str = ""
    functions: tuple[Call, ...] = ()

    @property
    def path(self) -> str:
        """The path a rule's regular expression is searched in."""
        return "/".join(self.names)

    def enter(
        self,
        elements: Iterable[tuple[str, bool]],
        source: str = "",
        functions: Iterable[tuple[str, int]] = (),
    ) -> "Place":
        """Return the place of an equation whose own name stack has these elements.

        The stack of an equation inside a scan, cond or jit starts anew, so it is read relative to
        the place of the equation that has the body.

        Args:
            elements: pairs of a name and whether it is a transform (jvp, transpose, vmap).
            source: the equation's own line, empty where it has none.
            functions: the functions that were called for it in this jaxpr, with their numbers.

        Example:
            >>> stack = [("transpose", True), ("jvp", True), ("Net", False), ("up.attend", False)]
            >>> Place().enter(stack, "net.py:7:4 (step)")
            Place(names=('Net', 'up'), direction='backward', recomputed=False, einsum=None,
                method='attend', source='net.py:7:4 (step)', functions=())
        """
        direction, recomputed = self.direction, self.recomputed
        einsum = method = None
        own: list[str] = []
        segment: list[str] = []
        for name, is_transform in elements:
            if is_transform:
                own, segment = _joined(own, segment), []
                if name == "transpose":
                    direction = "backward"
                continue
            if name == _REMATTED:
                direction, recomputed = "forward", True
                continue
            for part in name.split("/"):
                if _SUBSCRIPTS.fullmatch(part):
                    einsum = part
                    continue
                found = _METHOD.fullmatch(part)
                if found:
                    method = found["method"]
                segment.append(part)
        own = _joined(own, segment)
        return Place(
            names=_modules(self.names, own),
            direction=direction,
            recomputed=recomputed,
            einsum=einsum,
            method=method,
            source=source or self.source,
            functions=self.functions + tuple(Call(*call) for call in functions),
        )


def _joined(before: list[str], segment: list[str]) -> list[str]:
    """Join the scopes on both sides of a transform.

    The transpose of a rematerialised block carries its path twice,
    ``transpose(jvp(Net))/last/jvp(Net)/last``: the second repeats the first.
    """
    return segment if before and segment[: len(before)] == before else before + segment


def _modules(outer: tuple[str, ...], parts: list[str]) -> tuple[str, ...]:
    """Return the path of ``parts`` below ``outer``, without method suffixes.

    A module that enters itself by another method, or through a lifted transform, stands twice in
    the stack (``net/net.encode``, ``layers.<lambda>/layers``) and is one module; so it does where
    the transform is a loop, whose body has a stack of its own (``net`` and in it ``net.body``).
    """
    names = list(outer)
    suffixed = False
    for part in parts:
        found = _METHOD.fullmatch(part)
        name = found["name"] if found else part
        if not (names and names[-1] == name and (found or suffixed)):
            names.append(name)
        suffixed = found is not None
    return tuple(names)
