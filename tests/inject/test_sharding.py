"""A training step on a 2x4 mesh: the same bits in the casts, and no collective that it had not."""

import doctest
import pathlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from npusim.inject import CastSpec, Policy, Rule, apply_cast, simulate
from tests.helpers import same_arrays

COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "collective-permute", "all-to-all")
E4M3 = CastSpec("fp8_e4m3", "RINT", "ON")
# Every sum of products of such numbers is exact in float32, so the order that a mesh adds in does
# not show, and each cast sees the same bits.
CASTS = Policy(
    [
        Rule(input=E4M3, weight=E4M3, output=E4M3, grad=CastSpec("fp8_e5m2", "FLOOR")),
        Rule(ops=["mul", "sub", "max"], output=CastSpec("fp8_e4m3", "CEIL")),
    ]
)
SPECS = {"up": P(None, "model"), "down": P("model", None)}


def grid():
    return jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)


def numbers(seed, *shape):
    """Of three digits after the point in binary: no E4M3 numbers, and exact in sums."""
    return jnp.asarray(np.random.default_rng(seed).integers(-40, 40, shape) / 8, jnp.float32)


PARAMS = {"up": numbers(0, 8, 16), "down": numbers(1, 16, 8) / 4}
X, Y = numbers(2, 16, 8), numbers(3, 16, 8)


def loss(params, x, y, total=lambda v: v):
    h = jnp.maximum(x @ params["up"], 0)
    return jnp.sum(total(h @ params["down"]) * y)


def step(params, x, y):
    value, grads = jax.value_and_grad(loss)(params, x, y)
    return value, jax.tree.map(lambda p, g: p - 0.125 * g, params, grads)


def manual(params, x, y):
    """The same by hand: products in parts along model, the batch in parts along data."""

    def local(params):
        return loss(params, x, y, lambda v: lax.psum(v, "model"))

    value, grads = jax.value_and_grad(local)(params)
    grown = jax.tree.map(lambda p, g: p - 0.125 * g, params, grads)
    return lax.psum(value, "data"), grown


def placed():
    mesh = grid()
    put = {name: jax.device_put(PARAMS[name], NamedSharding(mesh, SPECS[name])) for name in SPECS}
    rows = NamedSharding(mesh, P("data"))
    return mesh, (put, jax.device_put(X, rows), jax.device_put(Y, rows))


def collectives(compiled):
    """The shapes that each kind of collective gives, in the compiled program."""
    found = {}
    for kind in COLLECTIVES:
        shapes = re.findall(rf"= (.*?) {kind}(?:-start)?\(", compiled.as_text())
        found[kind] = sorted(re.sub(r"\{[\d,]*\}", "", shape) for shape in shapes)
    return found


def sizes(found):
    shapes = [
        shape
        for kind in found.values()
        for text in kind
        for shape in re.findall(r"\[(.*?)\]", text)
    ]
    return [int(np.prod([int(n) for n in shape.split(",") if n])) for shape in shapes]


def test_sharded_by_the_compiler():
    mesh, args = placed()
    shardings = (
        NamedSharding(mesh, P()),
        {name: NamedSharding(mesh, spec) for name, spec in SPECS.items()},
    )

    def compiled(fn):
        return jax.jit(fn, out_shardings=shardings).lower(*args).compile()

    plain, run = compiled(step), compiled(simulate(step, CASTS, params=0))
    assert sum(map(len, collectives(plain).values())) > 0
    assert collectives(run) == collectives(plain)
    got, want = run(*args), jax.jit(simulate(step, CASTS, params=0))(PARAMS, X, Y)
    jax.tree.map(lambda a, b: same_arrays(a, b, "sharded"), got, want)
    assert not np.array_equal(want[1]["up"], step(PARAMS, X, Y)[1]["up"])
    assert got[1]["up"].sharding.spec == SPECS["up"]


def test_sharded_by_hand():
    mesh, args = placed()
    specs = (SPECS, P("data"), P("data"))
    # Each part of a sum is a value of its own there, and a cast of it another one.
    casts = Policy([Rule(input=E4M3, weight=E4M3, grad=CastSpec("fp8_e5m2", "FLOOR"))])

    def compiled(fn):
        run = jax.shard_map(fn, mesh=mesh, in_specs=specs, out_specs=(P(), SPECS))
        return jax.jit(run).lower(*args).compile()

    plain, run = compiled(manual), compiled(simulate(manual, casts, params=0))
    assert sum(map(len, collectives(plain).values())) > 0
    assert collectives(run) == collectives(plain)
    got, want = run(*args), jax.jit(simulate(step, casts, params=0))(PARAMS, X, Y)
    jax.tree.map(lambda a, b: same_arrays(a, b, "by hand"), got, want)


def test_an_amax_is_one_number_of_each_sharded_tensor():
    mesh, (params, x, _) = placed()
    amax = CastSpec("fp8_e4m3", "RINT", scale="amax")
    product = simulate(lambda w, x: x @ w, Policy([Rule(input=amax, weight=amax)]))
    out = NamedSharding(mesh, P("data", "model"))
    run = jax.jit(product, out_shardings=out).lower(params["up"], x).compile()
    found = collectives(run)
    assert [kind for kind, shapes in found.items() if shapes] == ["all-reduce"]
    assert sizes(found) == [1] * len(sizes(found))
    # Each tensor is spread over one axis. On CPU there is a second reduction, of words, in the
    # branch for tensors of zeros and subnormals.
    assert " ".join(found["all-reduce"]).count("f32[]") == 2
    assert " ".join(found["all-reduce"]).count("u32[]") == 2
    want = apply_cast(amax, X) @ apply_cast(amax, PARAMS["up"])
    np.testing.assert_allclose(run(params["up"], x), want, rtol=1e-6)
    # A given amax needs none.
    given = CastSpec("fp8_e4m3", "RINT", scale="amax", amax=5.0)
    product = simulate(lambda w, x: x @ w, Policy([Rule(input=given, weight=given)]))
    run = jax.jit(product, out_shardings=out).lower(params["up"], x).compile()
    assert sum(map(len, collectives(run).values())) == 0


def test_an_amax_inside_shard_map_is_that_of_the_devices_part():
    mesh, (_, x, _) = placed()
    amax = CastSpec("fp4_e2m1", "RINT", scale="amax")
    fn = simulate(lambda x: jnp.sin(x), Policy([Rule(ops="sin", input=amax)]), params=())
    run = jax.jit(jax.shard_map(fn, mesh=mesh, in_specs=P("data"), out_specs=P("data")))
    compiled = run.lower(x).compile()
    assert sum(map(len, collectives(compiled).values())) == 0
    halves = [jnp.sin(apply_cast(amax, part)) for part in (X[:8], X[8:])]
    np.testing.assert_allclose(compiled(x), jnp.concatenate(halves), rtol=1e-6)


@pytest.mark.slow
def test_statistics_of_a_sharded_step_move_numbers_and_no_tensors():
    _, args = placed()
    run = simulate(step, CASTS, params=0, stats=True)
    compiled = jax.jit(run).lower(*args).compile()
    plain = collectives(jax.jit(simulate(step, CASTS, params=0)).lower(*args).compile())
    added = collectives(compiled)
    assert max(sizes({"all-gather": added["all-gather"]})) <= jax.device_count()
    assert len(added["all-reduce"]) == len(plain["all-reduce"])
    whole = jax.jit(run)(PARAMS, X, Y)[1]
    assert compiled(*args)[1].table() == whole.table()


def test_the_page_about_sharding():
    page = pathlib.Path(__file__).parents[2] / "docs" / "sharding.md"
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    found = doctest.testfile(str(page), module_relative=False, optionflags=options)
    assert found.failed == 0
    assert found.attempted > 10
    (text,) = re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)
    assert len(Policy.from_dict(yaml.safe_load(text)).rules) == 2
