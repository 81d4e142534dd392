"""Loss scaling by the rules of MindSpore and torch_npu, as pure functions on a small state.

A scale multiplies the loss, and with it every gradient, so that small gradients survive a narrow
format; it is divided out again before the optimizer. After an overflow the step is skipped and the
scale lowered. Where the device saturates, an overflow leaves no infinity behind: those rules read
the overflow flag instead (`npusim.training.flagged`).
"""

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from npusim._errors import InputError, UnknownNameError, message, nearest
from npusim.casting import fake_cast
from npusim.inject import scaling

DETECTORS = ("gradients", "flag")


class LossScaleState(NamedTuple):
    """The moving part of a loss scale: a pytree of scalars.

    Attributes:
        scale: the scale of the next step, float32.
        clean: steps without overflow since the scale last changed or an overflow, int32.
        skipped: steps skipped so far, int32.
    """

    scale: jax.Array
    clean: jax.Array
    skipped: jax.Array


@dataclasses.dataclass(frozen=True, kw_only=True)
class LossScale:
    """The rule by which a loss scale moves. Static and hashable; `init` makes its state.

    Attributes:
        name: of the row it came from.
        initial: the first scale.
        growth: factor after ``interval`` clean steps; 1: the scale never grows.
        backoff: factor at an overflow; 1: it never shrinks.
        interval: clean steps in a row until it grows.
        minimum: the scale does not shrink below; 0: no bound.
        growth_stays_finite: whether it refuses to grow to infinity.
        detect: what an overflow is: ``gradients``: an infinity or NaN in a gradient; ``flag``: the
            device's overflow flag, for the mode in which a gradient saturates instead.
        skip: whether the step is skipped at an overflow.
        source: where the rule comes from.

    Raises:
        InputError: numbers that are no rule.

    Example:
        >>> rule = LossScale.dynamic("torch_npu", interval=2)
        >>> state = rule.init()
        >>> for overflow in (False, False, True):
        ...     state = rule.adjust(state, overflow)
        >>> float(state.scale), int(state.clean), int(state.skipped)
        (65536.0, 0, 1)
    """

    name: str
    initial: float
    growth: float
    backoff: float
    interval: int
    minimum: float
    growth_stays_finite: bool
    detect: str
    skip: bool
    source: str

    def __post_init__(self):
        if self.detect not in DETECTORS:
            raise UnknownNameError(
                message(
                    f"detect {self.detect!r}",
                    ", ".join(DETECTORS),
                    f"{nearest(str(self.detect), DETECTORS)}Pass one of these names.",
                )
            )
        for name, allowed, holds in (
            ("initial", "a positive normal float32 number", lambda v: 2.0**-126 <= v < 2.0**128),
            ("growth", "a finite number of at least 1", lambda v: 1 <= v < math.inf),
            ("backoff", "a number above 0 and at most 1", lambda v: 0 < v <= 1),
            ("interval", "a whole number of at least 1", lambda v: v >= 1 and v == int(v)),
            ("minimum", "a finite number of at least 0", lambda v: 0 <= v < math.inf),
        ):
            given = getattr(self, name)
            number = isinstance(given, int | float) and not isinstance(given, bool)
            if not number or not math.isfinite(given) or not holds(given):
                raise InputError(
                    message(f"{name}={given!r} of a loss scale", allowed, f"Correct {name}.")
                )

    @classmethod
    def static(
        cls, value: float = 128.0, *, detect: str = "gradients", skip: bool = True
    ) -> "LossScale":
        """Return a scale that stays.

        Args:
            value: the scale.
            detect: ``gradients`` or ``flag``.
            skip: whether a step with an overflow is skipped (``drop_overflow_update``).

        Source: MindSpore FixedLossScaleManager, whose defaults these are.

        Example:
            >>> float(LossScale.static(1024).init().scale)
            1024.0
        """
        row = LOSS_SCALES["mindspore_fixed"]
        return dataclasses.replace(row, initial=value, detect=detect, skip=skip)

    @classmethod
    def dynamic(cls, rule: str = "torch_npu", **changes: Any) -> "LossScale":
        """Return a scale that moves by the rule of a row of `LOSS_SCALES`.

        Args:
            rule: name of the row.
            **changes: fields that differ from it, e.g. ``initial`` or ``interval``.

        Raises:
            UnknownNameError: no such row or field.

        Example:
            >>> LossScale.dynamic("mindspore").initial
            16777216.0
        """
        if rule not in LOSS_SCALES:
            hint = nearest(str(rule), LOSS_SCALES)
            raise UnknownNameError(
                message(f"loss scale {rule!r}", ", ".join(LOSS_SCALES), f"{hint}Pass a row's name.")
            )
        fields = [f.name for f in dataclasses.fields(cls)]
        for name in changes:
            if name not in fields:
                hint = nearest(name, fields)
                raise UnknownNameError(
                    message(f"field {name!r} of a loss scale", ", ".join(fields), f"{hint}Fix it.")
                )
        return dataclasses.replace(LOSS_SCALES[rule], **changes)

    def init(self) -> LossScaleState:
        """Return the state before the first step."""
        # Arrays of their own each: a step that donates its state must not see one twice.
        clean, skipped = (jnp.zeros((), jnp.int32) for _ in range(2))
        return LossScaleState(jnp.asarray(self.initial, jnp.float32), clean, skipped)

    def scale(self, loss: Any, state: LossScaleState) -> Any:
        """Return the loss (or a pytree of losses) times the scale, each in its own dtype.

        Special values: a float16 loss times 2**16 is infinite, as on the device; keep the loss in
        float32. Exact for a power of two unless the product leaves the dtype's range.

        Gradient: the scale. None flows into ``state``.

        Source: torch_npu GradScaler.scale; MindSpore casts the scale to the loss's dtype as well.

        Example:
            >>> rule = LossScale.static(8)
            >>> rule.scale(jnp.float32(1.5), rule.init())
            Array(12., dtype=float32)
        """
        factor = jax.lax.stop_gradient(state.scale)
        return jax.tree.map(lambda x: x * factor.astype(jnp.result_type(x)), loss)

    def unscale(self, grads: Any, state: LossScaleState, flag: Any = None) -> tuple[Any, jax.Array]:
        """Return the gradients with the scale divided out, and whether the step overflowed.

        Special values: division by a power of two moves the exponent in integers, so that it is
        exact down to the smallest subnormal (where it rounds to nearest even); by another number it
        is the product with the float32 reciprocal. Infinities and NaN stay. Leaves that are not
        float or complex are returned as they are.

        Args:
            grads: gradients of the scaled loss.
            state: the state that the loss was scaled with.
            flag: the overflow flag of the step, a scalar bool; needed where ``detect`` is ``flag``
                and counted in addition elsewhere (a flag of another process, say).

        Raises:
            InputError: the rule reads the flag and there is none.

        Source: torch_npu GradScaler and op-plugin AmpForeachNonFiniteCheckAndUnscale (in
            saturation mode the flag decides alone); MindSpore ``grad * Reciprocal()(scale)``.

        Example:
            >>> rule = LossScale.static(8)
            >>> rule.unscale(jnp.array([4.0, jnp.inf]), rule.init())
            (Array([0.5, inf], dtype=float32), Array(True, dtype=bool))
        """
        if self.detect == "flag" and flag is None:
            raise InputError(
                message(
                    f"no overflow flag for the loss scale {self.name!r}",
                    "a scalar bool: the flag of the step",
                    "Take it from npusim.training.flagged(step, policy), or use a rule that looks "
                    "for infinities in the gradients.",
                )
            )
        overflow = jnp.asarray(False if flag is None else flag, bool)
        if self.detect == "gradients":
            overflow = overflow | ~all_finite(grads)
        return jax.tree.map(lambda g: _divided(g, state.scale), grads), overflow

    def adjust(self, state: LossScaleState, overflow: Any) -> LossScaleState:
        """Return the state of the next step.

        Source: the rule's ``source``. The counter is reset when the scale grows and at an
            overflow; MindSpore's cell gets the same from the number of the last such step.

        Example:
            >>> rule = LossScale.dynamic("mindspore", initial=1.0)
            >>> float(rule.adjust(rule.init(), True).scale)  # its minimum
            1.0
        """
        overflow = jnp.asarray(overflow, bool)
        scale = state.scale
        clean = state.clean + 1
        full = clean >= self.interval
        grown = scale * jnp.float32(self.growth)
        if self.growth_stays_finite:
            grown = jnp.where(jnp.isfinite(grown), grown, scale)
        shrunk = jnp.maximum(scale * jnp.float32(self.backoff), jnp.float32(self.minimum))
        return LossScaleState(
            jnp.where(overflow, shrunk, jnp.where(full, grown, scale)),
            jnp.where(overflow | full, jnp.zeros_like(clean), clean),
            state.skipped + (overflow & self.skip).astype(jnp.int32),
        )


def all_finite(tree: Any) -> jax.Array:
    """Return whether no float in the tree is infinite or NaN.

    Example:
        >>> bool(all_finite({"a": jnp.ones(2), "steps": 3}))
        True
    """
    leaves = [leaf for leaf in jax.tree.leaves(tree) if _is_inexact(leaf)]
    finite = [jnp.isfinite(leaf).all() for leaf in leaves]
    return jnp.stack(finite).all() if finite else jnp.asarray(True)


def _is_inexact(leaf: Any) -> bool:
    return jnp.issubdtype(jnp.result_type(leaf), jnp.inexact)


def _divided(x: Any, scale: jax.Array) -> Any:
    if not _is_inexact(x):
        return x
    x = jnp.asarray(x)
    if jnp.iscomplexobj(x):
        return jax.lax.complex(_divided(jnp.real(x), scale), _divided(jnp.imag(x), scale))
    if x.dtype == np.float64:
        return x / scale.astype(x.dtype)
    wide = x.astype(jnp.float32)
    word = scaling.word(scale)
    exponent = (word >> np.uint32(23)).astype(jnp.int32) - 127
    power_of_two = (word & np.uint32(0x007F_FFFF)) == 0
    out = jnp.where(power_of_two, scaling.shift(wide, -exponent), wide * (1 / scale))
    if x.dtype == np.float32:
        return out
    return fake_cast(out, x.dtype, "RINT", "OFF").astype(x.dtype)


def _row(**fields: Any) -> LossScale:
    return LossScale(skip=True, **fields)


_TORCH = "Ascend/pytorch torch_npu/npu/amp/grad_scaler.py"
_MINDSPORE = "mindspore-ai/mindspore mindspore/python/mindspore"

LOSS_SCALES: dict[str, LossScale] = {
    row.name: row
    for row in (
        _row(
            name="torch_npu",
            initial=2.0**16,
            growth=2.0,
            backoff=0.5,
            interval=2000,
            minimum=0.0,
            growth_stays_finite=False,
            detect="gradients",
            source=f"{_TORCH} (GradScaler, device in INF_NAN mode)",
        ),
        _row(
            name="torch_npu_flag",
            initial=2.0**16,
            growth=2.0,
            backoff=0.5,
            interval=2000,
            minimum=0.0,
            growth_stays_finite=False,
            detect="flag",
            source=f"{_TORCH} (GradScaler, device in saturation mode: clears the overflow flag in "
            "scale() and reads it when unscaling)",
        ),
        _row(
            name="mindspore",
            initial=2.0**24,
            growth=2.0,
            backoff=0.5,
            interval=2000,
            minimum=1.0,
            growth_stays_finite=False,
            detect="gradients",
            source=f"{_MINDSPORE}/nn/wrap/loss_scale.py (DynamicLossScaleUpdateCell), defaults of "
            "train/loss_scale_manager.py (DynamicLossScaleManager)",
        ),
        _row(
            name="mindspore_flag",
            initial=2.0**24,
            growth=2.0,
            backoff=0.5,
            interval=2000,
            minimum=1.0,
            growth_stays_finite=False,
            detect="flag",
            source=f"{_MINDSPORE}/nn/wrap/loss_scale.py (DynamicLossScaleUpdateCell after "
            "TrainOneStepWithLossScaleCell, which clears NPUFloatStatus after the forward pass and "
            "reads it after the backward pass)",
        ),
        _row(
            name="mindspore_amp",
            initial=2.0**16,
            growth=2.0,
            backoff=0.5,
            interval=2000,
            minimum=1.0,
            growth_stays_finite=True,
            detect="gradients",
            source=f"{_MINDSPORE}/amp.py (DynamicLossScaler); it has no defaults: initial, growth "
            "and interval are assumed",
        ),
        _row(
            name="mindspore_fixed",
            initial=128.0,
            growth=1.0,
            backoff=1.0,
            interval=1,
            minimum=0.0,
            growth_stays_finite=False,
            detect="gradients",
            source=f"{_MINDSPORE}/train/loss_scale_manager.py (FixedLossScaleManager)",
        ),
    )
}
"""Rules by name, each with its source."""
