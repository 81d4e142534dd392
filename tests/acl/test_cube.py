"""aclnnMatmul and aclnnConvolution: checks, and values against sums written out."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from npusim import acl, ops
from npusim._errors import AclnnError, ConversionError
from npusim.casting import array
from npusim.modes import Target
from tests.acl.common import CHIPS, blank, plan, run, tensor


def ints(*values):
    return acl.aclCreateIntArray(values)


def small(shape, seed, dtype=np.float16):
    """Small integers: every product and sum is exact in every compute type."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)


# -- Matmul


@pytest.mark.parametrize(
    ("a", "b"),
    [((2, 3), (3, 4)), ((3,), (3, 4)), ((2, 3), (3,)), ((5, 2, 3), (3, 4)), ((3,), (3,))],
)
def test_products_of_every_rank(a, b):
    x, y = small(a, 1), small(b, 2)
    want = x.astype(np.float64) @ y.astype(np.float64)
    got = run("Matmul", tensor(x), tensor(y), blank(want.shape, "f32"), 0)
    assert (np.asarray(got) == want).all()


@pytest.mark.parametrize("soc", CHIPS)
@pytest.mark.parametrize("kind", [0, 1, 2, 3, 4])
def test_the_numbers_are_those_of_ops(kind, soc):
    x = np.random.default_rng(3).normal(size=(4, 8)).astype(np.float32)
    y = np.random.default_rng(4).normal(size=(8, 4)).astype(np.float32)
    executor = plan("Matmul", tensor(x), tensor(y), blank((4, 4), "f32"), kind, soc=soc)[1]
    assert executor.computes_in == {1: "hf32", 2: "fp16", 3: "hf32"}.get(kind, "fp32")
    got = run("Matmul", tensor(x), tensor(y), blank((4, 4), "f32"), kind, soc=soc)
    want = ops.matmul(x, y, dtype="f32", cube_math_type=kind, target=Target(soc, "aclnn"))
    assert (got == want).all()


def test_what_matmul_refuses():
    x, y, out = (blank(s, "half") for s in ((2, 3), (3, 4), (2, 4)))
    steps = [
        ((None, y, out, 0), 161001, "self is None"),
        ((x, None, out, 0), 161001, "mat2 is None"),
        ((x, y, None, 0), 161001, "out is None"),
        ((blank((2, 3), "int8"), y, out, 0), 161002, "self of type int8 for aclnnMatmul on 950PR"),
        ((x, y, blank((2, 4), "int8"), 0), 161002, "out of type int8 for aclnnMatmul"),
        ((x, y, out, 5), 161002, "cubeMathType 5"),
        ((blank((2, 3), "f32"), y, out, 0), 161002, "output of type fp16 for an operand of type"),
        ((blank((1,) * 9, "half"), y, out, 0), 161002, "self of rank 9"),
        ((x, x, out, 0), 161002, "self (2, 3) and mat2 (2, 3) for aclnnMatmul"),
        ((x, y, blank((4, 2), "half"), 0), 161002, "out of shape (4, 2) for aclnnMatmul"),
        ((blank((), "half"), y, out, 0), 161002, "self () and mat2 (3, 4)"),
        (
            (blank((2, 2, 3), "half"), blank((3, 3, 4), "half"), out, 0),
            161002,
            "self (2, 2, 3) and",
        ),
    ]
    for call, code, start in steps:
        with pytest.raises(AclnnError) as error:
            plan("Matmul", *call)
        assert error.value.code == code
        assert str(error.value).startswith(f"Given: {start}"), start
    tiled = tensor(np.ones((3, 4), np.float16), fmt="FRACTAL_NZ")
    with pytest.raises(AclnnError) as error:
        plan("Matmul", x, tiled, out, 0)
    assert str(error.value) == (
        "Given: mat2 in format FRACTAL_NZ for aclnnMatmul. Allowed: ND and the other public "
        "formats. Convert it to a public format first (trans_data)."
    )


# -- Convolution


def convolved(x, w, stride, pads, dilation, groups=1):
    """A convolution, element by element."""
    space = x.ndim - 2
    x = np.pad(x, ((0, 0), (0, 0), *pads))
    spans = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilation, strict=True)]
    size = [(n - s) // t + 1 for n, s, t in zip(x.shape[2:], spans, stride, strict=True)]
    out = np.zeros((x.shape[0], w.shape[0], *size))
    per, each = w.shape[0] // groups, w.shape[1]
    for feature in range(w.shape[0]):
        group = feature // per
        taken = x[:, group * each : (group + 1) * each]
        for place in itertools.product(*map(range, size)):
            window = tuple(
                slice(p * t, p * t + s, d)
                for p, t, s, d in zip(place, stride, spans, dilation, strict=True)
            )
            part = taken[(slice(None), slice(None), *window)]
            axes = tuple(range(1, 2 + space))
            out[(slice(None), feature, *place)] = (part * w[feature]).sum(axes)
    return out


def transposed(x, w, stride, pads, dilation, extra, groups=1):
    """The gradient of a convolution towards its input: every element is spread by the weight."""
    space = x.ndim - 2
    each = w.shape[1]
    size = [
        (n - 1) * t - lo - hi + (k - 1) * d + 1 + e
        for n, t, (lo, hi), k, d, e in zip(
            x.shape[2:], stride, pads, w.shape[2:], dilation, extra, strict=True
        )
    ]
    out = np.zeros((x.shape[0], each * groups, *size))
    for place in itertools.product(*map(range, x.shape[2:])):
        for tap in itertools.product(*map(range, w.shape[2:])):
            to = [
                p * t + k * d - lo
                for p, t, k, d, (lo, _) in zip(place, stride, tap, dilation, pads, strict=True)
            ]
            if not all(0 <= i < n for i, n in zip(to, size, strict=True)):
                continue
            for channel in range(x.shape[1]):
                group = channel // (x.shape[1] // groups)
                where = (slice(None), slice(group * each, (group + 1) * each), *to)
                value = x[(slice(None), channel, *place)]
                out[where] += value[:, None] * w[(channel, slice(None), *tap)][None]
    assert space == len(size)
    return out


CASES = [
    ("NCL", (2, 4, 9), (6, 4, 3), (2,), (1, 0), (2,), 1),
    ("NCL", (1, 4, 9), (6, 2, 3), (1,), (1,), (1,), 2),
    ("NCHW", (2, 2, 5, 6), (3, 2, 2, 3), (1, 2), (0, 1), (1, 1), 1),
    ("NCHW", (1, 4, 5, 6), (4, 1, 2, 2), (2, 1), (1, 0, 2, 1), (2, 2), 4),
    ("NCDHW", (1, 2, 3, 4, 3), (2, 2, 2, 2, 2), (1, 2, 1), (1, 0, 0), (1, 1, 2), 1),
]


def pairs(padding, space):
    if len(padding) == space:
        return [(n, n) for n in padding]
    return list(zip(padding[::2], padding[1::2], strict=True))


@pytest.mark.parametrize(
    ("fmt", "shape", "kernel", "stride", "padding", "dilation", "groups"), CASES
)
def test_convolutions(fmt, shape, kernel, stride, padding, dilation, groups):
    x, w, b = small(shape, 1), small(kernel, 2), small(kernel[:1], 3)
    want = convolved(x, w, stride, pairs(padding, len(stride)), dilation, groups)
    want += b.reshape(-1, *[1] * len(stride))
    out = acl.aclCreateTensor(want.shape, "f32", None, 0, fmt, want.shape, None)
    got = run(
        *("Convolution", tensor(x, fmt=fmt), tensor(w, fmt=fmt), tensor(b), ints(*stride)),
        *(ints(*padding), ints(*dilation), False, None, groups, out, 0),
    )
    assert (np.asarray(got) == want).all()


@pytest.mark.parametrize(
    ("fmt", "shape", "kernel", "stride", "padding", "dilation", "extra", "groups"),
    [
        ("NCL", (2, 4, 5), (4, 3, 3), (2,), (1,), (1,), (1,), 1),
        ("NCHW", (1, 4, 3, 3), (4, 2, 2, 3), (2, 1), (0, 1), (1, 2), (1, 0), 2),
        ("NCDHW", (1, 2, 2, 2, 3), (2, 1, 2, 2, 1), (2, 1, 1), (1, 0, 0), (1, 1, 1), (0, 0, 0), 1),
    ],
)
def test_transposed_convolutions(fmt, shape, kernel, stride, padding, dilation, extra, groups):
    x, w = small(shape, 1), small(kernel, 2)
    want = transposed(x, w, stride, pairs(padding, len(stride)), dilation, extra, groups)
    out = acl.aclCreateTensor(want.shape, "half", None, 0, fmt, want.shape, None)
    got = run(
        *("Convolution", tensor(x, fmt=fmt), tensor(w, fmt=fmt), None, ints(*stride)),
        *(ints(*padding), ints(*dilation), True, ints(*extra), groups, out, 0),
    )
    assert (np.asarray(got) == want).all()


def test_hf32_is_what_type_3_runs():
    x = tensor(np.full((1, 1, 1), 1 + 2**-11, np.float32), fmt="NCL")
    one = tensor(np.ones((1, 1, 1), np.float32), fmt="NCL")
    out = acl.aclCreateTensor((1, 1, 1), "f32", None, 0, "NCL", (1, 1, 1), None)
    rest = (None, ints(1), ints(0), ints(1), False, None, 1, out)
    assert run("Convolution", x, one, *rest, 3).item() == 1.0  # ties to even
    assert run("Convolution", x, one, *rest, 3, soc="A2A3").item() == 1 + 2**-11
    assert run("Convolution", x, one, *rest, 0).item() == 1 + 2**-11


def image(shape, dtype="half", fmt="NCHW"):
    return acl.aclCreateTensor(shape, dtype, None, 0, fmt, shape, None)


GOOD = {
    "input": image((1, 4, 5, 5)),
    "weight": image((6, 4, 3, 3)),
    "bias": blank((6,), "half"),
    "stride": ints(1, 1),
    "padding": ints(0, 0),
    "dilation": ints(1, 1),
    "transposed": False,
    "outputPadding": None,
    "groups": 1,
    "output": image((1, 6, 3, 3)),
    "cubeMathType": 0,
}
BACK = {
    **GOOD,
    "weight": image((4, 6, 3, 3)),
    "transposed": True,
    "outputPadding": ints(0, 0),
    "output": image((1, 6, 7, 7)),
}


@pytest.mark.parametrize("name", ["input", "weight", "stride", "padding", "dilation", "output"])
def test_null_arguments_of_convolution(name):
    with pytest.raises(AclnnError, match=f"Given: {name} is None") as error:
        plan("Convolution", *{**GOOD, name: None}.values())
    assert error.value.code == 161001


def test_output_padding_matters_to_transposed_convolutions_only():
    plan("Convolution", *{**GOOD, "bias": None}.values())
    plan("Convolution", *BACK.values())
    with pytest.raises(AclnnError, match="outputPadding is None") as error:
        plan("Convolution", *{**BACK, "outputPadding": None}.values())
    assert error.value.code == 161001


@pytest.mark.parametrize(
    ("base", "changed", "text"),
    [
        (
            GOOD,
            {"input": image((1, 4, 5, 5), fmt="ND")},
            (
                "Given: input in format ND for aclnnConvolution. Allowed: NCL, NCHW, NCDHW. The "
                "operator needs to know the axes: create the tensor in one of these formats."
            ),
        ),
        (
            GOOD,
            {"weight": image((6, 4, 3, 3), fmt="NHWC")},
            (
                "Given: weight in format NHWC for aclnnConvolution. Allowed: NCL, NCHW, NCDHW. The "
                "operator needs to know the axes: create the tensor in one of these formats."
            ),
        ),
        (
            GOOD,
            {"output": tensor(np.ones((1, 6, 3, 3), np.float16), fmt="NC1HWC0")},
            (
                "Given: output in format NC1HWC0 for aclnnConvolution. Allowed: NCL, NCHW, NCDHW. "
                "The operator needs to know the axes: create the tensor in one of these formats."
            ),
        ),
        (
            GOOD,
            {"bias": image((1, 6), fmt="NC")},
            (
                "Given: bias in format NC for aclnnConvolution. Allowed: ND, NCL, NCHW, NCDHW. "
                "Create it in one of these formats."
            ),
        ),
        (
            GOOD,
            {"weight": image((6, 4, 3), fmt="NCL")},
            (
                "Given: formats input NCHW, weight NCL, output NCHW for aclnnConvolution. Allowed: "
                "one format for input, weight and output. Create all three in the format of their "
                "rank."
            ),
        ),
        (GOOD, {"input": image((1, 4, 5, 5), "int8")}, None),
        (GOOD, {"bias": blank((6,), "int32")}, None),
        (GOOD, {"output": image((1, 6, 3, 3), "int8")}, None),
        (GOOD, {"cubeMathType": 7}, None),
        (
            GOOD,
            {"stride": ints(1)},
            (
                "Given: stride [1] for aclnnConvolution. Allowed: 2 integers of 1 or more. Give "
                "one number an axis of space."
            ),
        ),
        (
            GOOD,
            {"stride": ints(0, 1)},
            (
                "Given: stride [0, 1] for aclnnConvolution. Allowed: 2 integers of 1 or more. Give "
                "one number an axis of space."
            ),
        ),
        (
            GOOD,
            {"padding": ints(0, 0, 0)},
            (
                "Given: padding [0, 0, 0] for aclnnConvolution. Allowed: 2 or 4 integers of 0 or "
                "more. Give one number an axis of space."
            ),
        ),
        (
            GOOD,
            {"dilation": ints(1, 0)},
            (
                "Given: dilation [1, 0] for aclnnConvolution. Allowed: 2 integers of 1 or more. "
                "Give one number an axis of space."
            ),
        ),
        (
            BACK,
            {"outputPadding": ints(1, 0)},
            (
                "Given: outputPadding [1, 0] for aclnnConvolution. Allowed: numbers below stride "
                "or dilation, [1, 1]. Take a smaller outputPadding."
            ),
        ),
        (
            GOOD,
            {"groups": 0},
            "Given: groups 0 for aclnnConvolution. Allowed: 1 to 65535. Pass 1 for no groups.",
        ),
        (
            GOOD,
            {"groups": 2},
            (
                "Given: input (1, 4, 5, 5) with weight (6, 4, 3, 3) and groups 2 for "
                "aclnnConvolution. Allowed: an input of 8 channels, and channels that groups "
                "divides. The weight is (in, out / groups, ...) if transposed, else (out, in / "
                "groups, ...)."
            ),
        ),
        (
            GOOD,
            {"bias": blank((4,), "half")},
            "Given: bias of shape (4,) for aclnnConvolution. Allowed: (6,). One number a channel.",
        ),
        (
            GOOD,
            {"output": image((1, 6, 4, 3))},
            (
                "Given: output of shape (1, 6, 4, 3) for aclnnConvolution. Allowed: (1, 6, 3, 3). "
                "Make a tensor of this shape."
            ),
        ),
        (
            GOOD,
            {"weight": image((6, 4, 7, 3))},
            (
                "Given: input (1, 4, 5, 5) with weight (6, 4, 7, 3), padding ((0, 0), (0, 0)) and "
                "dilation (1, 1) for aclnnConvolution. Allowed: a padded input that is at least as "
                "large as the dilated weight. Axis 2 leaves nothing: pad more, or take a smaller "
                "weight."
            ),
        ),
        (
            BACK,
            {"output": image((1, 6, 7, 7), "float")},
            (
                "Given: output of type fp32 for aclnnConvolution with transposed. Allowed: fp16. "
                "Make an output of the derived type."
            ),
        ),
        (GOOD, {"stride": [1, 1]}, None),
    ],
)
def test_what_convolution_refuses(base, changed, text):
    with pytest.raises(AclnnError) as error:
        plan("Convolution", *{**base, **changed}.values())
    assert error.value.code == 161002
    if text is not None:
        assert str(error.value) == text


def test_a_result_that_does_not_become_the_output():
    bad = {**GOOD, "input": image((1, 4, 5, 5), "f32"), "output": image((1, 6, 3, 3), "half")}
    with pytest.raises(ConversionError) as error:
        plan("Convolution", *bad.values())
    assert error.value.code == 161002


def test_hif8_is_taken_by_950_alone():
    x = acl.aclTensor.from_jax(array(jnp.ones((1, 1, 3)), "hif8"), "NCL")
    out = acl.aclCreateTensor((1, 1, 1), "f32", None, 0, "NCL", (1, 1, 1), None)
    rest = (None, ints(1), ints(0), ints(1), False, None, 1, out, 0)
    assert run("Convolution", x, x, *rest).item() == 3.0
    with pytest.raises(AclnnError, match="input of type hif8 for aclnnConvolution on A2A3"):
        plan("Convolution", x, x, *rest, soc="A2A3")
