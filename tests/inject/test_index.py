"""Gathers and scatters under rules: lookups, ``.at[]`` in all its forms, forward and backward.

The references are NumPy loops over ml_dtypes' casts, on values within every range.
"""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax

from npusim.inject import CastSpec, Policy, Rule, simulate, sites

TABLE = np.linspace(-2, 2, 20, dtype=np.float32).reshape(5, 4) * np.float32(1.037)
ROWS = np.linspace(0.3, 1.9, 16, dtype=np.float32).reshape(4, 4) * np.float32(1.019)
TOKENS = np.array([0, 3, 3, 1])
RULE = Rule(
    ops="index",
    input=CastSpec("fp8_e4m3", "RINT"),
    weight=CastSpec("fp8_e5m2", "RINT"),
    output=CastSpec("fp16", "RINT"),
)


def e4m3(x):
    return np.asarray(x, np.float32).astype(ml_dtypes.float8_e4m3fn).astype(np.float32)


def e5m2(x):
    return np.asarray(x, np.float32).astype(ml_dtypes.float8_e5m2).astype(np.float32)


def half(x):
    return np.asarray(x, np.float32).astype(np.float16).astype(np.float32)


def over(change):
    """Apply ``change(element, update)`` row by row, duplicates one after the other."""

    def loop(table, rows):
        for token, row in zip(TOKENS, rows, strict=True):
            table[token] = change(table[token], row)
        return table

    return loop


def looked_up(table, rows):
    return table[TOKENS]


FORMS = {
    "gather": (lambda t, u: t[TOKENS], looked_up),
    "take": (lambda t, u: jnp.take(t, TOKENS, axis=0), looked_up),
    "set": (lambda t, u: t.at[TOKENS].set(u), over(lambda a, b: b)),
    "add": (lambda t, u: t.at[TOKENS].add(u), over(np.add)),
    "subtract": (lambda t, u: t.at[TOKENS].subtract(u), over(np.subtract)),
    "multiply": (lambda t, u: t.at[TOKENS].mul(u), over(np.multiply)),
    "maximum": (lambda t, u: t.at[TOKENS].max(u), over(np.maximum)),
    "minimum": (lambda t, u: t.at[TOKENS].min(u), over(np.minimum)),
}


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("form", FORMS)
def test_forward(form, dtype):
    fn, reference = FORMS[form]
    table, rows = jnp.asarray(TABLE, dtype), jnp.asarray(ROWS, dtype)
    (site,) = sites(fn, Policy([RULE]), table, rows)
    assert (site.kind, site.roles[:2]) == ("index", ("weight", "input"))
    got = simulate(fn, Policy([RULE]))(table, rows)
    assert got.dtype == dtype
    # Narrow operands meet in float32, and the result is stored back in their dtype.
    held = [np.asarray(x.astype(jnp.float32)) for x in (table, rows)]
    want = half(reference(e5m2(held[0]), e4m3(held[1])))
    np.testing.assert_array_equal(got, want.astype(dtype))


def test_a_function_that_a_scatter_applies_keeps_its_dtype():
    for dtype in (jnp.float32, jnp.bfloat16, jnp.float16):
        for act in (jnp.sin, lambda v: jnp.where(v > 0, v * v, v)):
            table = jnp.asarray(e5m2(TABLE), dtype)
            rule = Rule(ops="index", weight=CastSpec("fp8_e5m2"))
            got = simulate(lambda t, act=act: t.at[TOKENS[:2]].apply(act), Policy([rule]))(table)
            np.testing.assert_array_equal(got, table.at[TOKENS[:2]].apply(act))


def test_embedding_gradients_are_added_from_rounded_ones():
    rule = Rule(ops="index", grad=CastSpec("fp8_e5m2"), output="fp16", direction="backward")

    def loss(table, weights):
        return jnp.sum(table[TOKENS] * weights)

    found = sites(jax.grad(loss), Policy([rule]), TABLE, ROWS)
    assert [str(s).strip() for s in found] == [
        "gather forward [grad: fp8_e5m2]",
        "scatter-add backward [grad 0: fp8_e5m2, grad 2: fp8_e5m2, output: fp16]",
    ]
    want = np.zeros_like(TABLE)
    np.add.at(want, TOKENS, e5m2(ROWS))
    assert (want[3] == e5m2(ROWS[1]) + e5m2(ROWS[2])).all()
    got = jax.jit(simulate(jax.grad(loss), Policy([rule])))(TABLE, ROWS)
    np.testing.assert_array_equal(got, half(want))
    # grad(simulate) rounds the same cotangent; the sum is then JAX's own.
    got = jax.jit(jax.grad(simulate(loss, Policy([rule]))))(TABLE, ROWS)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("form", ["set", "add"])
def test_gradients_of_updates(form):
    rule = Rule(ops="index", grad=CastSpec("fp8_e5m2"), direction="backward")
    unique = np.array([0, 3, 1, 4])
    weights = np.linspace(0.4, 2.3, 20, dtype=np.float32).reshape(5, 4) * np.float32(1.01)

    def loss(table, rows):
        at = table.at[unique]
        return jnp.sum((at.set(rows) if form == "set" else at.add(rows)) * weights)

    kept = weights.copy()
    if form == "set":
        kept[unique] = 0
    for of_table, of_rows in (
        jax.jit(simulate(jax.grad(loss, (0, 1)), Policy([rule])))(TABLE, ROWS),
        jax.jit(jax.grad(simulate(loss, Policy([rule])), (0, 1)))(TABLE, ROWS),
    ):
        np.testing.assert_array_equal(of_rows, e5m2(weights)[unique])
        # Only what passes through an indexing operation on its way back is rounded.
        near = np.where(np.asarray(of_table) == kept, kept, e5m2(kept))
        np.testing.assert_array_equal(of_table, near)


def test_slices_move_values_and_are_cast_by_name_alone():
    def lookup(table, i):
        return lax.dynamic_index_in_dim(table, i, keepdims=False)

    def write(table, i):
        return lax.dynamic_update_index_in_dim(table, ROWS[0], i, 0)

    assert [s for s in sites(lookup, Policy([RULE]), TABLE, 2) if s.rule is not None] == []
    weight = CastSpec("fp8_e5m2", "RINT")
    by_name = Rule(ops="dynamic_slice", weight=weight, output="fp16")
    got = simulate(lookup, Policy([by_name]))(TABLE, 2)
    np.testing.assert_array_equal(got, half(e5m2(TABLE)[2]))
    # The gradient of a lookup is written with the transposed operation, under its own name.
    back = Rule(ops="dynamic_update_slice", grad=weight)
    grad = simulate(jax.grad(lambda t, i: jnp.sum(lookup(t, i) * ROWS[0])), Policy([back]))
    np.testing.assert_array_equal(grad(TABLE, 2)[2], e5m2(ROWS[0]))
    written = Rule(ops="dynamic_update_slice", input=CastSpec("fp8_e4m3"), weight=weight)
    want = e5m2(TABLE)
    want[2] = e4m3(ROWS[0])
    np.testing.assert_array_equal(simulate(write, Policy([written]))(TABLE, 2), want)
    # A batch of lookups is a gather again, and of kind index.
    batched = jax.vmap(lookup, (None, 0))
    got = simulate(batched, Policy([RULE]))(TABLE, TOKENS)
    np.testing.assert_array_equal(got, half(e5m2(TABLE)[TOKENS]))
