"""Flax NNX: instance paths for rules, and functions of modules under a policy."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
from flax import nnx

from npusim.flax.scopes import annotate as annotate
from npusim.flax.scopes import annotated
from npusim.inject import Policy
from npusim.inject import simulate as simulate_function
from npusim.inject.statistics import Chosen

__all__ = ["annotate", "simulate"]

_TAG = "npusim"


def simulate(
    fn: Callable[..., Any],
    policy: Policy,
    *,
    static_argnames: Sequence[str] = (),
    stats: Chosen = False,
) -> Callable[..., Any]:
    """Return ``fn`` with the policy's casts: same arguments, same results, module state kept.

    Args:
        fn: a module or a bound method of one, which is annotated and called, or a function of
            modules and arrays, such as a loss, ``nnx.value_and_grad(loss)`` or a whole training
            step; annotate the modules that are passed to it.
        policy: the rules. Parameters are the modules' ``nnx.Param``.
        static_argnames: as in `npusim.inject.simulate`.
        stats: as in `npusim.inject.simulate`: return ``(out, stats)``.

    What the call does to its modules (batch statistics, rng counters, caches, what they sow) is
    done to them, as `nnx.jit` does; modules that ``fn`` returns are the ones it was given.

    Example:
        >>> from npusim.inject import CastSpec, Rule
        >>> linear = nnx.Linear(2, 2, rngs=nnx.Rngs(0), use_bias=False)
        >>> linear.kernel[...] = jax.numpy.array([[1.1, 0.3], [0.0, 2.4]])
        >>> policy = Policy([Rule(weight=CastSpec("fp4_e2m1"))])
        >>> simulate(linear, policy)(jax.numpy.ones((1, 2)))
        Array([[1. , 2.5]], dtype=float32)
    """
    if isinstance(fn, nnx.Module):
        return _of_module(fn, type(fn).__call__, policy, static_argnames, stats)
    owner = getattr(fn, "__self__", None)
    if inspect.ismethod(fn) and isinstance(owner, nnx.Module):
        return _of_module(owner, fn.__func__, policy, static_argnames, stats)

    @functools.wraps(fn)
    def simulated(*args: Any, **kwargs: Any) -> Any:
        slots, nodes = _without_nodes((args, kwargs))
        seen: list[Any] = []

        def pure(state: Any, *args: Any, **kwargs: Any) -> Any:
            # Modules are rebuilt inside the trace; what the call does to them is a result.
            with nnx.merge_context(_TAG, True) as context:
                given = context.merge(graph, state)
            before = _contents(given)
            args, kwargs = _with_nodes((args, kwargs), given)
            out, made = _without_nodes(fn(*args, **kwargs))
            after = _contents(given)
            if not made and after.graph == before.graph:
                # Values alone: of these, what the call has set, as closed-over modules of an outer
                # trace may be read and not written.
                seen.append(None)
                return out, after.changed_since(before)
            with nnx.split_context(_TAG) as context:
                changed_graph, changed = context.split([given, made])
            seen.append(changed_graph)
            return out, changed

        # The names of positional arguments, for static_argnames.
        pure.__signature__ = _with_state(fn)
        args, kwargs = slots
        run = simulate_function(pure, policy, static_argnames=static_argnames, stats=stats)
        with nnx.update_context(_TAG):
            with nnx.split_context(_TAG) as context:
                graph, state = context.split(nodes)
            result: Any = run(state, *args, **kwargs)
            (out, changed), counted = result if stats is not False else (result, None)
            made = []
            if seen[-1] is None:
                nnx.update(nodes, changed)
            else:
                with nnx.merge_context(_TAG, False) as context:
                    _, made = context.merge(seen[-1], changed)
        out = _with_nodes(out, made)
        return (out, counted) if stats is not False else out

    return simulated


@dataclasses.dataclass(frozen=True)
class _Contents:
    """What some modules are made of.

    Attributes:
        graph: their structure and whatever is no array.
        variables: by path, each Variable and the arrays in it.
    """

    graph: Any
    variables: dict[Any, tuple[Any, list[Any]]]

    def changed_since(self, before: "_Contents") -> Any:
        """The state of the Variables whose arrays are others now."""
        return nnx.from_flat_state(
            [
                (path, variable)
                for path, (variable, arrays) in self.variables.items()
                if any(a is not b for a, b in zip(arrays, before.variables[path][1], strict=True))
            ]
        )


def _contents(nodes: Sequence[Any]) -> _Contents:
    graph, state = nnx.split(nodes)
    flat = nnx.to_flat_state(state)
    return _Contents(graph, {path: (leaf, jax.tree.leaves(leaf)) for path, leaf in flat})


def _of_module(
    module: nnx.Module,
    method: Callable[..., Any],
    policy: Policy,
    static_argnames: Sequence[str],
    stats: Chosen,
) -> Callable[..., Any]:
    @functools.wraps(method)
    def scoped(module: nnx.Module, *args: Any, **kwargs: Any) -> Any:
        with annotated(module):
            return getattr(module, method.__name__)(*args, **kwargs)

    call = simulate(scoped, policy, static_argnames=static_argnames, stats=stats)

    @functools.wraps(method)
    def called(*args: Any, **kwargs: Any) -> Any:
        return call(module, *args, **kwargs)

    return called


def _without_nodes(tree: Any) -> tuple[Any, list[Any]]:
    """The tree with a mark in the place of every module and Variable, and these."""
    leaves, structure = jax.tree.flatten(tree, is_leaf=_is_node)
    nodes = [leaf for leaf in leaves if _is_node(leaf)]
    return jax.tree.unflatten(structure, [_NODE if _is_node(x) else x for x in leaves]), nodes


def _with_nodes(tree: Any, nodes: Sequence[Any]) -> Any:
    """The tree with modules and Variables in the place of the marks."""
    given = iter(nodes)
    leaves, structure = jax.tree.flatten(tree, is_leaf=lambda leaf: leaf is _NODE)
    return jax.tree.unflatten(structure, [next(given) if x is _NODE else x for x in leaves])


def _with_state(fn: Callable[..., Any]) -> inspect.Signature:
    """The signature of ``fn`` with the state in front."""
    state = inspect.Parameter("state", inspect.Parameter.POSITIONAL_ONLY)
    try:
        given = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        given = []
    return inspect.Signature([state, *given])


@jax.tree_util.register_static
class _Node:
    """Stands for a module among arguments and results: a node without leaves."""


_NODE = _Node()


def _is_node(value: Any) -> bool:
    return isinstance(value, nnx.Pytree | nnx.Variable)
