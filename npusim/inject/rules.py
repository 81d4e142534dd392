"""`Rule`: which operations it speaks of, and the casts it puts on them."""

import dataclasses
import functools
import re
from collections.abc import Iterator
from typing import Any, Literal, get_args

from npusim._errors import NpusimError, PolicyError, message, nearest
from npusim.inject import _compat
from npusim.inject.keys import KEYS, Operation, check_pattern, jax_names, named_dtypes
from npusim.inject.kinds import BOUNDARY, known_primitives
from npusim.inject.kinds import OP_KINDS as OP_KINDS
from npusim.inject.kinds import kind_of as kind_of
from npusim.inject.paths import Call
from npusim.inject.spec import CastSpec, as_spec
from npusim.ops.accumulate import check_accumulate

RuleDirection = Literal["both", "forward", "backward"]
DIRECTIONS: tuple[str, ...] = get_args(RuleDirection)
FOLLOWS = ("previous", "widest")
ROLES = ("input", "weight", "output", "grad")


@dataclasses.dataclass(frozen=True, eq=False)
class Rule:
    """Casts for the operations whose path and kind match.

    Attributes:
        path: regular expression, searched in the normalised module path (``Net/block_0/attn``);
            anchor it with ^ and $ where a part would match too much.
        ops: an op kind (``matmul``, ``conv``, ``elementwise``, ``reduce``, ``convert``, ``index``,
            ``all``), a primitive name (``exp``), or several of them. Kinds speak of float
            operations; constants written into one are operands of it like any other.
            ``boundary``: the modules that ``path`` names as operators of their own, as the NPU runs
            a norm or a softmax: what enters is cast by ``input`` or ``weight``, what leaves by
            ``output``, gradients both ways by ``grad``, and the inside is left alone, but for the
            operations that an earlier rule names. With ``function``, the calls of that function.
        input: cast of the operands that are neither parameters nor gradients.
        weight: cast of the operands that descend from the parameters by moves and conversions. What
            is computed from them (the kernel of an `nn.WeightNorm`) is an input.
        output: cast of the result. At a ``convert`` (the user's own ``astype``) it is made of the
            unconverted operand, so that ``output=CastSpec("bf16", "FLOOR")`` converts by FLOOR.
        grad: cast of the gradient operand of backward operations; under ``grad(simulate(f))``, of
            the cotangent that comes back to the operation.
        accumulate: how the products of a dot_general are summed: ``fast`` (XLA's order),
            ``sequential`` or ``("blocked", k)``, see `npusim.ops.ordered_dot`. Products of float64
            or of integers, ragged ones and convolutions keep XLA's order.
        direction: ``forward``, ``backward`` or ``both``.
        source: regular expression, searched in the line of the caller's code that made the
            operation, as the report prints it: ``/home/me/model.py:12:8 (attend)``. For functions
            that name no modules: ``"model.py:12:"`` is a line, ``"attend"`` a function. It is the
            innermost line outside of JAX; a backward operation has that of its forward one.
        dtypes: operand dtypes, a name or several: the rule speaks of operations with an operand of
            one of them.
        result_dtypes: the same of the results, so that at a ``convert`` a cast to bf16 is told from
            one to fp16. Under ``grad(simulate(f))`` all these keys are the forward operation's.
        function: regular expression for the whole name of a function whose call made the operation,
            JAX's own and a user's alike: ``softmax``, or ``LayerNorm`` for that class's
            ``__call__``. A boundary of a function that calls modules is cut at their borders.
        follow: makes the casts depend on what the operation reads; else it stays as it is.
            ``previous``: they are made where the operation before it left its result in a format
            narrower than float32, which is that of the first operand that is neither constant nor
            parameter (of a boundary: of the first operation in it that computes). ``widest``: where
            all operands are held in one such format; scalars do not count beside arrays. What a
            loop carries counts as float32 unless it is narrow from the start; so does what only
            some branches narrow.
        optional: whether it may match nothing without a warning.
        reason: a word for the report: why these operations get these casts.

    A rule without casts is one that protects: what it matches stays as it is.

    Raises:
        PolicyError: a wrong regular expression, op kind, direction, dtype or cast.

    Example:
        >>> Rule(path="head", ops="matmul")
        Rule(path='head', ops='matmul')
        >>> Rule(input=CastSpec("bf16"), direction="forward")
        Rule(ops='matmul', input=CastSpec(bf16), direction='forward')
        >>> Rule(ops="convert", output=CastSpec("half", "FLOOR"), result_dtypes="half")
        Rule(ops='convert', output=CastSpec(fp16 FLOOR), result_dtypes='fp16')
        >>> Rule(source="model.py:.*attend", dtypes=["bf16", "fp16"])
        Rule(ops='matmul', source='model.py:.*attend', dtypes=('bf16', 'fp16'))
        >>> Rule(".*", "boundary", function="softmax|gelu", output="fp16", follow="previous")
        Rule(ops='boundary', output=CastSpec(fp16), function='softmax|gelu', follow='previous')
    """

    path: str = ".*"
    ops: Any = "matmul"
    input: Any = None
    weight: Any = None
    output: Any = None
    grad: Any = None
    accumulate: Any = None
    direction: str = "both"
    source: str | None = None
    dtypes: Any = None
    result_dtypes: Any = None
    function: str | None = None
    follow: str | None = None
    optional: bool = False
    reason: str = ""

    def __post_init__(self):
        check_pattern("path", self.path, "the module path")
        if self.source is not None:
            check_pattern("source", self.source, "file:line:column (function)")
        if self.function is not None:
            check_pattern("function", self.function, "the names of the functions that were called")
        if self.follow is not None and self.follow not in FOLLOWS:
            raise PolicyError(
                message(
                    f"follow {self.follow!r}",
                    f"{', '.join(FOLLOWS)}, or None",
                    f"{nearest(str(self.follow), FOLLOWS)}Pass one of these names.",
                )
            )
        for key in ("dtypes", "result_dtypes"):
            object.__setattr__(self, key, named_dtypes(key, getattr(self, key)))
        object.__setattr__(self, "ops", _ops(self.ops))
        if self.direction not in DIRECTIONS:
            raise PolicyError(
                message(
                    f"direction {self.direction!r}",
                    ", ".join(DIRECTIONS),
                    f"{nearest(str(self.direction), DIRECTIONS)}Pass one of these names.",
                )
            )
        for key, kind, allowed, todo in (
            ("optional", bool, "True or False", "In YAML write true or false, without quotes."),
            ("reason", str, "a text", "Put it in quotes."),
        ):
            if not isinstance(getattr(self, key), kind):
                raise PolicyError(message(f"{key} {getattr(self, key)!r}", allowed, todo))
        if self.accumulate is not None:
            object.__setattr__(self, "accumulate", check_accumulate(self.accumulate))
            if _compat.MATMUL not in self.primitives:
                raise PolicyError(
                    message(
                        f"accumulate={self.accumulate!r} with ops {self.ops!r}",
                        "ops with dot_general among them, such as matmul",
                        "Remove accumulate, or name matmul.",
                    )
                )
        whole = self.boundary and self.function is None
        if whole and re.search(self.path, "") is not None:
            raise PolicyError(
                message(
                    f"ops 'boundary' with path {self.path!r}, which matches everything",
                    "a path that names modules, such as 'norm', or a function",
                    "Narrow the path, or name the function.",
                )
            )
        asked = [key for key in KEYS if key != "function" and getattr(self, key) is not None]
        if self.boundary and asked:
            raise PolicyError(
                message(
                    f"ops 'boundary' with {asked[0]}={getattr(self, asked[0])!r}",
                    "path and function: a scope is a module or a call, not a line and not a dtype",
                    f"Remove {asked[0]}, or speak of the operations.",
                )
            )
        for role in ROLES:
            given = getattr(self, role)
            if given is None:
                continue
            try:
                object.__setattr__(self, role, as_spec(given))
            except (NpusimError, TypeError) as error:
                text = str(error).removeprefix("Given: ")
                kind = type(error) if isinstance(error, NpusimError) else PolicyError
                raise kind(f"Given: {role}: {text}") from error

    @functools.cached_property
    def primitives(self) -> frozenset[str]:
        """Names of the primitives the rule speaks of."""
        names = (self.ops,) if isinstance(self.ops, str) else self.ops
        return frozenset(p for name in names for p in OP_KINDS.get(name, (name,)))

    @property
    def boundary(self) -> bool:
        """Whether it speaks of whole scopes."""
        return self.ops == BOUNDARY

    def scope(self, path: str, functions: tuple[Call, ...] = ()) -> str | None:
        """Return the shortest part of ``path``, from the top, that the rule's path is found in.

        Of a rule with ``function``: the path and the name of the outermost function that it means.

        Example:
            >>> Rule("norm", "boundary").scope("Net/norm_1/scale"), Rule("norm").scope("Net/head")
            ('Net/norm_1', None)
            >>> Rule("Net", "boundary", function="gelu|tanh").scope("Net/up", (Call("gelu"),))
            'Net/up/gelu'
        """
        if re.search(self.path, path) is None and "$" not in self.path:
            return None
        if self.function is not None:
            call = self.called(functions)
            if call is None or re.search(self.path, path) is None:
                return None
            name = call.name
            last = path.rpartition("/")[2]
            named = re.fullmatch(rf"{re.escape(name)}(_\d+)?", last) is not None
            return path if named else f"{path}/{name}".removeprefix("/")
        names = path.split("/")
        parts = ("/".join(names[: i + 1]) for i in range(len(names)))
        return next((part for part in parts if re.search(self.path, part)), None)

    def called(self, functions: tuple[Call, ...]) -> Call | None:
        """Return the outermost of the calls that the rule's ``function`` means."""
        pattern = self.function or ""
        return next((call for call in functions if _means(pattern, call.name)), None)

    @property
    def directions(self) -> tuple[str, ...]:
        """The directions it speaks of."""
        return ("forward", "backward") if self.direction == "both" else (self.direction,)

    def casts(self) -> Iterator[tuple[str, CastSpec]]:
        """Yield (role, spec) for every cast of the rule."""
        for role in ROLES:
            if getattr(self, role) is not None:
                yield role, getattr(self, role)

    @functools.cached_property
    def types(self) -> tuple[frozenset[str] | None, frozenset[str] | None]:
        """JAX's names of the operand and of the result dtypes, None where any will do."""
        return jax_names(self.dtypes), jax_names(self.result_dtypes)

    def matches(self, operation: Operation) -> bool:
        """Whether the rule speaks of this operation; a boundary rule of all in its scopes."""
        if operation.direction not in self.directions:
            return False
        if self.boundary:
            return self.scope(operation.path, operation.functions) is not None
        of_operands, of_results = self.types
        return (
            operation.primitive in self.primitives
            and re.search(self.path, operation.path) is not None
            and (self.source is None or re.search(self.source, operation.source) is not None)
            and (of_operands is None or not of_operands.isdisjoint(operation.dtypes))
            and (of_results is None or not of_results.isdisjoint(operation.result_dtypes))
            and (self.function is None or self.called(operation.functions) is not None)
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the rule as plain data, defaults left out.

        Example:
            >>> Rule("head", input="bf16").to_dict()
            {'path': 'head', 'ops': 'matmul', 'input': {'dtype': 'bf16'}}
        """
        plain: dict[str, Any] = {
            "path": self.path,
            "ops": self.ops if isinstance(self.ops, str) else list(self.ops),
        }
        plain |= {role: spec.to_dict() for role, spec in self.casts()}
        if self.accumulate is not None:
            form = self.accumulate
            plain["accumulate"] = form if isinstance(form, str) else list(form)
        plain |= {} if self.direction == "both" else {"direction": self.direction}
        for key in KEYS:
            given = getattr(self, key)
            if given is not None:
                plain[key] = given if isinstance(given, str) else list(given)
        plain |= {} if self.follow is None else {"follow": self.follow}
        plain |= {"optional": True} if self.optional else {}
        return plain | {"reason": self.reason} if self.reason else plain

    def __repr__(self) -> str:
        shown = [f"path={self.path!r}"] if self.path != ".*" else []
        shown += [f"ops={self.ops!r}"]
        shown += [f"{role}={spec!r}" for role, spec in self.casts()]
        shown += [f"accumulate={self.accumulate!r}"] if self.accumulate is not None else []
        shown += [f"direction={self.direction!r}"] if self.direction != "both" else []
        shown += [f"{k}={getattr(self, k)!r}" for k in KEYS if getattr(self, k) is not None]
        for key in ("follow", "optional", "reason"):
            shown += [f"{key}={getattr(self, key)!r}"] if getattr(self, key) else []
        return f"Rule({', '.join(shown)})"


@functools.lru_cache(maxsize=1 << 14)
def _means(pattern: str, name: str) -> bool:
    """Whether the pattern is the whole name; asked of the same few names at every equation."""
    return re.fullmatch(pattern, name) is not None


def _ops(given: Any) -> Any:
    names = (given,) if isinstance(given, str) else given
    if not isinstance(names, tuple | list) or not names:
        raise PolicyError(
            message(f"ops {given!r}", "an op kind or a list of them", "Pass for example 'matmul'.")
        )
    if BOUNDARY in names and len(names) > 1:
        raise PolicyError(
            message(
                f"ops {given!r}",
                "'boundary' alone, which speaks of scopes and not of operations",
                "Write a rule of its own for it.",
            )
        )
    for name in names:
        if name == BOUNDARY or name in OP_KINDS or name in known_primitives():
            continue
        known = [*OP_KINDS, BOUNDARY, *sorted(known_primitives())]
        raise PolicyError(
            message(
                f"ops {name!r}",
                f"{', '.join(OP_KINDS)}, {BOUNDARY}, or the name of a JAX primitive such as exp",
                f"{nearest(str(name), known)}Pass one of these.",
            )
        )
    return names[0] if len(names) == 1 else tuple(names)
