"""The snippets of the pypto.cast page as printed, and what the page says in words."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import npusim as npu
from npusim import pypto


def test_first_snippet_as_printed():
    pypto.set_vec_tile_shapes(4, 16)
    x = pypto.tensor([2], pypto.DT_FP32)
    y = pypto.cast(x, pypto.DT_FP16)
    assert x.dtype == pypto.DT_FP32
    assert y.dtype == pypto.DT_FP16
    assert y.shape == [2]


def test_first_snippet_with_its_data():
    x = pypto.tensor([2], pypto.DT_FP32, data=[2.0, 3.0])
    y = pypto.cast(x, pypto.DT_FP16)
    assert x.tolist() == y.tolist() == [2.0, 3.0]
    assert y.dtype == pypto.DT_FP16


def test_saturation_snippets_as_printed():
    x = pypto.tensor([300.0, -300.0, 50.0], pypto.DT_FP16)
    y = pypto.cast(x, pypto.DT_INT8, satmode=pypto.SaturationMode.ON)
    assert y.tolist() == [127, -128, 50]
    x = pypto.tensor([300.0, -300.0, 50.0], pypto.DT_FP16)
    y = pypto.cast(x, pypto.DT_INT8, satmode=pypto.SaturationMode.OFF)
    assert y.tolist() == [44, -44, 50]
    assert pypto.cast(x, pypto.DT_INT8).tolist() == [44, -44, 50]


def test_every_format_of_the_page_is_named():
    for row in (*npu.supported_casts(npu.Target()), *npu.supported_casts(npu.Target("A2A3"))):
        assert getattr(pypto, row.src.name) is row.src
        assert getattr(pypto, row.dst.name) is row.dst


@pytest.mark.parametrize("soc", ["950PR", "A2A3"])
def test_every_pair_of_the_page_as_npu_cast(soc):
    target = npu.Target(soc, "pypto")
    for row in npu.supported_casts(target):
        if row.src.needs_x64 or row.dst.needs_x64:
            continue
        codes = np.arange(8, dtype=f"uint{max(row.src.bits, 8)}")
        value = npu.from_codes(codes, row.src)
        got = pypto.cast(pypto.tensor(value), row.dst, soc=soc)
        assert got.dtype is row.dst
        want = npu.cast(value, row.dst, target=target)
        np.testing.assert_array_equal(npu.to_codes(got.value), npu.to_codes(want))


def test_integers_are_a_shape_and_all_else_is_values():
    assert pypto.tensor([2, 3], pypto.DT_INT32).shape == [2, 3]
    assert pypto.tensor((4,)).dtype is pypto.DT_FP32
    assert pypto.tensor([[2, 3]], pypto.DT_INT32).tolist() == [[2, 3]]
    assert pypto.tensor([2.0], pypto.DT_INT32).tolist() == [2]
    assert pypto.tensor(np.array([7, 8], np.int32)).tolist() == [7, 8]
    assert pypto.tensor([2], pypto.DT_INT32, data=[7, 9]).tolist() == [7, 9]


def test_values_round_once_and_overflow_to_infinity():
    assert pypto.tensor([70000.0, 0.1], pypto.DT_FP16).tolist() == [np.inf, 0.0999755859375]
    # Just above a tie, told apart in float64 only.
    assert pypto.tensor([1 + 2**-11 + 2**-40], pypto.DT_FP16).tolist() == [1 + 2**-10]


def test_deqscale_belongs_to_the_call_or_to_the_tensor():
    x = pypto.tensor([1], pypto.DT_INT32, data=[1_000_000])
    assert pypto.cast(x, pypto.DT_FP16, deqscale=0.01).tolist() == [10000.0]
    scaled = pypto.set_deqscale(x, 0.01)
    assert pypto.cast(scaled, pypto.DT_FP16).tolist() == [10000.0]
    assert pypto.cast(scaled, pypto.DT_FP16, deqscale=2**-10).tolist() == [976.5]
    assert pypto.cast(scaled, pypto.DT_FP32).tolist() == [1e6]
    assert pypto.cast(x, pypto.DT_FP16).tolist() == [np.inf]

    @jax.jit
    def convert(tensor, scale):
        return pypto.cast(pypto.set_deqscale(tensor, scale), pypto.DT_FP16)

    assert convert(x, 0.01).tolist() == [10000.0]
    assert convert(x, 2**-10).tolist() == [976.5]


def test_tensor_is_a_pytree():
    x = pypto.tensor([300.0, -300.0], pypto.DT_FP16, name="x")
    leaves, tree = jax.tree.flatten(x)
    again = jax.tree.unflatten(tree, leaves)
    assert again.name == "x"
    assert again.format is pypto.TileOpFormat.TILEOP_ND
    compiled = jax.jit(lambda t: pypto.cast(t, "int8"))
    assert compiled(x).tolist() == [44, -44]
    packed = jax.jit(lambda t: pypto.cast(t, "fp4_e2m1"))(pypto.tensor([1.0, 9.0], "bf16"))
    assert packed.tolist() == [1.0, 6.0]
    gradient = jax.grad(lambda v: jnp.sum(pypto.cast(pypto.tensor(v), "half").to_jax() ** 2))
    np.testing.assert_array_equal(gradient(jnp.array([3.0])), [6.0])


def test_fallback_warns_at_the_callers_line():
    x = pypto.tensor([1.8125], pypto.DT_FP32)
    with pytest.warns(npu.CastFallbackWarning, match="ROUND runs instead") as caught:
        y = pypto.cast(x, pypto.DT_HF8, pypto.CastMode.CAST_RINT)
    assert caught[0].filename == __file__
    assert y.tolist() == [1.875]
    assert repr(y) == "Tensor([1.875], DT_HF8)"


ERRORS = {
    "nz": (
        lambda: pypto.cast(
            pypto.tensor([2], pypto.DT_FP32, format=pypto.TileOpFormat.TILEOP_NZ), "half"
        ),
        (
            "Given: a tensor of format TILEOP_NZ. Allowed: TILEOP_ND. pypto.cast does not take "
            "TILEOP_NZ; make the tensor with TILEOP_ND."
        ),
    ),
    "array": (
        lambda: pypto.cast(np.ones(2, np.float16), "int8"),
        (
            "Given: an input of type ndarray. Allowed: a pypto.Tensor. Wrap it: "
            "pypto.tensor(values, pypto.DT_FP16)."
        ),
    ),
    "negative": (
        lambda: pypto.tensor([-2], pypto.DT_INT32),
        (
            "Given: shape [-2]. Allowed: lengths of 0 and more. A list of integers is a shape; "
            "pass "
            "integer values as data=[...]."
        ),
    ),
    "data": (
        lambda: pypto.tensor([2], pypto.DT_FP32, data=[1.0]),
        "Given: data of shape [1]. Allowed: shape [2]. Give as many values as the shape says.",
    ),
    "range": (
        lambda: pypto.tensor([300.0], pypto.DT_INT8),
        (
            "Given: values from 300.0 to 300.0 as DT_INT8. Allowed: integers from -128 to 127. "
            "Make a "
            "float tensor and cast it."
        ),
    ),
    "tile": (
        lambda: pypto.set_vec_tile_shapes(4, 0),
        (
            "Given: tile shape (4, 0). Allowed: 1 to 4 positive integers. Give one length for each "
            "axis of the output, e.g. set_vec_tile_shapes(4, 16)."
        ),
    ),
    "global scale": (
        lambda: pypto.set_deqscale(0.5),
        (
            "Given: set_deqscale(0.5). Allowed: a tensor and its scale. Write x = "
            "pypto.set_deqscale(x, scale), or pypto.cast(..., deqscale=scale): npusim keeps no "
            "global "
            "scale."
        ),
    ),
    "empty": (
        lambda: pypto.cast(pypto.tensor([0], pypto.DT_FP16), "int8"),
        (
            "Given: shape (0,) for pypto.cast. Allowed: rank 1 to 4, not empty, at most 2147483647 "
            "elements. Reshape the array, or use another entry point, e.g. Target(api='numerics')."
        ),
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors(case):
    call, text = ERRORS[case]
    with pytest.raises(npu.InputError) as caught:
        call()
    assert str(caught.value) == text


def test_there_is_no_to():
    x = pypto.tensor([2], pypto.DT_FP32)
    with pytest.raises(AttributeError, match=r"has no \.to\(\); call pypto\.cast"):
        x.to(pypto.DT_FP16)
    with pytest.raises(AttributeError, match="no attribute 'astype'"):
        _ = x.astype
    assert not hasattr(x, "to")


def test_int4_names_the_chip_that_has_it():
    x = pypto.tensor([1.0, 2.0], pypto.DT_FP16)
    with pytest.raises(npu.UnsupportedCastError, match="A2A3 pypto"):
        pypto.cast(x, pypto.DT_INT4)
    assert pypto.cast(x, pypto.DT_INT4, soc="A2A3").tolist() == [1, 2]
