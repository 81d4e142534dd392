"""`annotate`: a name scope around every instance of a model, so that rules see its path."""

import contextlib
import copy
import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import jax
from flax import nnx

T = TypeVar("T")
_PLAIN = "_npusim_plain"


def annotate(model: T, name: str | None = None) -> T:
    """Return ``model`` with a name scope around every instance in it, so that rules see its path.

    NNX gives its modules no names in a traced program. The result is a twin of the model: it shares
    every Variable (parameters, statistics, rngs) with the original, which stays as it is, so
    optimizers and checkpoints of either serve both. ``isinstance`` holds; ``type(m)`` is a subclass
    of the same name, as a call can be seen in no other way. Nothing is patched. Attributes that are
    set later, on the twin or on the original, belong to that one alone.

    Paths are those of the attributes, below the class of the root: ``Net/blocks/0/query``. Methods
    other than ``__call__`` become the site's ``method``. Where an instance stands in two places,
    the first counts. Annotating once more names the model anew.

    In any other pytree (an Equinox model, a dict of functions) every callable node is held in a
    pytree node of its own, which enters the scope and passes attributes on; paths are those of the
    fields: ``MLP/layers/0``. Equinox adds its own class names to them: ``layers/0/eqx.nn.Linear``.
    Functions count in lists, tuples and dicts; those that an object holds as attributes stay.

    Args:
        model: an NNX module, or any pytree of modules and other callables.
        name: what the root is called; default: its class, or nothing for a container.

    Example:
        >>> from npusim.inject import Policy, sites
        >>> class Net(nnx.Module):
        ...     def __init__(self, rngs):
        ...         self.up = nnx.Linear(2, 3, rngs=rngs)
        ...     def __call__(self, x):
        ...         return self.up(x)
        >>> net = annotate(Net(nnx.Rngs(0)))
        >>> [s.path for s in sites(lambda m, x: m(x), Policy([]), net, jax.numpy.ones((1, 2)))]
        ['Net/up']
    """
    if not isinstance(model, nnx.Pytree):
        plain: Any = model.node if isinstance(model, Scoped) else model
        default = type(plain).__name__ if callable(plain) and not _is_leaf(plain) else ""
        return _tree(plain, name or default)
    twin: Any = _copied(model, {})
    for node, scope in _scopes(twin, name or type(model).__name__):
        _enter(node, scope)
    return twin


@contextlib.contextmanager
def annotated(model: nnx.Module) -> Iterator[None]:
    """Give a model that nobody else sees its scopes for a while, unless it has its own."""
    if _PLAIN in vars(type(model)):
        yield
        return
    entered = list(_scopes(model, type(model).__name__))
    for node, scope in entered:
        _enter(node, scope)
    try:
        yield
    finally:
        for node, _ in entered:
            object.__setattr__(node, "__class__", _plain(type(node)))


def _copied(node: Any, memo: dict[int, Any]) -> Any:
    """A shallow copy of an NNX node whose children are copies and whose Variables are the same."""
    if id(node) in memo:
        return memo[id(node)]
    twin = copy.copy(node)
    memo[id(node)] = twin
    for attribute, child in list(vars(node).items()):
        if attribute.startswith("_pytree__"):
            continue
        if isinstance(child, nnx.Pytree):
            object.__setattr__(twin, attribute, _copied(child, memo))
        elif isinstance(child, list | tuple | dict) and any(True for _ in _modules_in(child)):
            copies = jax.tree.map(
                lambda leaf: _copied(leaf, memo) if _is_module(leaf) else leaf,
                child,
                is_leaf=_is_module,
            )
            object.__setattr__(twin, attribute, copies)
    return twin


def _scopes(
    node: Any, scope: str, seen: set[int] | None = None
) -> Iterator[tuple[nnx.Pytree, str]]:
    """Yield the NNX nodes below one, itself first, with the scopes that they enter."""
    seen = set() if seen is None else seen
    if id(node) in seen:
        return
    seen.add(id(node))
    enters = bool(_methods(_plain(type(node))))
    if enters:
        yield node, scope
    for attribute, child in list(vars(node).items()):
        if attribute.startswith("_pytree__"):
            continue
        # Relative to a parent that enters its own scope, else the whole way.
        below = attribute if enters else f"{scope}/{attribute}"
        if isinstance(child, nnx.Pytree):
            yield from _scopes(child, below, seen)
        elif isinstance(child, list | tuple | dict):
            for path, module in _modules_in(child):
                yield from _scopes(module, "/".join([below, *path]), seen)


def _modules_in(tree: Any) -> Iterator[tuple[list[str], Any]]:
    """Yield the NNX nodes among the leaves of a container, each with the steps that lead to it."""
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree, is_leaf=_is_module)[0]:
        if _is_module(leaf):
            yield [_step(key) for key in path], leaf


def _is_module(node: Any) -> bool:
    return isinstance(node, nnx.Pytree)


def _step(key: Any) -> str:
    return str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key))))


def _enter(node: Any, scope: str) -> None:
    """Let an NNX module run in this scope."""
    # Past NNX's own __setattr__, which refuses objects that were made outside of a trace.
    object.__setattr__(node, "__class__", _scoped(_plain(type(node)), scope))


def _plain(cls: type) -> type:
    """The class itself, of one that runs in a scope."""
    return vars(cls).get(_PLAIN, cls)


@functools.cache
def _methods(cls: type) -> dict[str, Callable[..., Any]]:
    """The methods of a module class that enter its scope: what it defines beyond NNX's own base."""
    found: dict[str, Callable[..., Any]] = {}
    if not issubclass(cls, nnx.Module) or issubclass(cls, nnx.List | nnx.Dict):
        return found
    for base in reversed(cls.__mro__):
        if base in nnx.Module.__mro__:
            continue
        for name, value in vars(base).items():
            if inspect.isfunction(value) and (name == "__call__" or not name.startswith("_")):
                found[name] = value
    return found


@functools.cache
def _scoped(cls: type, scope: str) -> type:
    """The subclass whose methods run in a scope.

    The scope is the class's: modules that look through their own attributes find nothing new.
    """

    def scoped(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        place = scope if name == "__call__" else f"{scope}.{name}"

        @functools.wraps(method)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            with jax.named_scope(place):
                return method(self, *args, **kwargs)

        return call

    body: dict[str, Any] = {name: scoped(name, m) for name, m in _methods(cls).items()}
    body |= {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    pytree = getattr(cls, "_pytree__is_pytree", True)
    return type(cls)(cls.__name__, (cls,), body | {_PLAIN: cls}, pytree=pytree)


@functools.partial(jax.tree_util.register_dataclass, data_fields=["node"], meta_fields=["scope"])
@dataclasses.dataclass(frozen=True, eq=False)
class Scoped:
    """A callable pytree node that runs in a scope; its attributes and leaves are the node's."""

    node: Any
    scope: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the node in its scope."""
        with jax.named_scope(self.scope):
            return self.node(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        # What copying and pickling ask for is this object's own business.
        if name.startswith("__") or name in ("node", "scope"):
            raise AttributeError(name)
        value = getattr(self.node, name)
        if callable(value) and getattr(value, "__self__", None) is self.node:
            return _named(value, f"{self.scope}.{name}")
        return value


def _tree(node: Any, scope: str) -> Any:
    """A pytree with its callables in scopes; ``scope`` is the way to it from the last one."""
    if isinstance(node, Scoped):
        return _tree(node.node, scope)
    if isinstance(node, nnx.Variable | type):
        return node
    if isinstance(node, nnx.Pytree):
        return annotate(node, scope or None)
    if _is_leaf(node):
        return _named(node, scope or getattr(node, "__name__", "")) if callable(node) else node
    children, structure = _opened(node)
    prefix = [scope] if scope and not callable(node) else []
    named = [
        # A function that an object holds may be a setting that code asks for by identity, as
        # pooling asks for lax.max.
        child
        if _is_leaf(child) and isinstance(path[0], jax.tree_util.GetAttrKey)
        else _tree(child, "/".join([*prefix, _step(path[0])]))
        for path, child in children
    ]
    rebuilt = jax.tree.unflatten(structure, named)
    return Scoped(rebuilt, scope) if callable(node) else rebuilt


def _opened(node: Any) -> Any:
    """The children of a pytree node, with their key paths, and its structure."""
    return jax.tree_util.tree_flatten_with_path(node, is_leaf=lambda child: child is not node)


def _is_leaf(node: Any) -> bool:
    children, _ = _opened(node)
    return len(children) == 1 and children[0][1] is node


@dataclasses.dataclass(frozen=True)
class _Function:
    """A function that runs in a scope; equal where function and scope are, as jit asks."""

    function: Callable[..., Any]
    scope: str

    def __post_init__(self):
        object.__setattr__(self, "__wrapped__", self.function)
        name = getattr(self.function, "__name__", type(self.function).__name__)
        object.__setattr__(self, "__name__", name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with jax.named_scope(self.scope):
            return self.function(*args, **kwargs)


def _named(function: Callable[..., Any], scope: str) -> Callable[..., Any]:
    """A function in a scope; naming it once more replaces the scope."""
    return _Function(function.function if isinstance(function, _Function) else function, scope)
