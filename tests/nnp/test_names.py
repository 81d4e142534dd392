"""Snapshot of the public names of npusim.numpy and npusim.ops."""

import npusim.numpy as nnp
from npusim import ops

NUMPY = """
    abs add all any arange argmax argmin array asarray astype bind bitwise_and bitwise_not
    bitwise_or bitwise_xor Bound broadcast_to cast ceil clip concatenate cos cumsum divide dot
    einsum equal erf exp expand_dims expm1 flip floor floor_divide full full_like gelu greater
    greater_equal isfinite isinf isnan layer_norm less less_equal log log1p log_softmax
    logical_and logical_not logical_or logical_xor matmul max maximum mean min minimum
    moveaxis multiply negative not_equal ones ones_like power ravel reciprocal relu remainder
    repeat reshape rms_norm roll round rsqrt sigmoid sign silu sin softmax sqrt square squeeze
    stack subtract sum swapaxes take tanh tile transpose trunc var where zeros zeros_like
"""

OPS = """
    Accumulate batch_matmul check_accumulate check_output conv cube_row CubeRow dot_general
    matmul operator_row operator_rows OperatorRow operators ordered_dot
"""


def test_names_of_numpy():
    assert sorted(nnp.__all__) == sorted(NUMPY.split())
    assert all(hasattr(nnp, name) for name in nnp.__all__)


def test_names_of_ops():
    assert sorted(ops.__all__) == sorted(OPS.split())
    assert all(hasattr(ops, name) for name in ops.__all__)


def test_every_operator_row_has_a_function():
    assert set(ops.operators()) <= set(nnp.__all__)
