"""Operand rounding, accumulation, output casts and derivatives of the Cube's products."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax

import npusim as npu
from npusim import ops
from npusim._errors import ConversionError, InputError, UnknownNameError
from tests.helpers import same_arrays, same_words
from tests.ops.order import ordered, running
from tests.oracle.casts import cast

RNG = np.random.default_rng(2)
LABORATORY = npu.Target(api="numerics")
DOT = jax.jit(ops.ordered_dot, static_argnums=(2, 3))
FORMS = ["sequential", ("blocked", 1), ("blocked", 8), ("blocked", 16), ("blocked", 23)]
FORMS += [("blocked", 48), ("blocked", 64)]


def _draw(shape, kind):
    x = RNG.standard_normal(shape) * 2.0 ** RNG.integers(-6, 7, shape)
    return np.asarray(npu.cast(x.astype(np.float32), kind, target=LABORATORY)).astype(np.float32)


@pytest.mark.parametrize("kind", ["fp16", "bf16", "fp8_e4m3"])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_stated_orders_are_exact_on_half_precision_grids(form, kind):
    a, b = _draw((13, 150), kind), _draw((150, 9), kind)
    dims = (((1,), (0,)), ((), ()))
    got = np.asarray(DOT(a, b, dims, form))
    want = ordered(a, b, form)
    same_words(got.view(np.uint32), got.view(np.uint32), want.view(np.uint32), str(form))


@pytest.mark.parametrize("depth", [0, 1, 33])
def test_stated_orders_of_any_depth(depth):
    a, b = _draw((3, depth), "fp16"), _draw((depth, 2), "fp16")
    dims = (((1,), (0,)), ((), ()))
    for form in ("sequential", ("blocked", 4)):
        got = np.asarray(DOT(a, b, dims, form))
        np.testing.assert_array_equal(got, ordered(a, b, form))


def test_the_orders_differ():
    a, b = _draw((8, 300), "fp16"), _draw((300, 8), "fp16")
    one, two = (ordered(a, b, form) for form in ("sequential", ("blocked", 16)))
    assert (one != two).any()


def test_batches_and_several_contracted_axes():
    a, b = _draw((3, 2, 4, 5), "fp16"), _draw((5, 3, 6, 2), "fp16")
    dims = (((3, 1), (0, 3)), ((0,), (1,)))  # k runs over (axis 3, axis 1) in this order
    got = np.asarray(ops.dot_general(a, b, dims, accumulate="sequential"))
    for i in range(3):
        x = a[i].transpose(1, 2, 0).reshape(4, 10)
        y = b[:, i].transpose(0, 2, 1).reshape(10, 6)
        np.testing.assert_array_equal(got[i], running(x, y))
    plain = np.asarray(lax.dot_general(a, b, dims, precision="highest"))
    np.testing.assert_allclose(got, plain, rtol=1e-5, atol=1e-4)


def test_infinities_do_not_spread_from_the_padding():
    a, b = np.ones((2, 17), np.float32), np.ones((17, 2), np.float32)
    a[0, 0] = np.inf
    for form in ("sequential", ("blocked", 16)):
        got = ops.matmul(a, b, accumulate=form)
        assert got.tolist() == [[np.inf, np.inf], [17.0, 17.0]]


def test_fast_agrees_with_exact_sums():
    a, b = (RNG.integers(-64, 65, s).astype(np.float16) for s in ((20, 90), (90, 30)))
    exact = a.astype(np.int64) @ b.astype(np.int64)
    got = ops.matmul(a, b, dtype="fp32")
    np.testing.assert_array_equal(np.asarray(got), exact.astype(np.float32))
    np.testing.assert_array_equal(
        np.asarray(ops.matmul(a, b)), exact.astype(np.float32).astype(np.float16)
    )


def test_int8_products_are_exact():
    a, b = (RNG.integers(-128, 128, s).astype(np.int8) for s in ((7, 4000), (4000, 5)))
    exact = a.astype(np.int64) @ b.astype(np.int64)
    for form in ("fast", "sequential"):
        got = ops.matmul(a, b, accumulate=form)
        assert got.dtype == jnp.int32
        np.testing.assert_array_equal(np.asarray(got), exact)
    bias = jnp.array([1, 2, 3, 4, 5], jnp.int32)
    np.testing.assert_array_equal(np.asarray(ops.matmul(a, b, bias)), exact + np.arange(1, 6))
    full = np.full((1, 1 << 17), -128, np.int8)
    assert ops.matmul(full, full.T)[0, 0] == -(1 << 31)  # 2**31 wraps


def test_narrow_formats():
    values = np.array([[1.0, 2.0, -0.5, 4.0]], np.float32)
    for name, soc in (("hif8", "950PR"), ("fp8_e4m3", "950PR"), ("int4", "A2A3")):
        x = npu.array(np.round(values) if name == "int4" else values, name)
        y = npu.array(np.round(values.T) if name == "int4" else values.T, name)
        got = ops.matmul(x, y, target=npu.Target(soc, "aclnn"))
        assert float(got[0, 0]) == (21.0 if name == "int4" else 21.25)
    mixed = ops.matmul(npu.array(values, "e4m3"), npu.array(values.T, "e5m2"))
    assert mixed.dtype == jnp.float32


def _hf32_words(bits, mode, words):
    return np.array([cast(int(w), "f32", bits, mode, False) for w in words], np.uint32)


@pytest.mark.parametrize(("soc", "fmt"), [("A2A3", "hf32_11"), ("950PR", "hf32_10")])
def test_hf32_rounds_ties_away_in_matmul_and_to_even_in_conv(soc, fmt):
    drop = 12 if soc == "A2A3" else 13
    words = RNG.integers(0x30000000, 0x50000000, 400).astype(np.uint32)
    words[:200] = (words[:200] >> drop << drop) | (1 << (drop - 1))  # ties
    x = words.view(np.float32)
    target = npu.Target(soc, "aclnn")
    got = np.asarray(
        ops.matmul(x[:, None], np.ones((1, 1), np.float32), cube_math_type=3, target=target)
    )
    same_words(words, got[:, 0].view(np.uint32), _hf32_words(fmt, "ROUND", words), f"matmul {soc}")
    got = np.asarray(
        ops.conv(x[:, None, None], np.ones((1, 1, 1), np.float32), (1,), "VALID", target=target)
    )
    same_words(words, got[:, 0, 0].view(np.uint32), _hf32_words(fmt, "RINT", words), f"conv {soc}")


def test_defaults_of_allow_hf32():
    x = jnp.full((1, 1), 1 + 2.0**-20)
    one = jnp.ones((1, 1))
    assert ops.matmul(x, one)[0, 0] == x[0, 0]
    assert ops.conv(x[None], one[None], (1,), "VALID")[0, 0, 0] == 1
    assert ops.conv(x[None], one[None], (1,), "VALID", cube_math_type=0)[0, 0, 0] == x[0, 0]


def test_use_fp16_writes_half():
    x, y = jnp.array([[1 + 2.0**-12, 1e5]]), jnp.array([[1.0], [0.0]])
    got = ops.matmul(x[:, :1], y[:1], cube_math_type=2)
    assert got.dtype == jnp.float32
    assert got[0, 0] == 1
    assert np.isinf(ops.matmul(x[:, 1:], y[:1], cube_math_type=2)[0, 0])
    saturating = npu.Target("A2A3", "aclnn", overflow="SATURATE")
    assert ops.matmul(x[:, 1:], y[:1], cube_math_type=2, target=saturating)[0, 0] == 65504
    half = jnp.full((1, 2), 40000, jnp.float16)
    assert np.isinf(ops.matmul(half, jnp.ones((2, 1), jnp.float16))[0, 0])
    wide = ops.matmul(half, jnp.ones((2, 1), jnp.float16), dtype="fp32")
    assert wide[0, 0] == 80000  # one output cast: float32 is written directly


def test_keep_dtype_refuses_half_output_of_float32():
    x = jnp.ones((2, 2))
    with pytest.raises(ConversionError, match="cube_math_type=2"):
        ops.matmul(x, x, dtype="fp16")
    assert ops.matmul(x, x, dtype="fp16", cube_math_type=2).dtype == jnp.float16
    with pytest.raises(ConversionError):
        ops.matmul(x, x, dtype="int32")


def test_two_vectors_ignore_the_math_type():
    x = jnp.array([1 + 2.0**-20])
    assert ops.matmul(x, jnp.ones(1), cube_math_type=3) == x[0]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((4,), (4,)),
        ((3, 4), (4,)),
        ((4,), (4, 5)),
        ((2, 3, 4), (4, 5)),
        ((2, 1, 3, 4), (6, 4, 5)),
        ((4,), (2, 4, 5)),
        ((2, 3, 4), (4,)),
        ((0, 4), (4, 5)),
    ],
)
def test_shapes_are_those_of_numpy(a, b):
    x, y = (RNG.integers(-4, 5, s).astype(np.float32) for s in (a, b))
    for form in ("fast", "sequential"):
        got = ops.matmul(x, y, accumulate=form)
        np.testing.assert_array_equal(np.asarray(got), np.matmul(x, y))


def test_bias():
    x = jnp.ones((2, 3), jnp.float16)
    y = jnp.ones((3, 2), jnp.float16)
    for bias in (jnp.float32(2.0**-3), jnp.array([0.125, 0.125], jnp.bfloat16)):
        assert ops.matmul(x, y, bias).tolist() == [[3.125, 3.125]] * 2
    fine = jnp.full(2, 2.0**-14 + 2.0**-26)  # enters as float32, the sum is rounded once
    assert ops.matmul(x, y, fine, dtype="fp32")[0, 0] == np.float32(3 + 2.0**-14)
    for bad in (jnp.ones(2, jnp.int32), jnp.ones(2, jnp.int8)):
        with pytest.raises(InputError, match="Allowed: fp32, fp16, bf16"):
            ops.matmul(x, y, bad)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: ops.matmul(jnp.ones((2, 3)), jnp.ones((2, 3))), "(..., m, k)"),
        (lambda: ops.matmul(jnp.ones((2, 3, 4)), jnp.ones((5, 4, 2))), "(..., m, k)"),
        (lambda: ops.matmul(jnp.float32(1), jnp.ones(3)), "(..., m, k)"),
        (lambda: ops.matmul(jnp.ones(2, jnp.int32), jnp.ones(2, jnp.int32)), "fp32 x fp32"),
        (lambda: ops.batch_matmul(jnp.ones((2, 3)), jnp.ones((2, 3))), "rank 3"),
        (lambda: ops.matmul(jnp.ones(2), jnp.ones(2), accumulate="tree"), "('blocked', k)"),
        (lambda: ops.matmul(jnp.ones(2), jnp.ones(2), accumulate=("blocked", 0)), "sequential"),
        (lambda: ops.matmul(jnp.ones(2), jnp.ones(2), cube_math_type=7), "2 USE_FP16"),
        (
            lambda: ops.dot_general(
                jnp.ones(2), jnp.ones(2), (((0,), (0,)), ((), ())), out_sharding=1
            ),
            "None",
        ),
        (
            lambda: ops.conv(
                jnp.ones((2, 1, 3)), jnp.ones((2, 1, 1)), (1,), "SAME",
                batch_group_count=2, accumulate="sequential",
            ),
            "batch_group_count=1",
        ),
    ],
)  # fmt: skip
def test_errors(call, text):
    kinds = (InputError, UnknownNameError)
    with pytest.raises(kinds, match=r"Given: .*Allowed: ") as caught:
        call()
    assert text in str(caught.value)


def test_accumulate_from_a_configuration_file():
    assert ops.check_accumulate(["blocked", 16]) == ("blocked", 16)


# Convolution


def _naive_conv(x, w, strides, pads, left, right, groups):
    """NCHW by OIHW, positions of the kernel first, then features, one float32 sum at a time."""
    wide = [(n - 1) * d + 1 for n, d in zip(x.shape[2:], left, strict=True)]
    spread = np.zeros((*x.shape[:2], *wide), np.float32)
    spread[:, :, :: left[0], :: left[1]] = x
    spread = np.pad(spread, [(0, 0), (0, 0), *pads])
    spans = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], right, strict=True)]
    size = [(n - s) // t + 1 for n, s, t in zip(spread.shape[2:], spans, strides, strict=True)]
    out = np.zeros((x.shape[0], w.shape[0], *size), np.float32)
    share = w.shape[0] // groups
    for o in range(w.shape[0]):
        first = o // share * w.shape[1]
        for p in range(w.shape[2]):
            for q in range(w.shape[3]):
                rows = slice(
                    p * right[0], p * right[0] + (size[0] - 1) * strides[0] + 1, strides[0]
                )
                cols = slice(
                    q * right[1], q * right[1] + (size[1] - 1) * strides[1] + 1, strides[1]
                )
                for c in range(w.shape[1]):
                    out[:, o] += spread[:, first + c, rows, cols] * w[o, c, p, q]
    return out


GEOMETRY = [
    ((1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1), 1),
    ((2, 1), ((1, 1), (0, 2)), (1, 1), (1, 2), 1),
    ((1, 2), ((2, 0), (1, 1)), (2, 1), (1, 1), 2),
]


@pytest.mark.parametrize("geometry", GEOMETRY)
def test_convolution_in_a_stated_order(geometry):
    strides, pads, left, right, groups = geometry
    x, w = _draw((2, 4, 7, 6), "fp16"), _draw((8, 4 // groups, 3, 2), "fp16")
    half = [v.astype(np.float16) for v in (x, w)]
    want = _naive_conv(x, w, strides, pads, left, right, groups)
    arguments = (strides, pads, left, right)
    for form in ("sequential", "fast"):
        got = ops.conv(
            *half, *arguments, feature_group_count=groups, preferred_element_type="fp32",
            accumulate=form,
        )  # fmt: skip
        if form == "sequential":
            np.testing.assert_array_equal(np.asarray(got), want)
        else:
            np.testing.assert_allclose(np.asarray(got), want, rtol=1e-5, atol=1e-2)


def test_convolution_layouts_padding_and_bias():
    x, w = _draw((2, 5, 6, 4), "bf16"), _draw((3, 3, 4, 8), "bf16")
    kinds = [v.astype(ml_dtypes.bfloat16) for v in (x, w)]
    layout = ("NHWC", "HWIO", "NHWC")
    plain = lax.conv_general_dilated(x, w, (2, 1), "SAME", dimension_numbers=layout)
    bias = jnp.arange(8, dtype=jnp.float32)
    for form in ("fast", "sequential", ("blocked", 16)):
        got = ops.conv(
            *kinds, (2, 1), "SAME", dimension_numbers=layout, bias=bias, accumulate=form,
            preferred_element_type="fp32",
        )  # fmt: skip
        assert got.shape == plain.shape
        np.testing.assert_allclose(np.asarray(got), plain + bias, rtol=1e-4, atol=5e-2)
    got = ops.conv(*kinds, (2, 1), "SAME", dimension_numbers=layout)
    assert got.dtype == jnp.bfloat16


# Derivatives and transforms


def test_gradients_of_float32_are_those_of_jnp():
    a, b, g = (jnp.asarray(RNG.standard_normal(s), jnp.float32) for s in ((3, 4), (4, 5), (3, 5)))
    want = jax.grad(lambda x, y: jnp.vdot(jnp.matmul(x, y, precision="highest"), g), (0, 1))(a, b)
    for form in ("fast", "sequential", ("blocked", 2)):
        loss = lambda x, y, form=form: jnp.vdot(ops.matmul(x, y, accumulate=form), g)  # noqa: E731
        same_arrays(jax.grad(loss, (0, 1))(a, b), want, str(form))
        _, tangent = jax.jvp(functools.partial(ops.matmul, accumulate=form), (a, b), (a, b))
        np.testing.assert_allclose(tangent, 2 * (a @ b), rtol=1e-5, atol=1e-5)
    assert jax.hessian(lambda x: jnp.sum(ops.matmul(x, x)))(jnp.ones((2, 2))).shape == (2,) * 4


@pytest.mark.parametrize("soc", ["A2A3", "950PR"])
def test_gradients_of_hf32_are_hf32_products(soc):
    a, b, g = (jnp.asarray(RNG.standard_normal(s), jnp.float32) for s in ((3, 4), (4, 5), (3, 5)))
    rounded = lambda x: npu.fake_cast(x, "hf32", "ROUND", "OFF", target=npu.Target(soc, "numerics"))  # noqa: E731
    run = lambda x, y: ops.matmul(x, y, cube_math_type=3, target=npu.Target(soc, "aclnn"))  # noqa: E731
    got = jax.vjp(run, a, b)[1](g)
    dot = functools.partial(jnp.matmul, precision="highest")
    want = dot(rounded(g), rounded(b).T), dot(rounded(a).T, rounded(g))
    for x, y in zip(got, want, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-6)


def test_gradients_of_half_are_half():
    a, b = (jnp.asarray(RNG.standard_normal(s), jnp.float16) for s in ((3, 4), (4, 5)))
    got = jax.grad(lambda x, y: jnp.sum(ops.matmul(x, y).astype(jnp.float32)), (0, 1))(a, b)
    assert [v.dtype for v in got] == [jnp.float16] * 2
    np.testing.assert_allclose(
        got[0], np.broadcast_to(np.asarray(b, np.float32).sum(1), (3, 4)), rtol=1e-3, atol=1e-3
    )


@pytest.mark.parametrize("form", ["fast", "sequential", ("blocked", 4)], ids=str)
def test_the_same_bits_under_jit_vmap_and_scan(form):
    a, b = (jnp.asarray(_draw(s, "fp16"), jnp.float16) for s in ((2, 3, 20), (20, 5)))
    run = functools.partial(ops.matmul, accumulate=form, dtype="fp32")
    eager = run(a, b)
    same_arrays(jax.jit(run)(a, b), eager, "jit")
    if form != "fast":
        same_arrays(jax.vmap(run, (0, None))(a, b), eager, "vmap")
        same_arrays(lax.map(lambda x: run(x, b), a), eager, "map")


@pytest.mark.parametrize("form", ["fast", "sequential"])
def test_flax_layers_take_them(form):
    dot = functools.partial(ops.dot_general, accumulate=form, target=npu.Target("A2A3", "aclnn"))
    layer = nn.Dense(4, dot_general=dot, dtype=jnp.float16)
    x = jnp.asarray(RNG.standard_normal((2, 3)), jnp.float32)
    variables = layer.init(jax.random.key(0), x)
    got = layer.apply(variables, x)
    kernel = np.asarray(variables["params"]["kernel"], np.float16).astype(np.float32)
    want = running(np.asarray(x, np.float16).astype(np.float32), kernel).astype(np.float16)
    assert got.dtype == jnp.float16
    np.testing.assert_array_equal(np.asarray(got), want)
    grads = jax.grad(lambda v: jnp.sum(layer.apply(v, x).astype(jnp.float32)))(variables)
    assert jnp.isfinite(grads["params"]["kernel"]).all()
    if form != "fast":
        return
    conv = nn.Conv(2, (3,), conv_general_dilated=functools.partial(ops.conv, accumulate=form))
    image = x[:, :, None]
    variables = conv.init(jax.random.key(1), image)
    grads = jax.grad(lambda v: jnp.sum(conv.apply(v, image) ** 2))(variables)
    assert jnp.isfinite(grads["params"]["kernel"]).all()
