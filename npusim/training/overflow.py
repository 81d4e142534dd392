"""The two overflow modes of the device: a policy in either, and one step in both."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from npusim._errors import PolicyError, UnknownNameError, message, nearest
from npusim.inject import Policy, simulate
from npusim.inject.arguments import Params, take_apart
from npusim.inject.transform import _names
from npusim.modes import OverflowMode, SaturationMode
from npusim.training.divergence import EXECUTIONS, Divergence, first
from npusim.training.flag import flagged
from npusim.training.watch import watch, watched_ops


def with_overflow(policy: Policy, mode: OverflowMode | str) -> Policy:
    """Return the policy with its float casts in an overflow mode of the device.

    Under pypto and aclnn the mode is the target's. Elsewhere it is the satmode of each cast:
    SATURATE is ON and INF_NAN is OFF, for float formats; integers keep theirs, which another switch
    of the device decides, and float32 keeps infinities in both modes.

    Raises:
        UnknownNameError: an unknown mode.
        PolicyError: a cast whose format is traced and brings its saturation along.

    Source: INF_NAN_MODE_ENABLE page of Ascend/pytorch; the device switch covers float16 and
        bfloat16, for narrower floats this is the cast's own saturation.

    Example:
        >>> import npusim as npu
        >>> with_overflow(npu.Policy([npu.Rule(output="fp16")]), "INF_NAN").rules
        (Rule(ops='matmul', output=CastSpec(fp16 sat=OFF)),)
    """
    name = mode.upper() if isinstance(mode, str) else mode
    if name not in OverflowMode.__members__:
        hint = nearest(str(name), OverflowMode.__members__)
        raise UnknownNameError(
            message(f"overflow mode {mode!r}", ", ".join(OverflowMode), f"{hint}Pass one of these.")
        )
    chosen = OverflowMode[name]
    target = policy.target
    if target is not None and target.api in ("pypto", "aclnn"):
        return Policy(policy.rules, dataclasses.replace(target, overflow=chosen))
    satmode = SaturationMode.ON if chosen is OverflowMode.SATURATE else SaturationMode.OFF
    rules = []
    for number, rule in enumerate(policy.rules):
        changed = {}
        for role, spec in rule.casts():
            if spec.traced:
                raise PolicyError(
                    message(
                        f"rule {number + 1}, {role}: traced FormatParams with an overflow mode",
                        "static formats",
                        "Name the format, or build the FormatParams with the satmode you mean.",
                    )
                )
            if spec.dtype.kind == "float":
                changed[role] = dataclasses.replace(spec, satmode=satmode)
        rules.append(dataclasses.replace(rule, **changed))
    return Policy(rules, target)


@dataclasses.dataclass(frozen=True, eq=False)
class OverflowComparison:
    """The same step under both overflow modes.

    Attributes:
        first: the first site that differs, INF_NAN in ``a``, SATURATE in ``b``; None: none does.
        overflow: whether the overflow flag went up under SATURATE, forward pass included.
        inf_nan: what the function returned under INF_NAN.
        saturate: what it returned under SATURATE.
    """

    first: Divergence | None
    overflow: bool
    inf_nan: Any
    saturate: Any


def compare_overflow_modes(
    fn: Callable[..., Any],
    policy: Policy,
    *args: Any,
    threshold: float = 0.0,
    executions: int = EXECUTIONS,
    params: Params = None,
    static_argnames: Sequence[str] = (),
    **kwargs: Any,
) -> OverflowComparison:
    """Run the same step under INF_NAN and SATURATE and report the first site that differs.

    Args:
        fn: as for `first_divergence`.
        policy: the rules; `with_overflow` puts each mode in.
        *args: arguments of ``fn``.
        threshold: as for `first_divergence`.
        executions: as for `first_divergence`.
        params: as for `npusim.simulate`.
        static_argnames: as for `npusim.simulate`.
        **kwargs: keyword arguments of ``fn``.

    Raises:
        PolicyError, UnknownNameError: as `with_overflow` and `first_divergence` raise them.

    Example:
        >>> import jax.numpy as jnp, npusim as npu
        >>> policy = npu.Policy([npu.Rule(output="fp16")])
        >>> big = jnp.full((1, 1), 1e5)
        >>> found = compare_overflow_modes(lambda w, x: x @ w, policy, jnp.eye(1), big)
        >>> found.first.a, found.first.b, found.overflow
        (inf, 65504.0, True)
    """
    simulate(fn, policy)  # refuses what is no function or policy
    call = take_apart(args, kwargs, params, static_argnames, _names(fn))
    modes = [with_overflow(policy, mode) for mode in (OverflowMode.INF_NAN, OverflowMode.SATURATE)]
    watched = watched_ops(policy)
    run_a, run_b = (watch(fn, one, call, watched, executions) for one in modes)
    step = flagged(fn, modes[1], since="start", params=params, static_argnames=static_argnames)
    _, flag = step(*args, **kwargs)
    return OverflowComparison(first(run_a, run_b, threshold), bool(flag), run_a.out, run_b.out)
