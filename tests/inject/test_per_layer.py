"""Operands added to bodies: a format for each layer of a scan, as data."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from npusim import _errors as errors
from npusim.casting import FormatParams
from npusim.inject import CastSpec, Policy, Rule, simulate
from tests.helpers import same_arrays
from tests.inject import programs
from tests.inject.programs import W, X

NAMES = ["fp32", "fp8_e4m3", "fp4_e2m1"]
STACKED = jax.tree.map(lambda *leaves: jnp.stack(leaves), *[FormatParams.of(n) for n in NAMES])


def stacked_policy(formats):
    spec = CastSpec(formats, scale="amax")
    return Policy([Rule("layer", input=spec, weight=spec, grad=CastSpec(formats))])


def unrolled(w, x):
    sums = []
    with jax.named_scope("net"):
        for i in range(3):
            with jax.named_scope(f"layer_{i}"):
                sums.append(jnp.sum(x))
                x = jnp.tanh(x @ w[i])
    return jnp.sum(x**2) + jnp.sum(jnp.stack(sums))


UNROLLED = Policy(
    [
        Rule(
            f"layer_{i}",
            input=CastSpec(name, scale="amax"),
            weight=CastSpec(name, scale="amax"),
            grad=CastSpec(name),
        )
        for i, name in enumerate(NAMES)
    ]
)


@pytest.mark.parametrize("program", [programs.scanned, programs.scan_of_remat])
def test_each_layer_of_a_scan_has_its_format(program):
    step = jax.value_and_grad(program)
    want = jax.jit(simulate(jax.value_and_grad(unrolled), UNROLLED))(W, X)

    @jax.jit
    def outside(formats, w, x):
        return simulate(step, stacked_policy(formats))(w, x)

    @jax.jit
    def inside(formats, w, x):
        return jax.value_and_grad(jax.jit(simulate(program, stacked_policy(formats))))(w, x)

    # The backward scan runs in reverse; its layers find their own formats all the same.
    for got in (outside(STACKED, W, X), inside(STACKED, W, X)):
        np.testing.assert_allclose(got[0], want[0], rtol=1e-6)
        np.testing.assert_allclose(got[1], want[1], rtol=1e-5, atol=1e-6)
    plain = jax.jit(step)(W, X)
    assert not np.allclose(plain[1][1], want[1][1], rtol=1e-3)


def test_one_compilation_serves_every_assignment_of_formats():
    traces = []

    @jax.jit
    def run(formats, w, x):
        traces.append(1)
        return simulate(programs.scanned, stacked_policy(formats))(w, x)

    first = run(STACKED, W, X)
    other = jax.tree.map(lambda leaf: leaf[::-1], STACKED)
    assert run(other, W, X) != first
    assert len(traces) == 1


def test_the_scan_may_be_inside_jit_cond_and_remat():
    def wrapped(w, x):
        inner = jax.checkpoint(jax.jit(programs.scanned))
        return lax.cond(jnp.sum(x) > -1e9, inner, lambda w, x: jnp.float32(0), w, x)

    got = jax.jit(simulate(wrapped, stacked_policy(STACKED)))(W, X)
    want = jax.jit(simulate(programs.scanned, stacked_policy(STACKED)))(W, X)
    same_arrays(got, want, "wrapped")


def test_a_site_outside_of_a_scan_of_that_length_is_an_error():
    spec = CastSpec(STACKED)
    with pytest.raises(errors.PolicyError) as caught:
        simulate(programs.plain, Policy([Rule("layer_1", input=spec)]))(W, X)
    assert str(caught.value) == (
        "Given: a format for each of 3 layers at net/layer_1, which stands in no scan of length 3. "
        "Allowed: sites inside a scan over as many layers. Narrow the rule's path, or pass one "
        "format."
    )


def test_leaves_of_other_shapes_are_refused():
    wrong = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), STACKED)
    with pytest.raises(errors.InputError, match="one leading axis of layers"):
        simulate(programs.scanned, Policy([Rule(input=CastSpec(wrong))]))(W, X)
