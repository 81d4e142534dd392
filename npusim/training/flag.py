"""The NPU's overflow flag as a value beside the result of a step."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from npusim._errors import UnknownNameError, message, nearest
from npusim.inject import CastSpec, Policy, Site, apply_cast, observe
from npusim.inject.arguments import Params
from npusim.inject.walker import Seen
from npusim.modes import Target

SINCE = ("backward", "start")


def flagged(
    fn: Callable[..., Any],
    policy: Policy,
    *,
    since: str = "backward",
    params: Params = None,
    static_argnames: Sequence[str] = (),
) -> Callable[..., tuple[Any, jax.Array]]:
    """Return `npusim.simulate`'s function, which also returns the overflow flag of the step.

    The flag goes up where a cast to a float format overflowed or met an infinity or NaN, whether
    the result was saturated or not. So it tells of overflows that saturation hides, and
    `npusim.training.LossScale` rules with ``detect="flag"`` take it. Casts to integers do not raise
    it (assumed: they are not float operations).

    Wrap the gradient, ``flagged(jax.value_and_grad(loss), policy)``, to see the backward pass;
    inside of a gradient only forward casts are seen, and ``since`` has to be ``start``.

    Gradient: as `npusim.simulate`; none flows into the flag.

    Args:
        fn: as for `npusim.simulate`.
        policy: as for `npusim.simulate`.
        since: when the flag is cleared: ``backward``, after the loss, as torch_npu and MindSpore do
            (what rematerialisation repeats then counts), or ``start``, so that the forward pass
            counts too.
        params: as for `npusim.simulate`.
        static_argnames: as for `npusim.simulate`.

    Raises:
        UnknownNameError: an unknown ``since``.

    Source: torch_npu GradScaler.scale clears the flag and unscale_ reads it; MindSpore
        TrainOneStepWithLossScaleCell.start_overflow_check, get_overflow_status.

    Example:
        >>> import npusim as npu
        >>> policy = npu.Policy([npu.Rule(grad=npu.CastSpec("fp16", satmode="ON"))])
        >>> step = flagged(jax.grad(lambda w, x, s: jnp.sum(x @ w) * s), policy)
        >>> w, x = jnp.ones((1, 1)), jnp.ones((1, 1))
        >>> step(w, x, 2.0**10)
        (Array([[1024.]], dtype=float32), Array(False, dtype=bool))
        >>> step(w, x, 2.0**20)  # saturated: nothing in the gradient shows it
        (Array([[65504.]], dtype=float32), Array(True, dtype=bool))
    """
    if since not in SINCE:
        raise UnknownNameError(
            message(
                f"since={since!r}",
                ", ".join(SINCE),
                f"{nearest(str(since), SINCE)}Pass one of these names.",
            )
        )
    observer = _Flag(policy.cast_target, since) if isinstance(policy, Policy) else _Flag(None, "")
    observed = observe(fn, policy, observer, params=params, static_argnames=static_argnames)

    @functools.wraps(fn)
    def step(*args: Any, **kwargs: Any) -> tuple[Any, jax.Array]:
        out, records = observed(*args, **kwargs)
        flag = functools.reduce(jnp.logical_or, records.values, jnp.asarray(False))
        return out, flag

    return step


@dataclasses.dataclass(frozen=True)
class _Flag:
    """An observer whose record is one bool."""

    target: Any
    since: str

    def empty(self, site: Site) -> jax.Array:
        return jnp.asarray(False)

    def record(self, site: Site, seen: Sequence[Seen]) -> jax.Array:
        up = jnp.asarray(False)
        if self.since == "backward" and site.direction == "forward" and not site.recomputed:
            return up
        for one in seen:
            if one.spec.traced or one.spec.dtype.kind == "float":
                up = up | overflowed(one.spec, one.before, target=self.target)
        return up

    def join(self, a: jax.Array, b: jax.Array) -> jax.Array:
        return a | b


def overflowed(spec: CastSpec, x: jax.Array, *, target: Target) -> jax.Array:
    """Return whether any element leaves the format's range, or is infinite or NaN.

    Example:
        >>> from npusim.modes import LABORATORY
        >>> bool(overflowed(CastSpec("fp16"), jnp.array([65519.0]), target=LABORATORY))
        False
        >>> bool(overflowed(CastSpec("fp16"), jnp.array([65520.0]), target=LABORATORY))
        True
    """
    # The gradient rule "clip" is zero exactly there, scale and intermediate format included.
    clip = dataclasses.replace(spec, ste="clip")
    x = jax.lax.stop_gradient(x)
    _, passes = jax.jvp(lambda v: apply_cast(clip, v, target=target), (x,), (jnp.ones_like(x),))
    return jnp.any(passes == 0)
