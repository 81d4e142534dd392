"""`simulate`: a function with the casts of a policy in it."""

import contextlib
import dataclasses
import functools
import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, TypeVar, overload

import jax

from npusim._errors import PolicyError, UnusedRuleWarning, message
from npusim.inject import _compat, labels
from npusim.inject.arguments import Call, Params, refuse_shared, take_apart
from npusim.inject.kinds import CUBE_KINDS
from npusim.inject.paths import Place
from npusim.inject.plan import Body, Planner, Site
from npusim.inject.policy import Policy
from npusim.inject.statistics import Chosen, Statistics, Stats, over_mesh
from npusim.inject.walker import Feed, Observer, Walker

F = TypeVar("F", bound=Callable[..., Any])


@overload
def simulate(
    fn: F,
    policy: Policy,
    *,
    params: Params = None,
    static_argnames: Sequence[str] = (),
    stats: Literal[False] = False,
) -> F: ...


@overload
def simulate(
    fn: Callable[..., Any],
    policy: Policy,
    *,
    params: Params = None,
    static_argnames: Sequence[str] = (),
    stats: Chosen,
) -> Callable[..., tuple[Any, Stats]]: ...


def simulate(
    fn: Any,
    policy: Policy,
    *,
    params: Params = None,
    static_argnames: Sequence[str] = (),
    stats: Chosen = False,
) -> Any:
    """Return ``fn`` as the NPU would compute it: with the casts that ``policy`` asks for.

    The result has the signature of ``fn`` and is a pure function of its arguments: jit it,
    differentiate it, map it. ``simulate(jax.grad(loss), policy)`` rounds each backward operation as
    itself, which is what the NPU runs; ``jax.grad(simulate(loss, policy))`` is straight-through
    (quantization-aware training): the backward operations see the rounded operands, and the
    cotangent is rounded where a rule has ``grad``.

    Operations that no rule touches are emitted unchanged, so a policy without casts gives the bits
    of the plain function. An operation with 16-bit operands that is cast runs on float32 carriers
    and is stored back in its own dtype. Each call traces ``fn`` anew; jit the result where that
    matters.

    Args:
        fn: any JAX function; one that was jitted and traced before is transformed all the same.
        policy: the rules.
        params: which arguments are parameters: argument numbers, or a predicate on (key path,
            leaf). Default: leaves under a key ``params``, those of an ``nnx.Param``, else argument
            0. Closed-over arrays are not parameters.
        static_argnames: arguments that stay Python values. Leaves that are bool, str, None or
            callables do in any case, and so do numbers that an object holds as attributes.
        stats: return ``(out, stats)``, where `Stats` has exact counts for every cast (elements,
            saturated, overflowed to infinity, NaN made, flushed to zero, inexact, negative into
            unsigned), amax and amin, and the overflow flag, as arrays. What loops repeat is added
            up, and what rematerialisation recomputes counts once. Names instead of True ask for
            some of them and cost less: ``("overflow", "flushed", "amax")``. Under
            ``grad(simulate(loss, policy, stats=True), has_aux=True)`` there are the forward casts
            only; ``simulate(grad(loss), policy, stats=True)`` has the backward ones too. Inside
            shard_map they are those of all devices (docs/sharding.md says what counts once).

    Gradient: straight-through by each CastSpec's ``ste``; the rules of custom_jvp and custom_vjp
        functions are kept.

    Raises:
        PolicyError: when called, if a per-layer format stands outside of a scan of its length.
            Under jvp, if a rule has ``grad``: it rounds what comes back in reverse mode. (Where jit
            stands around or inside of jvp, it is a TypeError of JAX.)
        InputError: when called, if an NNX Variable stands in two places of the arguments.

    Warns:
        UnusedRuleWarning: a rule matched nothing. OpaqueKernelWarning: a kernel (Pallas, a custom
            call, shard_map seen from outside) that could not be looked into.

    Example:
        >>> import jax.numpy as jnp
        >>> from npusim.inject import CastSpec, Policy, Rule
        >>> policy = Policy([Rule(input=CastSpec("int8", "RINT"))])
        >>> f = simulate(lambda w, x: x @ w, policy)
        >>> f(jnp.eye(2), jnp.array([[2.5, 300.0]]))
        Array([[  2., 127.]], dtype=float32)
        >>> _, stats = simulate(lambda w, x: x @ w, policy, stats=True)(
        ...     jnp.eye(2), jnp.array([[2.5, 300.0]])
        ... )
        >>> stats.overflow, [(r["slot"], r["saturated"], r["inexact"]) for r in stats.table()]
        (Array(True, dtype=bool), [('input 0', 1, 2)])
    """
    _check(fn, policy)
    if stats is not False:
        observer = Statistics.of(stats, policy.cast_target)
        counted = observe(fn, policy, observer, params=params, static_argnames=static_argnames)

        @functools.wraps(fn)
        def with_stats(*args: Any, **kwargs: Any) -> tuple[Any, Stats]:
            outs, records = counted(*args, **kwargs)
            return outs, Stats(records.sites, over_mesh(records.values), observer.names)

        return with_stats

    @functools.wraps(fn)
    def simulated(*args: Any, **kwargs: Any) -> Any:
        refuse_shared(args, kwargs)
        call = take_apart(args, kwargs, params, static_argnames, _names(fn))
        prepared = prepare(fn, policy, call)
        prepared.warn()
        outs, _ = prepared.run(Walker(policy.cast_target))
        return outs

    return simulated


def observe(
    fn: Callable[..., Any],
    policy: Policy,
    observer: Observer,
    *,
    params: Params = None,
    static_argnames: Sequence[str] = (),
) -> Callable[..., tuple[Any, "Records"]]:
    """Return `simulate`'s function, which also returns a record for every site that is cast.

    The records leave scan, while, cond, jit and remat as values, without host callbacks, so the
    result may be jitted and differentiated as well.
    """
    _check(fn, policy)

    @functools.wraps(fn)
    def observed(*args: Any, **kwargs: Any) -> Any:
        refuse_shared(args, kwargs)
        call = take_apart(args, kwargs, params, static_argnames, _names(fn))
        prepared = prepare(fn, policy, call)
        prepared.warn()
        outs, tally = prepared.run(Walker(policy.cast_target, observer))
        return outs, Records(tuple(p.site for p in prepared.body.all_sites()), tally)

    return observed


@functools.partial(jax.tree_util.register_dataclass, data_fields=["values"], meta_fields=["sites"])
@dataclasses.dataclass(frozen=True)
class Records:
    """What an `Observer` recorded: a pytree of the values, whose structure carries the sites.

    Attributes:
        sites: the sites that are cast.
        values: the record of each.
    """

    sites: tuple[Site, ...]
    values: list[Any]

    def __iter__(self) -> Iterator[tuple[Site, Any]]:
        return zip(self.sites, self.values, strict=True)


def sites(
    fn: Callable[..., Any],
    policy: Policy,
    *args: Any,
    params: Params = None,
    static_argnames: Sequence[str] = (),
    **kwargs: Any,
) -> list[Site]:
    """Return the operations that rules match, and all of the Cube, in program order.

    Found from shapes alone. `npusim.inject.report` has the operations of all kinds.

    Args:
        fn: the function as it is given to `simulate`.
        policy: the rules.
        *args: its arguments; `jax.ShapeDtypeStruct` will do.
        params: as in `simulate`.
        static_argnames: as in `simulate`.
        **kwargs: its keyword arguments.

    Example:
        >>> import jax.numpy as jnp
        >>> from npusim.inject import Policy, Rule
        >>> grad = jax.grad(lambda w, x: jnp.sum(x @ w))
        >>> shape = jax.ShapeDtypeStruct((2, 2), jnp.float32)
        >>> [s.direction for s in sites(grad, Policy([Rule()]), shape, shape)]
        ['forward', 'backward']
    """
    return planned(fn, policy, args, kwargs, params, static_argnames).planner.sites


def planned(
    fn: Callable[..., Any],
    policy: Policy,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    params: Params = None,
    static_argnames: Sequence[str] = (),
    listed: tuple[str, ...] = CUBE_KINDS,
) -> "Prepared":
    """Trace and plan one call, with the operations of the kinds ``listed`` among the sites."""
    _check(fn, policy)
    call = take_apart(args, kwargs, params, static_argnames, _names(fn))
    return prepare(fn, policy, call, listed)


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A call that has been traced and planned."""

    call: Call
    closed: Any
    structure: Any
    body: Body
    planner: Planner

    def run(self, walker: Walker) -> tuple[Any, list[Any]]:
        """Emit the function at the call's arguments; the result and the tally."""
        feed = Feed.of([s for rule in self.planner.policy.rules for _, s in rule.casts()])
        consts = _compat.constants(self.closed)
        with self._explained():
            flat, tally = walker.run(self.body, consts, self.call.arrays, feed)
        return jax.tree.unflatten(self.structure, flat), tally

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Say which rules stand in the way of forward mode: JAX names no function."""
        try:
            yield
        except TypeError as error:
            numbers = [n + 1 for n, r in enumerate(self.planner.policy.rules) if r.grad is not None]
            if not numbers or not _compat.refuses_forward_mode(error):
                raise
            raise PolicyError(
                message(
                    f"forward-mode differentiation (jvp, jacfwd) under rules with grad: {numbers}",
                    "reverse mode (grad, vjp, jacrev), or rules without grad",
                    "Leave grad out of the policy: no cotangent comes back in forward mode.",
                )
            ) from error

    def warn(self) -> None:
        """Warn of opaque kernels and of rules that matched nothing."""
        rules = self.planner.policy.rules
        if any(rule.accumulate or any(True for _ in rule.casts()) for rule in rules):
            self.planner.warn()
        for number, rule in enumerate(rules):
            if number not in self.planner.hit and not rule.optional:
                warnings.warn(
                    f"rule {number + 1}, {rule!r}, matched no operation. npusim.report lists the "
                    "operations there are, with path, dtypes and source line.",
                    UnusedRuleWarning,
                    stacklevel=3,
                )


def prepare(
    fn: Callable[..., Any], policy: Policy, call: Call, listed: tuple[str, ...] = CUBE_KINDS
) -> Prepared:
    """Trace ``fn`` at the call's arguments and plan the result."""

    def flat(*arrays: Any) -> Any:
        args, kwargs = call.restored(arrays)
        return fn(*args, **kwargs)

    closed, shape = _compat.trace(flat, *call.arrays)
    planner = Planner(policy, listed=listed)
    given = [labels.WEIGHT if is_param else labels.INPUT for is_param in call.params]
    body = planner.body(closed, given, Place())
    return Prepared(call, closed, jax.tree.structure(shape), body, planner)


def _check(fn: Any, policy: Any) -> None:
    if not callable(fn):
        raise PolicyError(message(f"{fn!r}", "a function", "Pass the function, not its result."))
    if not isinstance(policy, Policy):
        raise PolicyError(
            message(
                f"policy {policy!r}",
                "npusim.Policy",
                "Build one: Policy([Rule(...)]), Policy.from_yaml(path) or Policy.from_dict(data).",
            )
        )


def _names(fn: Any) -> tuple[str, ...]:
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return ()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(p.name for p in parameters if p.kind in positional)
