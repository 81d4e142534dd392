"""Statistics of casts: every count against NumPy, through control flow and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from npusim import _errors as errors
from npusim.casting import FormatParams
from npusim.inject import CastSpec, Policy, Rule, Stats, apply_cast, simulate
from tests.helpers import same_arrays
from tests.inject import programs
from tests.inject.programs import PROGRAMS, W, X

NAN, INF = np.nan, np.inf
VALUES = [0.0, -0.0, 1e-40, -1e-6, 0.3, -2.5, 300.0, 448.0, 460.0, -9e4, 1e38, INF, -INF, NAN, 1.5]


def counted(fn, spec, *args, role="input", ops="sin", **fields):
    policy = Policy([Rule(ops=ops, **{role: spec}, **fields)])
    return jax.jit(simulate(fn, policy, params=lambda *_: False, stats=True))(*args)


def by_numpy(spec, x):
    x = np.asarray(x, np.float64)
    y = np.asarray(apply_cast(spec, jnp.asarray(x, jnp.float32)), np.float64)
    top, low = float(spec.dtype.max), float(spec.dtype.min)
    known = ~np.isnan(x)
    with np.errstate(invalid="ignore"):
        return {
            "elements": x.size,
            "overflowed": int((np.isinf(y) & np.isfinite(x)).sum()),
            "nan_made": int((np.isnan(y) & known).sum()),
            "flushed": int(((y == 0) & (x != 0) & known).sum()),
            "inexact": int(((y != x) & ~(np.isnan(x) & np.isnan(y))).sum()),
            "negative": int(((x < 0) & known).sum()) if low >= 0 else 0,
            # Beyond MAX by more than rounding takes back: these values leave no doubt.
            "saturated": int(((x > top * 1.1) | (x < low * 1.1 - 0.6)).sum())
            if np.isfinite(y[known]).all()
            else 0,
        }


@pytest.mark.parametrize("sat", ["ON", "OFF"])
@pytest.mark.parametrize(
    "name",
    ["fp8_e4m3", "bf16", "hif8", "uint8"]
    + [pytest.param(name, marks=pytest.mark.slow) for name in ("fp8_e5m2", "fp16", "int8")],
)
def test_counts_are_those_of_numpy(name, sat):
    spec = CastSpec(name, "ROUND" if name == "hif8" else "RINT", sat)
    values = [v for v in VALUES if v != 460.0]  # within half a step of MAX
    x = jnp.array([np.float32(v) for v in values])
    _, stats = counted(jnp.sin, spec, x)
    (row,) = stats.table()
    want = by_numpy(spec, x)
    if sat == "OFF":
        want.pop("saturated")
    assert {key: row[key] for key in want} == want
    assert (row["slot"], row["op"], row["cast"]) == ("input 0", "sin", str(spec))
    assert np.isnan(row["amax"])
    assert row["amin"] == np.float32(1e-40)
    assert bool(stats.overflow) == any(row[k] for k in ("saturated", "overflowed", "nan_made"))
    # A traced format counts the same.
    traced = CastSpec(FormatParams.of(name, spec.mode, sat))
    (other,) = counted(jnp.sin, traced, x)[1].table()
    assert {key: other[key] for key in want} == want


def test_an_overflow_that_rounding_does_not_take_back():
    x = jnp.array([463.9, 464.0, 464.1, 448.0, -500.0])
    (row,) = counted(jnp.sin, CastSpec("fp8_e4m3", "RINT", "ON"), x)[1].table()
    assert (row["saturated"], row["inexact"], row["amax"], row["amin"]) == (2, 4, 500.0, 448.0)


def test_quiet_casts_raise_no_flag():
    out, stats = counted(jnp.sin, CastSpec("fp16"), jnp.array([0.5, 0.0]))
    assert isinstance(stats, Stats)
    (row,) = stats.table()
    assert not bool(stats.overflow)
    assert [row[k] for k in ("elements", "saturated", "flushed", "inexact")] == [2, 0, 0, 0]
    assert (row["amax"], row["amin"]) == (0.5, 0.5)
    assert str(stats).splitlines()[1].split()[:5] == ["sin", "forward", "input", "0", "fp16"]
    same_arrays(out, jnp.sin(jnp.array([0.5, 0.0])), "value")


def near(got, want):
    """The same up to the order in which XLA adds, which depends on what it fuses."""
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), got, want)


POLICY = Policy([Rule(input="e4m3", weight="e4m3", grad="e5m2")])


@pytest.mark.parametrize(
    "name",
    ["scan_of_remat", "conditional"]
    + [pytest.param(name, marks=pytest.mark.slow) for name in ("nested_scans", "remat")],
)
def test_a_recomputed_site_counts_once_and_values_are_those_of_simulate(name):
    step = jax.value_and_grad(PROGRAMS[name])
    value, stats = jax.jit(simulate(step, POLICY, stats=True))(W, X)
    near(value, jax.jit(simulate(step, POLICY))(W, X))
    alone = jax.jit(simulate(PROGRAMS[name], POLICY, stats=True))(W, X)[1]

    def total(rows):
        return sum(r["elements"] for r in rows if r["direction"] == "forward")

    assert total(stats.table()) == total(alone.table()) > 0
    assert any(r["slot"].startswith("grad") and r["elements"] for r in stats.table())
    aware = jax.grad(simulate(PROGRAMS[name], POLICY, stats=True), has_aux=True)
    grads, of_grad = jax.jit(aware)(W, X)
    assert of_grad.table() == alone.table()
    near(grads, jax.jit(jax.grad(simulate(PROGRAMS[name], POLICY)))(W, X))


def test_while_and_cond_count_what_runs():
    value, stats = jax.jit(simulate(programs.while_loop, POLICY, stats=True))(W, X)
    runs = {r["path"]: r["elements"] // 16 for r in stats.table() if r["slot"] == "input 0"}
    assert runs == {"net/body": int(value[0]), "net/test": int(value[0]) + 1}

    def either(w, x):
        return lax.cond(jnp.sum(x) > 0, lambda x: x @ w, lambda x: x, x)

    rows = [jax.jit(simulate(either, POLICY, stats=True))(W[0], s * X)[1].table() for s in (1, -1)]
    assert [r[0]["elements"] for r in rows] == [16, 0]
    assert (rows[1][0]["amax"], rows[1][0]["amin"]) == (0.0, INF)


def test_examples_of_vmap_are_added():
    run = simulate(programs.scanned, POLICY, stats=True)
    x = jnp.stack([X, 300 * X])
    together = jax.vmap(lambda x: run(W, x)[1])(x)
    each = [run(W, x[i])[1].table() for i in range(2)]
    for row, a, b in zip(together.table(), *each, strict=True):
        assert row["elements"] == a["elements"] + b["elements"]
        assert row["saturated"] == a["saturated"] + b["saturated"]


def test_counts_beyond_32_bits_are_carried():
    from npusim.inject.statistics import COUNTS, Statistics, Tallied

    word = jnp.full((1, len(COUNTS)), 0x9000_0000, jnp.uint32)
    ends = jnp.zeros(1, jnp.uint32)
    one = Tallied(word, jnp.zeros_like(word), ends, ends, jnp.zeros((1, 0), jnp.uint32))
    join = Statistics().join
    three = join(join(one, one), one)
    assert (int(three.high[0, 0]) << 32) + int(three.low[0, 0]) == 3 * 0x9000_0000


def test_one_reduction_for_each_cast():
    run = simulate(lambda x: jnp.sin(x), Policy([Rule(ops="sin", weight="e4m3")]), stats=True)
    text = str(jax.make_jaxpr(run)(X))
    assert text.count(" reduce[") == 1
    assert "reduce_" not in text


def test_a_choice_of_statistics():
    x = jnp.array([0.3, -2.5, 500.0, 1e-9, jnp.inf])
    policy = Policy([Rule(ops="sin", input="e4m3")])

    def run(chosen):
        return jax.jit(simulate(jnp.sin, policy, params=(), stats=chosen))(x)[1]

    (whole,) = run(True).table()
    stats = run(("overflow", "flushed", "amax"))
    (row,) = stats.table()
    assert list(row)[5:] == ["elements", "saturated", "overflowed", "nan_made", "flushed", "amax"]
    assert row == {key: whole[key] for key in row}
    assert (row["elements"], row["flushed"], row["amax"]) == (5, 1, INF)
    assert bool(stats.overflow)
    assert run("amax").table()[0] == {key: whole[key] for key in [*list(row)[:6], "amax"]}
    with pytest.raises(errors.InputError, match="Name overflow among stats"):
        _ = run(("flushed", "amin")).overflow
    # Only what was asked for is reduced, and all examples of a vmap count.
    text = str(jax.make_jaxpr(simulate(jnp.sin, policy, params=(), stats=["amax", "flushed"]))(x))
    (line,) = [line for line in text.splitlines() if " reduce[" in line]
    assert line.split("=")[0].count(":u32[]") == 2
    run = jax.vmap(simulate(jnp.sin, policy, params=(), stats="amin"))
    assert run(jnp.stack([x, x]))[1].table()[0]["elements"] == 10


@pytest.mark.parametrize(
    ("chosen", "kind", "text"),
    [
        ("amux", errors.UnknownNameError, "Given: stats 'amux'. Allowed: overflow, saturated, "),
        (["amax", "nan"], errors.UnknownNameError, "Given: stats 'nan'. "),
        ((), errors.InputError, "Given: stats=(). Allowed: True, False, or names among overflow, "),
        (None, errors.InputError, "Given: stats=None. "),
    ],
)
def test_statistics_that_there_are_not(chosen, kind, text):
    with pytest.raises(kind) as caught:
        simulate(jnp.sin, POLICY, stats=chosen)
    assert str(caught.value).startswith(text)
