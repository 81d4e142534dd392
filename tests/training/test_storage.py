"""Stored parameters, master copies and moments: the bits are those of npu.cast."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import npusim as npu
from npusim._errors import InputError, UnknownNameError
from npusim.training import (
    LossScale,
    NewValue,
    StoredState,
    stored,
    stored_in,
    with_loss_scale,
)
from tests.helpers import same_arrays

LAB = npu.Target(api="numerics")
RNG = np.random.default_rng(7)
W = jnp.asarray(RNG.normal(size=257).astype(np.float32))
G = [jnp.asarray(RNG.normal(size=257).astype(np.float32)) for _ in range(4)]
SPECS = [
    ("fp16", "RINT", "ON"),
    ("bf16", "TRUNC", "ON"),
    ("bf16", "FLOOR", "OFF"),
    ("fp8_e4m3", "CEIL", "ON"),
]


def held(x, fmt, mode, satmode):
    """What npu.cast stores, as float32."""
    return npu.cast(x, fmt, mode, satmode, target=LAB).astype(jnp.float32)


def spec_of(fmt, mode, satmode):
    return npu.CastSpec(fmt, mode, satmode)


def train(optimizer, params, grads):
    state = optimizer.init(params)
    seen = []
    for grad in grads:
        updates, state = optimizer.update(grad.astype(params.dtype), state, params)
        params = optax.apply_updates(params, updates)
        seen.append(params)
    return seen, state


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_parameters_are_rounded_after_each_update(spec):
    start = stored(W, spec_of(*spec))
    got, _ = train(stored_in(optax.sgd(0.1), spec_of(*spec)), start, G)
    want = held(W, *spec)
    for params, grad in zip(got, G, strict=True):
        step, _ = optax.sgd(0.1).update(grad, optax.sgd(0.1).init(want), want)
        want = held(want + step, *spec)
        same_arrays(params, want, "stored parameters")


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_moments_are_rounded_after_each_update(spec):
    optimizer = stored_in(optax.adam(0.01), moments=spec_of(*spec))
    params, grads = W, G
    state = optimizer.init(params)
    plain, inner = optax.adam(0.01), optax.adam(0.01).init(W)
    for grad in grads:
        updates, state = optimizer.update(grad, state, params)
        _, inner = plain.update(grad, inner, params)
        adam = inner[0]
        inner = (adam._replace(mu=held(adam.mu, *spec), nu=held(adam.nu, *spec)), *inner[1:])
        same_arrays(state.inner, inner, "moments; the counter is an integer as before")
        params = optax.apply_updates(params, updates)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_master_copy_keeps_what_the_visible_parameters_lose(dtype):
    small = [jnp.full_like(W, -1e-4)] * 4
    visible = stored(W, dtype).astype(dtype)
    seen, state = train(stored_in(optax.sgd(1.0), master="fp32"), visible, small)
    assert seen[-1].dtype == visible.dtype
    want = visible.astype(jnp.float32)
    for params, grad in zip(seen, small, strict=True):
        want = want - grad.astype(visible.dtype).astype(jnp.float32)
        same_arrays(params, npu.cast(want, dtype, "RINT", "OFF", target=LAB), "visible")
    same_arrays(state.master, want, "master copy")


def test_a_master_copy_in_a_format_and_mode_of_its_own():
    optimizer = stored_in(
        optax.sgd(0.1), npu.CastSpec("fp8_e4m3", "TRUNC"), master=npu.CastSpec("bf16", "CEIL")
    )
    seen, state = train(optimizer, stored(W, "fp8_e4m3"), G)
    master = held(held(W, "fp8_e4m3", "RINT", "ON"), "bf16", "CEIL", "ON")
    for params, grad in zip(seen, G, strict=True):
        step, _ = optax.sgd(0.1).update(grad, optax.sgd(0.1).init(master), master)
        master = held(master + step, "bf16", "CEIL", "ON")
        same_arrays(params, held(master, "fp8_e4m3", "TRUNC", "ON"), "visible")
    same_arrays(state.master, master, "master")


def test_a_jump_over_many_binades_lands_exactly():
    tiny = jnp.float32(2.0**-24)
    updates, _ = stored_in(optax.sgd(1.0), "fp16").update(
        jnp.array([1000.0]) - tiny, StoredState(optax.sgd(1.0).init(0.0), ()), jnp.array([1000.0])
    )
    # 1000 - 2**-24 is no float32, so the step is to 0 here; what counts is that new values arrive.
    assert float(optax.apply_updates(jnp.array([1000.0]), updates)[0]) == 0.0
    for old in (jnp.float32(1.0), np.float32(1.0), jnp.float16(1.0), np.ones(1, np.float32)):
        assert np.all(old + NewValue(tiny) == tiny)


def test_amax_scaled_moments():
    optimizer = stored_in(optax.sgd(0.1, momentum=0.9), moments=npu.CastSpec("hif8", scale="amax"))
    _, state = train(optimizer, W, G[:1])
    from npusim.inject import apply_cast

    want = apply_cast(npu.CastSpec("hif8", scale="amax"), G[0])
    same_arrays(state.inner[0].trace, want, "trace")


def test_the_same_under_jit_and_scan():
    rule = LossScale.dynamic("torch_npu", initial=4.0, interval=2)
    optimizer = with_loss_scale(stored_in(optax.adam(0.05), "bf16", moments="bf16"), rule)
    params = {"w": stored(W, "bf16"), "b": jnp.float32(0.5)}
    grads = {"w": jnp.stack(G), "b": jnp.float32([1.0, jnp.inf, 2.0, 3.0])}

    def step(carry, grad):
        params, state = carry
        updates, state = optimizer.update(grad, state, params)
        params = optax.apply_updates(params, updates)
        return (params, state), params

    carry, eager = (params, optimizer.init(params)), []
    for i in range(4):
        carry, out = jax.jit(step)(carry, jax.tree.map(lambda g, i=i: g[i], grads))
        eager.append(out)
    start = (params, optimizer.init(params))
    (_, state), scanned = jax.jit(lambda c: jax.lax.scan(step, c, grads))(start)
    assert int(state.loss_scale.skipped) == 1
    same_arrays(eager[0], eager[1], "skipped step")
    for i, one in enumerate(eager):
        got = jax.tree.map(lambda s, i=i: s[i], scanned)
        for leaf in jax.tree.leaves(got):
            same_arrays(leaf, held(leaf, "bf16", "RINT", "ON"), "on the grid")
        for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(one), strict=True):
            np.testing.assert_allclose(a, b, rtol=2**-7)


def test_parameters_and_state_can_be_donated_together():
    optimizer = with_loss_scale(stored_in(optax.adam(0.1), master="fp32"), LossScale.static(2.0))

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(params, state):
        updates, state = optimizer.update(params, state, params)
        return optax.apply_updates(params, updates), state

    params = W + 0
    params, state = step(params, optimizer.init(params))
    assert np.isfinite(np.asarray(step(params, state)[0])).all()


def test_new_value_is_a_pytree():
    leaves, tree = jax.tree.flatten({"w": NewValue(jnp.ones(2))})
    assert len(leaves) == 1
    again = jax.tree.unflatten(tree, leaves)
    assert isinstance(again["w"], NewValue)
    assert "value" in str(jax.tree_util.tree_flatten_with_path(again)[0][0][0])
    assert repr(NewValue(1)) == "NewValue(1)"
    moved = jax.jit(lambda u: u)(NewValue(jnp.ones(2)))
    assert isinstance(moved, NewValue)


def test_integer_leaves_stay():
    tree = {"w": jnp.float32([1.1]), "n": jnp.int32(3)}
    same_arrays(stored(tree, "int8"), {"w": jnp.float32([1.0]), "n": jnp.int32(3)}, "tree")


def test_messages():
    with pytest.raises(InputError, match=r"Given: stored_in without a format. Allowed: params"):
        stored_in(optax.sgd(1.0))
    optimizer = stored_in(optax.sgd(1.0), "bf16")
    with pytest.raises(InputError, match=r"Given: an update of stored_in without parameters"):
        optimizer.update(W, optimizer.init(W))
    with pytest.raises(UnknownNameError, match="fp61"):
        stored_in(optax.sgd(1.0), "fp61")
