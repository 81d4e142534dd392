"""Flax NNX: instance paths for rules, and functions of modules under a policy."""

import copy
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
from flax import nnx

from npusim.inject import Policy
from npusim.inject import simulate as simulate_function

T = TypeVar("T")
_SCOPE = "_npusim_scope"


def annotate(model: T, name: str | None = None) -> T:
    """Return ``model`` with a name scope around every instance in it, so that rules see its path.

    NNX gives its modules no names in a traced program. The result is a twin of the model: it shares
    every Variable (parameters, statistics, rngs) with the original, which stays as it is, so
    optimizers and checkpoints of either serve both. ``isinstance`` holds; ``type(m)`` is a subclass
    of the same name, as a call can be seen in no other way. Nothing is patched.

    Paths are those of the attributes, below the class of the root: ``Net/blocks/0/query``. Methods
    other than ``__call__`` become the site's ``method``. Where an instance stands in two places,
    the first counts.

    Args:
        model: an NNX module, or any pytree of modules and other callables.
        name: what the root is called; default: its class.

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
    memo: dict[int, Any] = {}
    if isinstance(model, nnx.Pytree):
        return _twin(model, name or type(model).__name__, memo)
    return _container(model, name or "", memo)


def _container(tree: Any, prefix: str, memo: dict[int, Any]) -> Any:
    """Annotate the modules and callables among the leaves of a pytree."""

    def leaf(path: Any, node: Any) -> Any:
        steps = [str(_step(key)) for key in path]
        scope = "/".join(part for part in (prefix, *steps) if part)
        if isinstance(node, nnx.Pytree):
            return _twin(node, scope or type(node).__name__, memo)
        if callable(node) and not isinstance(node, type | nnx.Variable):
            return _named(node, scope or getattr(node, "__name__", type(node).__name__))
        return node

    def stop(node: Any) -> bool:
        return isinstance(node, nnx.Pytree | nnx.Variable)

    return jax.tree_util.tree_map_with_path(leaf, tree, is_leaf=stop)


def _step(key: Any) -> Any:
    return getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))


def _named(function: Callable[..., Any], scope: str) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        with jax.named_scope(scope):
            return function(*args, **kwargs)

    return functools.update_wrapper(call, function, updated=())


def _twin(node: Any, scope: str, memo: dict[int, Any]) -> Any:
    """A shallow copy of a node whose children are twins and whose Variables are the same."""
    if id(node) in memo:
        return memo[id(node)]
    twin = copy.copy(node)
    memo[id(node)] = twin
    for attribute, child in list(vars(node).items()):
        if attribute.startswith("_pytree__"):
            continue
        if isinstance(child, nnx.Pytree):
            below = _below(node, scope, attribute)
            object.__setattr__(twin, attribute, _twin(child, below, memo))
        elif isinstance(child, list | tuple | dict) and _has_modules(child):
            below = _below(node, scope, attribute)
            object.__setattr__(twin, attribute, _modules_in(child, below, memo))
    if _methods(type(node)):
        object.__setattr__(twin, "__class__", _scoped(type(node)))
        setattr(twin, _SCOPE, scope)
    return twin


def _below(node: Any, scope: str, attribute: str) -> str:
    """Scope of a child: relative to a parent that enters its own, else the whole way."""
    return attribute if _methods(type(node)) else f"{scope}/{attribute}"


def _has_modules(tree: Any) -> bool:
    leaves = jax.tree.leaves(tree, is_leaf=lambda node: isinstance(node, nnx.Pytree))
    return any(isinstance(leaf, nnx.Pytree) for leaf in leaves)


def _modules_in(tree: Any, scope: str, memo: dict[int, Any]) -> Any:
    def leaf(path: Any, node: Any) -> Any:
        if not isinstance(node, nnx.Pytree):
            return node
        return _twin(node, "/".join([scope, *(str(_step(key)) for key in path)]), memo)

    return jax.tree_util.tree_map_with_path(
        leaf, tree, is_leaf=lambda node: isinstance(node, nnx.Pytree)
    )


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
def _scoped(cls: type) -> type:
    """The subclass whose methods run in the scope of their instance."""

    def scoped(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            scope = getattr(self, _SCOPE)
            with jax.named_scope(scope if name == "__call__" else f"{scope}.{name}"):
                return method(self, *args, **kwargs)

        return call

    body: dict[str, Any] = {name: scoped(name, m) for name, m in _methods(cls).items()}
    body |= {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    return type(cls)(cls.__name__, (cls,), body)


def simulate(
    fn: Callable[..., Any], policy: Policy, *, static_argnames: Sequence[str] = ()
) -> Callable[..., Any]:
    """Return ``fn`` with the policy's casts: same arguments, same results, module state kept.

    Args:
        fn: a module, which is annotated and called, or a function of modules and arrays, such as a
            loss or ``nnx.value_and_grad(loss)``; annotate the modules that are passed to it.
        policy: the rules. Parameters are the modules' ``nnx.Param``.
        static_argnames: as in `npusim.inject.simulate`.

    Changes that the call makes to Variables of its modules (batch statistics, rng counters, caches)
    are written back to them, as `nnx.jit` does.

    Example:
        >>> from npusim.inject import CastSpec, Rule
        >>> linear = nnx.Linear(2, 2, rngs=nnx.Rngs(0), use_bias=False)
        >>> linear.kernel[...] = jax.numpy.array([[1.1, 0.3], [0.0, 2.4]])
        >>> policy = Policy([Rule(weight=CastSpec("fp4_e2m1"))])
        >>> simulate(linear, policy)(jax.numpy.ones((1, 2)))
        Array([[1. , 2.5]], dtype=float32)
    """
    if isinstance(fn, nnx.Module):
        module = fn
        call = simulate(lambda module, *a, **k: module(*a, **k), policy)

        @functools.wraps(type(module).__call__)
        def called(*args: Any, **kwargs: Any) -> Any:
            return call(annotate(module), *args, **kwargs)

        return called

    @functools.wraps(fn)
    def simulated(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = jax.tree.flatten((args, kwargs), is_leaf=_is_node)
        places = [i for i, leaf in enumerate(leaves) if _is_node(leaf)]
        nodes = [leaves[i] for i in places]
        graph, state = nnx.split(nodes)

        def pure(state: Any, *args: Any, **kwargs: Any) -> Any:
            # Modules are rebuilt inside the trace; what the call does to their state is a result.
            rebuilt = nnx.merge(graph, state)
            given = iter(rebuilt)
            slots, structure = jax.tree.flatten((args, kwargs), is_leaf=lambda x: x is _NODE)
            filled = [next(given) if slot is _NODE else slot for slot in slots]
            args, kwargs = jax.tree.unflatten(structure, filled)
            return fn(*args, **kwargs), nnx.state(rebuilt)

        # The names of positional arguments, for static_argnames.
        pure.__signature__ = _with_state(fn)
        for i in places:
            leaves[i] = _NODE
        args, kwargs = jax.tree.unflatten(structure, leaves)
        run = simulate_function(pure, policy, static_argnames=static_argnames)
        out, changed = run(state, *args, **kwargs)
        nnx.update(nodes, changed)
        return out

    return simulated


def _with_state(fn: Callable[..., Any]) -> inspect.Signature:
    """The signature of ``fn`` with the state in front."""
    state = inspect.Parameter("state", inspect.Parameter.POSITIONAL_ONLY)
    try:
        given = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        given = []
    return inspect.Signature([state, *given])


class _Node:
    """Stands for a module among the arguments: static, as it is no array."""


_NODE = _Node()


def _is_node(value: Any) -> bool:
    return isinstance(value, nnx.Pytree | nnx.Variable)
