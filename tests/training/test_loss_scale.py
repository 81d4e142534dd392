"""Loss scales: each rule's states step by step, exact scaling, skipped steps, error texts."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import npusim as npu
from npusim._errors import InputError, UnknownNameError
from npusim.training import LOSS_SCALES, LossScale, LossScaleState, all_finite, with_loss_scale
from tests.helpers import same_arrays

F, T = False, True


def run(rule, overflows):
    """(scale, clean, skipped) after each step."""
    state, seen = rule.init(), []
    for overflow in overflows:
        state = rule.adjust(state, overflow)
        seen.append((float(state.scale), int(state.clean), int(state.skipped)))
    return seen


# Written down from the sources of the rows, by hand.
HISTORIES = {
    # GradScaler: scale * 0.5 and counter 0 at an overflow, * 2 when the counter reaches interval.
    "torch_npu": [
        ([F, F, F, F], [(8, 1, 0), (8, 2, 0), (16, 0, 0), (16, 1, 0)]),
        ([F, F, T, F, F, F], [(8, 1, 0), (8, 2, 0), (4, 0, 1), (4, 1, 1), (4, 2, 1), (8, 0, 1)]),
        ([T] * 5, [(4, 0, 1), (2, 0, 2), (1, 0, 3), (0.5, 0, 4), (0.25, 0, 5)]),
    ],
    # DynamicLossScaleUpdateCell: the same by iteration numbers, never below 1.
    "mindspore": [
        ([F, F, F, F], [(8, 1, 0), (8, 2, 0), (16, 0, 0), (16, 1, 0)]),
        ([T] * 5, [(4, 0, 1), (2, 0, 2), (1, 0, 3), (1, 0, 4), (1, 0, 5)]),
    ],
    "mindspore_amp": [
        ([F, F, F, T, F], [(8, 1, 0), (8, 2, 0), (16, 0, 0), (8, 0, 1), (8, 1, 1)]),
    ],
}
HISTORIES |= {f"{name}_flag": HISTORIES[name] for name in ("torch_npu", "mindspore")}


@pytest.mark.parametrize("name", HISTORIES)
def test_states_step_by_step(name):
    rule = LossScale.dynamic(name, initial=8.0, interval=3)
    for overflows, want in HISTORIES[name]:
        assert run(rule, overflows) == want


def mindspore_cell(overflows, scale, factor, window):
    """DynamicLossScaleUpdateCell as its source states it: by iteration numbers."""
    now, last, seen = 1, 0, []
    for overflow in overflows:
        after = max(scale / factor, 1.0) if overflow else scale
        grows = window <= now - last
        if overflow or grows:
            last = now
        scale = after * factor if grows and not overflow else after
        seen.append(scale)
        now += 1
    return seen


def test_mindspore_counts_like_its_cell():
    generator = np.random.default_rng(1)
    for window in (1, 2, 5):
        overflows = [bool(b) for b in generator.random(60) < 0.2]
        rule = LossScale.dynamic("mindspore", initial=64.0, interval=window)
        got = [scale for scale, *_ in run(rule, overflows)]
        assert got == mindspore_cell(overflows, 64.0, 2.0, window)


def test_static_stays():
    rule = LossScale.static(1024)
    assert [s for s, *_ in run(rule, [F, T, F, T])] == [1024] * 4
    assert run(rule, [T, T])[-1][2] == 2
    assert run(LossScale.static(1024, skip=False), [T, T])[-1][2] == 0


def test_growth_to_infinity_is_a_property_of_the_row():
    top = 2.0**127
    for name, want in (("torch_npu", np.inf), ("mindspore", np.inf), ("mindspore_amp", top)):
        rule = LossScale.dynamic(name, initial=top, interval=1)
        assert run(rule, [F])[0][0] == want


@pytest.mark.parametrize("row", LOSS_SCALES.values(), ids=LOSS_SCALES)
def test_rows(row):
    assert row.source
    assert row.name in LOSS_SCALES
    assert hash(row) == hash(dataclasses.replace(row))
    for field in dataclasses.fields(row):
        assert field.default is dataclasses.MISSING, "no default for a field of a row"
    for number in (row.initial, row.growth, row.backoff):
        assert np.frexp(number)[0] == 0.5, "powers of two, so that unscaling is exact"


def test_state_is_a_pytree():
    state = LossScaleState(jnp.float32(4), jnp.int32(2), jnp.int32(7))
    leaves, tree = jax.tree.flatten(state)
    assert [float(leaf) for leaf in leaves] == [4, 2, 7]
    again = jax.tree.unflatten(tree, leaves)
    assert isinstance(again, LossScaleState)
    same_arrays(again, state, "state")


SUBNORMAL = np.float32(3 * 2.0**-149)


@pytest.mark.parametrize("scale", [8.0, 2.0**-3, 2.0**100])
def test_unscale_is_exact_for_powers_of_two(scale):
    grads = np.float32([0.0, -0.0, 1.5, -3.25e-30, SUBNORMAL, 1e38, np.inf, np.nan])
    rule = LossScale.static(scale)
    got, overflow = jax.jit(rule.unscale)(jnp.asarray(grads), rule.init())
    with np.errstate(over="ignore", under="ignore"):
        want = (grads.astype(np.float64) / scale).astype(np.float32)
    same = np.asarray(got).view(np.uint32)[:-1] == want.view(np.uint32)[:-1]
    assert same.all(), (got, want)
    assert np.isnan(got[-1])
    assert bool(overflow)


def test_unscale_by_another_number_is_the_product_with_its_reciprocal():
    rule = LossScale.static(1000.0)
    x = np.float32([1.0, 3.0, -7e5])
    got, overflow = jax.jit(rule.unscale)(jnp.asarray(x), rule.init())
    np.testing.assert_array_equal(got, x * (np.float32(1) / np.float32(1000)))
    assert not bool(overflow)


def test_unscale_keeps_dtypes_and_other_leaves():
    tree = {
        "half": jnp.float16([2.0**-14, 6.0]),
        "bf16": jnp.bfloat16([3.0]),
        "complex": jnp.complex64([2 + 4j]),
        "count": jnp.int32(3),
    }
    rule = LossScale.static(4.0)
    got, overflow = jax.jit(rule.unscale)(tree, rule.init())
    want = {
        "half": jnp.float16([2.0**-16, 1.5]),
        "bf16": jnp.bfloat16([0.75]),
        "complex": jnp.complex64([0.5 + 1j]),
        "count": jnp.int32(3),
    }
    same_arrays(got, want, "unscaled")
    assert not bool(overflow)
    assert bool(rule.unscale({"half": jnp.float16([jnp.inf])}, rule.init())[1])


def test_all_finite_of_nothing():
    assert bool(all_finite({}))
    assert not bool(all_finite([jnp.ones(2), jnp.array([1.0, jnp.nan])]))


def test_the_gradient_of_a_scaled_loss_is_scaled():
    rule = LossScale.static(16.0)
    state = rule.init()
    grad = jax.grad(lambda w: rule.scale(jnp.sum(w**2), state))(jnp.array([3.0]))
    assert float(grad[0]) == 96.0
    both = rule.scale((jnp.float32(1), jnp.float16(2)), state)
    assert [str(x.dtype) for x in both] == ["float32", "float16"]
    assert np.isinf(
        LossScale.static(2.0**16).scale(jnp.float16(1), LossScale.static(2.0**16).init())
    )


def test_a_step_with_an_overflow_changes_nothing_but_the_scale():
    rule = LossScale.dynamic("torch_npu", initial=4.0, interval=2)
    optimizer = with_loss_scale(optax.adam(0.1), rule)
    params = {"w": jnp.array([1.0, -0.0, 0.0])}
    state = optimizer.init(params)
    bad = {"w": jnp.array([1.0, jnp.inf, 0.0])}
    updates, after = optimizer.update(bad, state, params)
    same_arrays(optax.apply_updates(params, updates), params, "parameters, signs of zeros too")
    same_arrays(after.inner, state.inner, "optimizer state")
    assert (float(after.loss_scale.scale), int(after.loss_scale.skipped)) == (2.0, 1)

    good = {"w": jnp.array([4.0, 2.0, -4.0])}
    updates, after = optimizer.update(good, state, params)
    plain = optax.adam(0.1)
    want, _ = plain.update({"w": jnp.array([1.0, 0.5, -1.0])}, plain.init(params), params)
    same_arrays(updates, want, "unscaled update")
    assert int(after.loss_scale.clean) == 1


def test_without_skipping_the_update_is_made():
    optimizer = with_loss_scale(optax.sgd(1.0), LossScale.static(2.0, skip=False))
    params = jnp.array([1.0, 1.0])
    updates, state = optimizer.update(jnp.array([2.0, jnp.inf]), optimizer.init(params), params)
    np.testing.assert_array_equal(optax.apply_updates(params, updates), [0.0, -np.inf])
    assert int(state.loss_scale.skipped) == 0


def test_flag_rules_do_not_look_at_gradients():
    rule = LossScale.dynamic("torch_npu_flag", initial=4.0)
    optimizer = with_loss_scale(optax.sgd(1.0), rule)
    params = jnp.array([1.0])
    state = optimizer.init(params)
    updates, after = optimizer.update(jnp.array([4.0]), state, params, overflow=True)
    assert float(optax.apply_updates(params, updates)[0]) == 1.0
    assert int(after.loss_scale.skipped) == 1
    updates, after = optimizer.update(jnp.array([4.0]), state, params, overflow=False)
    assert float(optax.apply_updates(params, updates)[0]) == 0.0
    assert int(after.loss_scale.skipped) == 0
    assert not bool(rule.unscale(jnp.array([jnp.inf]), state.loss_scale, flag=False)[1])


def test_a_flag_counts_beside_the_gradients():
    rule = LossScale.dynamic("torch_npu")
    assert bool(rule.unscale(jnp.ones(1), rule.init(), flag=True)[1])


def test_saturated_training_needs_the_flag():
    """In saturation mode the gradient looks finite: only the flag brings the scale down."""
    spec = npu.CastSpec("fp16", satmode="ON")
    policy = npu.Policy([npu.Rule(grad=spec, input=spec, weight=spec)])

    def loss(params, x, scale):
        return jnp.sum(x @ params) * scale

    def train(name):
        rule = LossScale.dynamic(name, initial=2.0**20)
        optimizer = with_loss_scale(optax.sgd(1e-3), rule)
        step = npu.training.flagged(jax.grad(loss), policy)
        params, x = jnp.ones((2, 1)), jnp.ones((1, 2))

        def one(carry, _):
            params, state = carry
            grads, flag = step(params, x, state.loss_scale.scale)
            updates, state = optimizer.update(
                grads, state, params, overflow=flag & (name[-1] == "g")
            )
            return (optax.apply_updates(params, updates), state), state.loss_scale

        return jax.jit(lambda p: jax.lax.scan(one, (p, optimizer.init(p)), None, 6))(params)

    (params, _), states = train("torch_npu_flag")
    # 2**20 .. 2**16 overflow half, 2**15 does not.
    np.testing.assert_array_equal(states.scale, 2.0 ** np.array([19, 18, 17, 16, 15, 15]))
    np.testing.assert_array_equal(states.skipped, [1, 2, 3, 4, 5, 5])
    np.testing.assert_array_equal(params, np.float32(1) - np.float32(1e-3))
    _, blind = train("torch_npu")
    assert set(np.asarray(blind.skipped)) == {0}, "saturation hides it from the gradients"


def test_same_states_under_jit_and_scan():
    rule = LossScale.dynamic("torch_npu", interval=2)
    overflows = jnp.array([F, F, T, F, F, T])
    eager = run(rule, [bool(o) for o in overflows])
    _, states = jax.jit(
        lambda xs: jax.lax.scan(lambda s, o: (rule.adjust(s, o),) * 2, rule.init(), xs)
    )(overflows)
    got = [(float(a), int(b), int(c)) for a, b, c in zip(*states, strict=True)]
    assert got == eager


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (
            lambda: LossScale.dynamic("torch_np"),
            UnknownNameError,
            "Given: loss scale 'torch_np'. Allowed: torch_npu, .* Did you mean 'torch_npu'",
        ),
        (
            lambda: LossScale.dynamic(intervall=3),
            UnknownNameError,
            "Given: field 'intervall' of a loss scale. Allowed: name, initial, .*'interval'",
        ),
        (
            lambda: LossScale.static(0),
            InputError,
            "Given: initial=0 of a loss scale. Allowed: a positive normal float32 number. Correct",
        ),
        (
            lambda: LossScale.dynamic(interval=0),
            InputError,
            "Given: interval=0 .* Allowed: a whole number of at least 1",
        ),
        (
            lambda: LossScale.static(detect="nan"),
            UnknownNameError,
            "Given: detect 'nan'. Allowed: gradients, flag",
        ),
        (
            lambda: LossScale.dynamic("mindspore_flag").unscale(1.0, LossScale.static().init()),
            InputError,
            "Given: no overflow flag for the loss scale 'mindspore_flag'. Allowed: a scalar bool",
        ),
    ],
)
def test_messages(make, error, text):
    with pytest.raises(error, match=text):
        make()
