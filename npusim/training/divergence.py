"""The first operation at which two policies lead to different values."""

import dataclasses
import heapq
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from npusim._errors import InputError, message
from npusim.inject import Policy, Rule, Site, simulate
from npusim.inject.arguments import Params, take_apart
from npusim.inject.transform import _names
from npusim.training.watch import Outputs, Run, rows_of, watch, watched_ops

EXECUTIONS = 32


@dataclasses.dataclass(frozen=True, eq=False)
class Divergence:
    """A site whose output differs between two runs.

    Attributes:
        path: its module path.
        op: its primitive.
        direction: ``forward`` or ``backward``.
        execution: which execution it was, from 0: the iteration, inside of one loop.
        index: the element that differs most.
        a: its value in the first run.
        b: its value in the second run.
        difference: largest ``|a - b|`` as a share of the largest finite ``|a|`` of the output;
            infinite where one side only is infinite or NaN.
        differing: elements that differ at all.
        output_a: the whole output in the first run.
        output_b: the whole output in the second run.
        casts_a: what the first policy casts there.
        casts_b: what the second policy casts there.
        source: the user's line that made it.
    """

    path: str
    op: str
    direction: str
    execution: int
    index: tuple[int, ...]
    a: Any
    b: Any
    difference: float
    differing: int
    output_a: np.ndarray
    output_b: np.ndarray
    casts_a: str
    casts_b: str
    source: str

    def __str__(self) -> str:
        where = f"{self.path or '(top level)'} {self.op} {self.direction}"
        times = f", execution {self.execution}" if self.execution else ""
        return (
            f"{where}{times}: {self.a} against {self.b} at {self.index}, {self.differing} of "
            f"{self.output_a.size} elements differ, by up to {self.difference:.3g} of the largest; "
            f"casts {self.casts_a} against {self.casts_b}"
        )


def first_divergence(
    fn: Callable[..., Any],
    policy_a: Policy | None,
    policy_b: Policy | None,
    *args: Any,
    threshold: float = 0.0,
    ops: str | Sequence[str] = (),
    executions: int = EXECUTIONS,
    params: Params = None,
    static_argnames: Sequence[str] = (),
    **kwargs: Any,
) -> Divergence | None:
    """Return the first site, in program order, whose output differs between two policies.

    Watched are matmuls, convolutions, every operation that a rule of either policy speaks of, and
    ``ops``; an output is compared as the operation leaves it, with its casts. The function runs
    once under each policy, operation by operation outside of loops and jitted parts, so that up to
    the first cast that differs both runs have the same bits. The result is on the host: not for
    use inside of jit.

    Special values: a NaN equals a NaN, -0 equals 0; an infinity or NaN on one side only is beyond
    every threshold.

    Args:
        fn: as for `npusim.simulate`; give the gradient to see the backward pass.
        policy_a: rules of the first run; None: the plain function.
        policy_b: rules of the second run; None: the plain function.
        *args: arguments of ``fn``.
        threshold: differences up to this share of the largest magnitude in the first run's output
            do not count. 0: any difference does.
        ops: further primitives to watch, e.g. ``("exp", "reduce_sum")``.
        executions: how many executions of one site are compared, the first ones; they are held in
            memory together. More matter in long loops only.
        params: as for `npusim.simulate`.
        static_argnames: as for `npusim.simulate`.
        **kwargs: keyword arguments of ``fn``.

    Returns:
        The divergence, or None where every watched output agrees.

    Raises:
        InputError: a threshold below 0 or NaN, or no execution to compare.
        PolicyError: no policies, or unknown ``ops``.

    Example:
        >>> import jax.numpy as jnp, npusim as npu
        >>> cut = npu.Policy([npu.Rule(input="fp8_e4m3")])
        >>> found = first_divergence(lambda w, x: x @ w, None, cut, jnp.eye(2), jnp.ones((1, 2)))
        >>> found is None
        True
        >>> x = jnp.array([[1.0, 1.1]])
        >>> print(first_divergence(lambda w, x: x @ w, None, cut, jnp.eye(2), x))
        (top level) dot_general forward: 1.1000000... against 1.125 at (0, 1), 1 of 2 elements
        differ, by up to 0.0227 of the largest; casts nothing against input 0: fp8_e4m3
    """
    if isinstance(threshold, bool | str) or not threshold >= 0:
        raise InputError(message(f"threshold={threshold!r}", "a number of at least 0", "Raise it."))
    if isinstance(executions, bool) or not isinstance(executions, int) or executions < 1:
        raise InputError(
            message(f"executions={executions!r}", "a whole number of at least 1", "Raise it.")
        )
    pair = [Policy([]) if policy is None else policy for policy in (policy_a, policy_b)]
    for policy in pair:
        simulate(fn, policy)  # refuses what is no function or policy
    more = Rule(ops=ops).primitives if ops else ()
    call = take_apart(args, kwargs, params, static_argnames, _names(fn))
    watched = list(dict.fromkeys([*watched_ops(*pair), *more]))
    run_a, run_b = (watch(fn, policy, call, watched, executions) for policy in pair)
    return first(run_a, run_b, threshold)


def first(run_a: Run, run_b: Run, threshold: float) -> Divergence | None:
    """Compare execution by execution, in the order they ran in."""
    moments = []
    for number, ((_, nest, a), (_, _, b)) in enumerate(zip(run_a.sites, run_b.sites, strict=True)):
        kept = max(rows_of(a)[0], rows_of(b)[0])
        moments += [(nest.moment(k), number, k) for k in range(kept)]
    heapq.heapify(moments)
    while moments:
        _, number, execution = heapq.heappop(moments)
        (site_a, _, a), (site_b, _, b) = run_a.sites[number], run_b.sites[number]
        found = _compare(site_a, site_b, a, b, execution, threshold)
        if found is not None:
            return found
    return None


def _compare(
    site_a: Site, site_b: Site, a: Outputs, b: Outputs, execution: int, threshold: float
) -> Divergence | None:
    (count_a, values_a), (count_b, values_b) = rows_of(a), rows_of(b)
    ran = execution < count_a, execution < count_b
    for rows_a, rows_b in zip(values_a, values_b, strict=True):
        x, y = rows_a[execution], rows_b[execution]
        if not all(ran):
            # One run went on in a loop or took a branch that the other did not: against NaN.
            nothing = np.full(x.shape, np.nan)
            x, y = (x if ran[0] else nothing), (y if ran[1] else nothing)
        share, index, differing = difference(x, y)
        if share > threshold:
            return Divergence(
                path=site_a.path,
                op=site_a.op,
                direction=site_a.direction,
                execution=execution,
                index=index,
                a=x[index].item(),
                b=y[index].item(),
                difference=share,
                differing=differing,
                output_a=x,
                output_b=y,
                casts_a=_casts(site_a),
                casts_b=_casts(site_b),
                source=site_a.source,
            )
    return None


def _casts(site: Site) -> str:
    return ", ".join(f"{where}: {what}" for where, what in site.casts) or "nothing"


def difference(a: np.ndarray, b: np.ndarray) -> tuple[float, tuple[int, ...], int]:
    """Return the largest difference as a share of the largest ``|a|``, its place, and the count.

    Example:
        >>> difference(np.array([4.0, 1.0]), np.array([4.0, 2.0]))
        (0.25, (1,), 1)
        >>> difference(np.array([np.nan, 1.0]), np.array([np.nan, np.inf]))
        (inf, (1,), 1)
    """
    wide = np.complex128 if np.iscomplexobj(a) or np.iscomplexobj(b) else np.float64
    x, y = a.astype(wide), b.astype(wide)
    if x.size == 0:
        return 0.0, (), 0
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    finite = np.isfinite(x) & np.isfinite(y)
    with np.errstate(invalid="ignore", over="ignore"):
        distance = np.where(same, 0.0, np.where(finite, np.abs(x - y), np.inf))
    top = float(np.max(np.abs(x), initial=0.0, where=np.isfinite(x)))
    place = np.unravel_index(int(np.argmax(distance)), distance.shape)
    largest = float(distance[place])
    share = 0.0 if largest == 0 else (np.inf if top == 0 else largest / top)
    return share, tuple(int(i) for i in place), int((~same).sum())
