"""`simulate` through every form of control flow: identity bitwise, casts as a model written out."""

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from npusim import _errors as errors
from npusim.casting import FormatParams, fake_cast
from npusim.inject import CastSpec, Policy, Rule, apply_cast, simulate, sites
from npusim.inject.apply import cast_cotangent
from tests.helpers import same_arrays
from tests.inject import programs
from tests.inject.programs import PROGRAMS, W, X

E4M3 = CastSpec("fp8_e4m3", "RINT", scale="amax")
NO_CASTS = Policy([Rule()])
NO_RULES = Policy([])
CASTS = Policy([Rule(input=E4M3, weight=E4M3)])
GRAD = CastSpec("fp8_e5m2", "RINT")
WITH_GRAD = Policy([Rule(input=E4M3, weight=E4M3, grad=GRAD)])
KEEPS_BACKWARD = ("custom_vjp", "custom_jvp")


@pytest.fixture(params=PROGRAMS)
def program(request):
    return PROGRAMS[request.param]


def test_identity_is_bitwise_the_plain_function(program):
    plain = jax.value_and_grad(program)
    fp32 = Policy([Rule(input="fp32", weight="fp32", output="fp32", grad="fp32")])
    text = str(jax.make_jaxpr(plain)(W, X))
    for policy in (NO_CASTS, NO_RULES, fp32):
        # The same program, so the same bits wherever it is compiled.
        assert str(jax.make_jaxpr(simulate(plain, policy))(W, X)) == text
    want = jax.jit(plain)(W, X)
    ordered = jax.jit(jax.value_and_grad(simulate(program, NO_CASTS)))(W, X)
    same_arrays(ordered, want, "grad(simulate)")
    if program.__name__ in ("plain", "scan_of_remat", "custom_vjp"):
        same_arrays(jax.jit(simulate(plain, NO_CASTS))(W, X), want, "simulate(grad)")
        same_arrays(simulate(plain, NO_CASTS)(W, X), plain(W, X), "without jit")


def test_identity_without_gradient_in_a_while_loop():
    want = jax.jit(programs.while_loop)(W, X)
    same_arrays(jax.jit(simulate(programs.while_loop, NO_CASTS))(W, X), want, "while")


@functools.cache
def outside(program):
    """simulate(grad), static formats; compiled once for several tests."""
    return jax.jit(simulate(jax.value_and_grad(program), WITH_GRAD))(W, X)


@functools.cache
def inside(program):
    """grad(simulate), static formats."""
    return jax.jit(jax.value_and_grad(simulate(program, WITH_GRAD)))(W, X)


def test_both_orders_agree(program):
    outer, inner = outside(program), inside(program)
    assert outer[0] == inner[0]
    if program.__name__ not in KEEPS_BACKWARD:
        # The backward products see the rounded operands either way; the sums around them may be
        # fused differently.
        np.testing.assert_allclose(outer[1], inner[1], rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["scan_of_remat", "conditional", "fori", "custom_vjp"])
def test_traced_formats_give_the_bits_of_static_ones(name):
    program = PROGRAMS[name]
    formats = FormatParams.of("fp8_e4m3", "RINT"), FormatParams.of("fp8_e5m2", "RINT")

    def policy(formats):
        spec = CastSpec(formats[0], scale="amax")
        return Policy([Rule(input=spec, weight=spec, grad=CastSpec(formats[1]))])

    @jax.jit
    def grad_inside(formats, w, x):
        return simulate(jax.value_and_grad(program), policy(formats))(w, x)

    @jax.jit
    def grad_outside(formats, w, x):
        # A jit between the gradient and the transform: formats cross it as operands.
        return jax.value_and_grad(jax.jit(simulate(program, policy(formats))))(w, x)

    same_arrays(grad_inside(formats, W, X), outside(program), "simulate(grad)")
    same_arrays(grad_outside(formats, W, X), inside(program), "grad(simulate)")


def by_hand(policy, w, x):
    """`programs.plain` with the casts written out; products as the transform emits them."""
    rule = policy.rules[0]
    dot = functools.partial(jnp.matmul, precision=lax.Precision.HIGHEST)
    for i in range(2):
        y = dot(apply_cast(rule.input, x), apply_cast(rule.weight, w[i]))
        if rule.output:
            y = apply_cast(rule.output, y)
        if rule.grad:
            y = cast_cotangent(rule.grad, y)
        x = jnp.tanh(y)
    return jnp.sum(x**2)


@pytest.mark.parametrize(
    "policy",
    [
        CASTS,
        WITH_GRAD,
        Policy([Rule(input="int8", weight="bf16", output="fp16")]),
        Policy([Rule(input=CastSpec("hif8", "ROUND"), weight="fp4_e2m1", grad="fp16")]),
    ],
)
def test_the_casts_are_those_of_a_model_written_out(policy):
    written = jax.value_and_grad(functools.partial(by_hand, policy))
    transformed = jax.value_and_grad(simulate(programs.plain, policy))
    for form in (jax.jit, lambda f: f):
        same_arrays(form(transformed)(W, X), form(written)(W, X), "written out")


def test_a_scan_casts_as_its_unrolled_form():
    def unrolled(w, x):
        sums = []
        for i in range(3):
            with jax.named_scope("layer"):
                sums.append(jnp.sum(x))
                x = jnp.tanh(x @ w[i])
        return jnp.sum(x**2) + jnp.sum(jnp.stack(sums))

    want = jax.jit(simulate(jax.value_and_grad(unrolled), WITH_GRAD))(W, X)
    for got in (outside(programs.scanned), outside(programs.scan_of_remat)):
        np.testing.assert_allclose(got[0], want[0], rtol=1e-6)
        np.testing.assert_allclose(got[1], want[1], rtol=1e-5, atol=1e-6)


def test_forward_and_backward_rules_differ():
    policy = Policy(
        [
            Rule(input="fp8_e4m3", weight="fp8_e4m3", direction="forward"),
            Rule(grad="fp8_e5m2", direction="backward"),
        ]
    )
    found = sites(jax.grad(programs.plain), policy, W, X)
    casts = [(s.direction, s.rule, [spec for _, spec in s.casts]) for s in found]
    assert (
        casts
        == [
            ("forward", 0, ["fp8_e4m3", "fp8_e4m3", "fp8_e5m2"]),
            ("forward", 0, ["fp8_e4m3", "fp8_e4m3", "fp8_e5m2"]),
            ("backward", 1, ["fp8_e5m2"]),
            ("backward", 1, ["fp8_e5m2"]),
            ("backward", 1, ["fp8_e5m2"]),
            ("backward", 1, ["fp8_e5m2"]),
        ][: len(casts)]
    )
    assert {s.direction for s in found} == {"forward", "backward"}


def test_the_first_match_wins():
    policy = Policy([Rule("layer_1"), Rule(input="fp8_e4m3")])
    assert [s.rule for s in sites(programs.plain, policy, W, X)] == [1, 0]
    want = Policy([Rule("layer_0", input="fp8_e4m3")])
    got = jax.jit(simulate(programs.plain, policy))(W, X)
    assert got == jax.jit(simulate(programs.plain, want))(W, X)


def test_vmap_of_simulate_scales_each_example():
    spec = CastSpec("int8", scale="amax")
    policy = Policy([Rule(input=spec)])
    x = jnp.stack([X, 100 * X])
    each = jax.vmap(simulate(programs.plain, policy), in_axes=(None, 0))(W, x)
    apart = [simulate(programs.plain, policy)(W, one) for one in x]
    np.testing.assert_allclose(each, jnp.stack(apart), rtol=1e-6)
    together = simulate(jax.vmap(programs.plain, in_axes=(None, 0)), policy)(W, x)
    assert not np.array_equal(together, each)
    grads = jax.vmap(jax.grad(simulate(programs.plain, policy)), in_axes=(None, 0))(W, x)
    assert grads.shape == (2, *W.shape)


def test_second_derivatives_and_forward_mode():
    f = simulate(programs.plain, CASTS)
    direction = jnp.ones_like(X)
    slope = jax.jvp(lambda x: f(W, x), (X,), (direction,))[1]
    np.testing.assert_allclose(slope, jnp.sum(jax.grad(f, 1)(W, X)), rtol=1e-4)
    hessian = jax.jit(jax.hessian(f, 1))(W, X).reshape(16, 16)
    assert np.abs(hessian).max() > 0.1
    np.testing.assert_allclose(hessian, hessian.T, atol=1e-4)


def test_a_function_that_was_jitted_and_traced_before_is_transformed():
    f = jax.jit(programs.plain)
    plain = f(W, X)
    assert jax.jit(simulate(f, CASTS))(W, X) == jax.jit(simulate(programs.plain, CASTS))(W, X)
    assert jax.jit(simulate(f, CASTS))(W, X) != plain
    assert f(W, X) == plain


def test_two_policies_side_by_side_do_not_mix():
    other = Policy([Rule(input="bf16", weight="bf16")])
    a, b = jax.jit(simulate(programs.plain, CASTS)), jax.jit(simulate(programs.plain, other))
    alone = a(W, X), b(W, X)
    assert alone[0] != alone[1]

    @jax.jit
    def both(w, x):
        one = simulate(programs.plain, CASTS)
        two = simulate(programs.plain, other)
        return one(w, x), two(w, x), one(w, x), programs.plain(w, x)

    assert both(W, X)[:3] == (alone[0], alone[1], alone[0])
    assert both(W, X)[3] == jax.jit(programs.plain)(W, X)


def test_a_simulated_function_may_be_simulated_again():
    inner = simulate(programs.plain, Policy([Rule("layer_0", input="fp8_e4m3")]))
    twice = jax.jit(simulate(inner, Policy([Rule("layer_1", input="fp8_e4m3")])))(W, X)
    once = jax.jit(simulate(programs.plain, Policy([Rule(input="fp8_e4m3")])))(W, X)
    assert twice == once


def test_a_custom_vjp_keeps_its_rule_in_both_orders():
    # 7: the gradient of the first layer is seven times that of the plain function.
    def reference(w, x):
        return jnp.sum((jnp.sin(x) @ w[0] @ w[1]) ** 2)

    policy = Policy([Rule("last", input="bf16", weight="bf16"), Rule(input="bf16", weight="bf16")])
    want = 7 * jax.grad(reference)(W, X)[0]
    for got in (
        jax.jit(simulate(jax.grad(programs.custom_vjp), policy))(W, X),
        jax.jit(jax.grad(simulate(programs.custom_vjp, policy)))(W, X),
        jax.grad(simulate(programs.custom_vjp, policy))(W, X),
        jax.jit(jax.grad(jax.checkpoint(simulate(programs.custom_vjp, policy))))(W, X),
    ):
        np.testing.assert_allclose(got[0], want, rtol=0.03, atol=0.04)


def test_a_custom_vjp_is_cast_inside_its_forward_rule():
    policy = Policy([Rule("marked", input="fp4_e2m1")])
    rounded = fake_cast(jnp.sin(X), "fp4_e2m1")
    dot = functools.partial(jnp.matmul, precision=lax.Precision.HIGHEST)
    want = jnp.sum((dot(rounded, W[0]) @ W[1]) ** 2)
    value, _ = jax.value_and_grad(simulate(programs.custom_vjp, policy))(W, X)
    np.testing.assert_allclose(value, want, rtol=1e-6)
    np.testing.assert_allclose(simulate(programs.custom_vjp, policy)(W, X), want, rtol=1e-6)


def test_a_custom_jvp_keeps_its_rule_in_both_orders():
    policy = Policy([Rule(input="bf16", weight="bf16")])
    want = jax.grad(programs.custom_jvp, 1)(W, X)
    for got in (
        jax.jit(simulate(jax.grad(programs.custom_jvp, 1), policy))(W, X),
        jax.jit(jax.grad(simulate(programs.custom_jvp, policy), 1))(W, X),
    ):
        np.testing.assert_allclose(got, want, rtol=0.03, atol=0.05)


def test_custom_rules_with_integers_static_arguments_and_symbolic_zeros():
    @functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
    def rows(scale, x, which, w):
        return (x[which] * scale) @ w

    def rows_bwd(scale, saved, g):
        x, which, w = saved
        back = jnp.zeros_like(x).at[which].add(7 * scale * (g @ w.T))
        return back, None, 7 * scale * x[which].T @ g

    rows.defvjp(lambda s, x, i, w: (rows(s, x, i, w), (x, i, w)), rows_bwd)

    @jax.custom_vjp
    def pair(x, w):
        return x @ w, x

    def pair_fwd(x, w):
        return (x.value @ w.value, x.value), (x.value, w.value)

    def pair_bwd(saved, g):
        x, w = saved
        first = g[0]
        if isinstance(first, jax.custom_derivatives.SymbolicZero):
            first = jnp.zeros(first.shape, first.dtype)
        return 7 * first @ w.T, 7 * x.T @ first

    pair.defvjp(pair_fwd, pair_bwd, symbolic_zeros=True)

    @jax.custom_jvp
    def picked(x, which, w):
        return x[which] @ w

    @picked.defjvp
    def _(primals, tangents):
        _, which, w = primals
        return picked(*primals), 5 * (tangents[0][which] @ w)

    which = jnp.array([0, 1])

    def scanned_rows(w, x):
        def body(x, w):
            return rows(1.0, x, jnp.arange(4), w), None

        return jnp.sum(lax.scan(jax.checkpoint(body), x, w)[0])

    policy = Policy([Rule(input="bf16", weight="bf16", grad="bf16")])
    for loss in (
        lambda w, x: jnp.sum(rows(2.0, x, which, w[0])),
        lambda w, x: jnp.sum(pair(x, w[0])[0]),
        lambda w, x: jnp.sum(picked(x, which, w[0])),
        scanned_rows,
    ):
        want = jax.grad(loss, 1)(W, X)
        for got in (
            jax.jit(jax.grad(simulate(loss, policy), 1))(W, X),
            jax.jit(simulate(jax.grad(loss, 1), policy))(W, X),
        ):
            np.testing.assert_allclose(got, want, rtol=0.03, atol=1e-5)


def test_sixteen_bit_operands_run_on_float32_carriers():
    w, x = W[0].astype(jnp.bfloat16), X.astype(jnp.bfloat16)
    policy = Policy([Rule(input="fp8_e4m3", weight="fp8_e5m2", output="fp16")])
    dot = functools.partial(jnp.matmul, precision=lax.Precision.HIGHEST)
    y = dot(
        fake_cast(x.astype(jnp.float32), "fp8_e4m3"), fake_cast(w.astype(jnp.float32), "fp8_e5m2")
    )
    want = fake_cast(y, "fp16").astype(jnp.bfloat16)
    got = jax.jit(simulate(lambda w, x: x @ w, policy))(w, x)
    assert got.dtype == jnp.bfloat16
    same_arrays(got, want, "bf16 product")
    # Nothing to cast: not even the carriers.
    same = simulate(lambda w, x: x @ w, Policy([Rule(input="bf16", weight="fp32")]))
    assert str(jax.make_jaxpr(same)(w, x)) == str(jax.make_jaxpr(lambda w, x: x @ w)(w, x))
    grads = jax.grad(lambda w: jnp.sum(simulate(lambda w, x: x @ w, policy)(w, x)))(w)
    assert grads.dtype == jnp.bfloat16


def test_rules_by_primitive_name():
    policy = Policy([Rule(ops="tanh", input="fp16", output="bf16")])
    got = jax.jit(simulate(lambda w, x: jnp.tanh(x), policy))(W, X)
    same_arrays(got, fake_cast(jnp.tanh(fake_cast(X, "fp16")), "bf16"), "tanh")


def test_convolutions():
    image = jax.random.normal(jax.random.key(0), (2, 8, 8, 3))
    kernel = jax.random.normal(jax.random.key(1), (3, 3, 3, 4))

    def conv(w, x, precision=None):
        dims = ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=dims, precision=precision
        )

    policy = Policy([Rule(ops="conv", input="fp8_e4m3", weight="fp8_e5m2")])
    want = conv(fake_cast(kernel, "fp8_e5m2"), fake_cast(image, "fp8_e4m3"), "highest")
    got = jax.jit(simulate(conv, policy))(kernel, image)
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
    found = sites(jax.grad(lambda w, x: jnp.sum(conv(w, x) ** 2), (0, 1)), policy, kernel, image)
    assert [s.roles for s in found] == [
        ("input", "weight"),
        ("input", "grad"),
        ("grad", "weight"),
    ]


def test_random_generators_are_left_alone():
    def noisy(w, key):
        def init(key):
            return jax.random.normal(key, (4, 4), jnp.bfloat16)

        return jnp.sum(init(key).astype(jnp.float32) @ w)

    policy = Policy([Rule(ops=["mul", "erf_inv", "max"], input="fp4_e2m1"), Rule(input="fp16")])
    with pytest.warns(errors.UnusedRuleWarning, match="rule 1"):
        got = simulate(noisy, policy)(W[0], jax.random.key(3))
    want = simulate(noisy, Policy([Rule(input="fp16")]))(W[0], jax.random.key(3))
    assert got == want


def test_a_rule_that_hits_nothing_is_told():
    policy = Policy([Rule("haed", input="half"), Rule(input="half")])
    with pytest.warns(errors.UnusedRuleWarning) as caught:
        simulate(programs.plain, policy)(W, X)
    assert [str(w.message) for w in caught] == [
        (
            "rule 1, Rule(path='haed', ops='matmul', input=CastSpec(fp16)), matched no operation. "
            "npusim.report lists the operations there are, with path, dtypes and source line."
        )
    ]
    assert caught[0].filename == __file__


def test_a_backward_rule_counts_as_used_where_the_cotangent_is_cast():
    policy = Policy([Rule(grad="fp16", direction="backward")])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        jax.grad(simulate(programs.plain, policy))(W, X)
    assert [w.category for w in caught] == []


def test_an_opaque_kernel_is_told_by_name():
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] * 2

    def f(w, x):
        from jax.experimental import pallas as pl

        with jax.named_scope("net"), jax.named_scope("doubled"):
            shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
            x = pl.pallas_call(kernel, out_shape=shape, interpret=True, name="doubler")(x)
        return x @ w

    policy = Policy([Rule(input="fp16")])
    with pytest.warns(
        errors.OpaqueKernelWarning, match="pallas_call 'doubler' at net/doubled/doubler is opaque"
    ):
        simulate(f, policy)(W[0], X)

    def callback(w, x):
        x = jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)
        return x @ w

    with pytest.warns(errors.OpaqueKernelWarning, match="pure_callback at the top level"):
        simulate(callback, policy)(W[0], X)


def test_shard_map_is_opaque_from_outside_and_open_from_inside():
    mesh = jax.make_mesh((2,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec("d")
    policy = Policy([Rule(input="fp8_e4m3")])

    def body(x):
        return x @ W[0]

    def sharded(body):
        return jax.shard_map(body, mesh=mesh, in_specs=spec, out_specs=spec)

    with pytest.warns(errors.OpaqueKernelWarning, match="shard_map"):
        simulate(lambda w, x: sharded(body)(x) @ w, policy)(W[0], X)
    # Inside, the closed-over kernel is no parameter and x is argument 0: say so. Both are inputs.
    inside = sharded(simulate(body, policy, params=()))(X)
    want = fake_cast(X, "fp8_e4m3") @ fake_cast(W[0], "fp8_e4m3")
    np.testing.assert_allclose(inside, want, rtol=1e-6)


def test_sharded_operands_give_the_same_bits():
    mesh = jax.make_mesh((2, 4), ("d", "m"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    place = functools.partial(jax.sharding.NamedSharding, mesh)
    x = jax.device_put(jnp.tile(X, (2, 1)), place(jax.sharding.PartitionSpec("d")))
    w = jax.device_put(W[0], place(jax.sharding.PartitionSpec(None, "m")))
    policy = Policy([Rule(input=E4M3, weight=E4M3)])
    f = jax.jit(simulate(lambda w, x: x @ w, policy))
    got = f(w, x)
    want = f(W[0], jnp.tile(X, (2, 1)))
    np.testing.assert_allclose(got, want, rtol=1e-6)
    assert len(got.sharding.device_set) == 8
