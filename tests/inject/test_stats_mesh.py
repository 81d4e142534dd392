"""Statistics inside shard_map on a 2x4 mesh: those of the function that no mesh divides."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from npusim.inject import CastSpec, Policy, Rule, simulate
from tests.inject.test_stats import by_numpy

E4M3 = CastSpec("fp8_e4m3", "RINT", "ON")
X = jnp.array(np.random.default_rng(0).normal(size=(8, 4)) * 300, jnp.float32)
FIRST = jnp.array(np.random.default_rng(1).normal(size=(4, 8)) / 100, jnp.float32)
SECOND = jnp.array(np.random.default_rng(2).normal(size=(8, 4)), jnp.float32)
POLICY = Policy([Rule(input=E4M3, weight=E4M3)])
ALIKE = P()
SPECS = (P(None, "model"), P("model"), P("data"))


def sharded(body, in_specs, out_specs=ALIKE, **options):
    mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    return jax.jit(
        jax.shard_map(body, mesh=mesh, in_specs=in_specs, out_specs=out_specs, **options)
    )


def layers(first, second, x, total=lambda v: v):
    with jax.named_scope("up"):
        h = jnp.tanh(x @ first)
    with jax.named_scope("down"):
        return total(h @ second)


def rows(stats):
    return [
        {k: v for k, v in row.items() if k not in ("cast", "op", "direction")}
        for row in stats.table()
    ]


def counted(fn, policy=POLICY, **options):
    return simulate(fn, policy, params=lambda path, leaf: path[0].idx < 2, stats=True, **options)


def test_values_that_devices_hold_alike_count_once():
    whole = jax.jit(counted(layers))(FIRST, SECOND, X)[1]
    total = functools.partial(lax.psum, axis_name="model")

    def body(*args):
        return counted(functools.partial(layers, total=total))(*args)[1]

    got = rows(sharded(body, SPECS)(FIRST, SECOND, X))
    assert got == rows(whole)
    # Weights are spread over model and alike along data, what comes in the other way round.
    assert [(r["path"], r["slot"], r["elements"]) for r in got] == [
        ("up", "input 0", 32),
        ("up", "weight 1", 32),
        ("down", "input 0", 64),
        ("down", "weight 1", 32),
    ]
    beyond = int((np.abs(X) > 464).sum())
    assert got[0] == got[0] | by_numpy(E4M3, X) | {"saturated": beyond}
    assert beyond > 0


def test_partial_sums_are_values_of_their_own():
    policy = Policy([Rule("down", output=CastSpec("bf16"))])

    def body(first, second, x):
        total = functools.partial(lax.psum, axis_name="model")
        return counted(functools.partial(layers, total=total), policy)(first, second, x)[1]

    (row,) = rows(sharded(body, SPECS)(FIRST, SECOND, X))
    assert row["elements"] == X.size * 4  # each device along model rounds its own part of the sum


def loops(w, x):
    def step(carry, _):
        carry = lax.cond(jnp.sum(carry) > 0, lambda c: c @ w, lambda c: c - 1, carry)
        return carry, None

    x, _ = lax.scan(jax.checkpoint(step), x, None, length=2)

    def go_on(state):
        return (state[0] < 4) & (jnp.sum(state[1]) < 50)

    return lax.while_loop(go_on, lambda state: (state[0] + 1, (state[1] + 1) @ w), (0, x))


def test_loops_and_branches_that_differ_between_devices():
    w = jnp.abs(SECOND[:4]) + 0.5
    parts = [jnp.abs(X[:4]) * 0.01, -jnp.abs(X[4:]) * 0.01]
    each = [jax.jit(simulate(loops, POLICY, stats=True))(w, part)[1].table() for part in parts]
    assert [[r["elements"] // 16 for r in one] for one in each] == [[2, 2, 0, 0], [0, 0, 4, 4]]

    def body(w, x):
        return simulate(loops, POLICY, stats=True)(w, x)[1]

    got = sharded(body, (P(), P("data")))(w, jnp.concatenate(parts)).table()
    for row, one, two in zip(got, *each, strict=True):
        # The weight is alike on all devices: the counts of the one that used it most often.
        join = max if row["slot"].startswith("weight") else sum
        for name in ("elements", "overflowed", "nan_made", "flushed", "inexact"):
            assert row[name] == join((one[name], two[name])), (row["slot"], name)
        np.testing.assert_array_equal(row["amax"], np.maximum(one["amax"], two["amax"]))
        assert row["amin"] == min(one["amin"], two["amin"])


def loss(params, x):
    first, second = params
    return jnp.sum(layers(first, second, x) ** 2)


def test_gradients_of_a_data_parallel_step():
    # JAX adds the gradients of parameters that are alike along an axis by itself.
    step = simulate(jax.grad(loss), Policy([Rule(input=E4M3, grad=E4M3)]), stats=True)
    got, stats = sharded(step, (P(), P("data")))((FIRST, SECOND), X)
    want, whole = jax.jit(step)((FIRST, SECOND), X)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4), got, want)
    assert rows(stats) == rows(whole)


@pytest.mark.slow
def test_statistics_of_a_straight_through_gradient():
    aware = jax.grad(simulate(loss, POLICY, stats=True), has_aux=True)
    of_grad = sharded(lambda p, x: aware(p, x)[1], (P(), P("data")))((FIRST, SECOND), X)
    assert rows(of_grad) == rows(jax.jit(aware)((FIRST, SECOND), X)[1])


@pytest.mark.slow
def test_one_axis_that_is_manual_of_two():
    mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)

    def body(*args):
        return counted(layers)(*args)[1]

    specs = (P(), P(), P("data"))
    run = jax.shard_map(body, mesh=mesh, in_specs=specs, out_specs=P(), axis_names={"data"})
    got = rows(jax.jit(run)(FIRST, SECOND, X))
    assert got == rows(jax.jit(counted(layers))(FIRST, SECOND, X)[1])


def test_without_types_every_device_counts():
    def body(*args):
        return counted(layers)(*args)[1]

    specs = (P(), P(), P("data"))
    got = rows(sharded(body, specs, check_vma=False)(FIRST, SECOND, X))
    assert [r["elements"] for r in got] == [8 * 16, 8 * 32, 8 * 32, 8 * 32]
    assert got[0]["amax"] == float(jnp.max(jnp.abs(X)))


def test_sums_beyond_32_bits_and_largest_of_both_words():
    from npusim.inject import _compat, mesh

    low = np.array([[0xF000_0000, 0xFFFF_FFFF], [5, 7]], np.uint32)
    high = np.array([[1, 0], [3, 2]], np.uint32)

    def body(extra):
        given = (low, high, low[:, :1], np.array([1, 0], np.uint32))
        low_, high_, tops, differs = (_compat.declared_different(jnp.asarray(g)) for g in given)
        # The second row's counts are alike but on one device, which has a larger high word.
        high_ = high_.at[1].add(extra[0])
        low_ = low_.at[1].add(extra[0] * jnp.uint32(-5 % 2**32))
        return mesh.over_axis(low_, high_, tops, differs, "data")

    grid = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
    extra = jnp.array([0, 0, 0, 1, 0, 0, 0, 0], jnp.uint32)
    run = jax.shard_map(body, mesh=grid, in_specs=P("data"), out_specs=P())
    low_sum, high_sum, _ = (np.asarray(v).astype(object) for v in run(extra))
    counts = low_sum + high_sum * 2**32
    assert counts[0].tolist() == [8 * 0x1_F000_0000, 8 * 0xFFFF_FFFF]
    assert counts[1].tolist() == [4 * 2**32, 3 * 2**32 + 2]


@pytest.mark.parametrize("check_vma", [True, False])
def test_values_are_those_without_statistics(check_vma):
    def both(*args):
        plain = simulate(layers, POLICY, params=lambda path, leaf: path[0].idx < 2)
        return plain(*args), counted(layers)(*args)[0]

    specs = (P(), P(), P("data"))
    run = sharded(both, specs, P("data"), check_vma=check_vma)
    one, two = run(FIRST, SECOND, X)
    np.testing.assert_array_equal(one, two)
