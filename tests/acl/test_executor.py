"""aclOpExecutor: spent after one run, or repeatable; and what the second call refuses."""

import jax.numpy as jnp
import pytest

from npusim import acl
from npusim._errors import AclnnError
from tests.acl.common import blank, plan, scalar, tensor


def planned(out=None):
    x = tensor([1.0, 2.0], "float32")
    out = blank((2,), "f32") if out is None else out
    return x, out, plan("Add", x, x, scalar(1, "int32"), out)[1]


def refused(code, text, call):
    with pytest.raises(AclnnError) as error:
        call()
    assert error.value.code == code
    assert str(error.value) == text


def test_an_executor_is_spent_after_one_run():
    _, _, executor = planned()
    assert repr(executor) == "aclOpExecutor(aclnnAdd, computes in fp32)"
    assert acl.aclnnAdd(None, 0, executor, None) == 0
    assert repr(executor) == "aclOpExecutor(aclnnAdd, computes in fp32, spent)"
    again = (
        "Given: an executor that was spent. Allowed: an aclOpExecutor that has not run. Call "
        "aclnnAddGetWorkspaceSize again, or make it repeatable (aclSetAclOpExecutorRepeatable)."
    )
    refused(561103, again, lambda: acl.aclnnAdd(None, 0, executor, None))
    with pytest.raises(AclnnError):
        acl.aclSetAclOpExecutorRepeatable(executor)


def test_a_repeatable_executor_reads_its_tensors_when_it_runs():
    x, out, executor = planned()
    assert acl.aclSetAclOpExecutorRepeatable(executor) == 0
    acl.aclnnAdd(None, 0, executor, None)
    assert out.to_jax().tolist() == [2, 4]
    x.write(jnp.array([5.0, 6.0], jnp.float32))
    acl.aclnnAdd(None, 0, executor, None)
    assert out.to_jax().tolist() == [10, 12]
    assert acl.aclDestroyAclOpExecutor(executor) == 0
    with pytest.raises(AclnnError) as error:
        acl.aclnnAdd(None, 0, executor, None)
    assert (error.value.code, error.value.name) == (561103, "ACLNN_ERR_INNER_NULLPTR")


def test_what_the_second_call_refuses():
    _, _, executor = planned()
    refused(
        161002,
        "Given: an executor of aclnnAdd for aclnnMul. Allowed: an executor of aclnnMul. Call "
        "aclnnAdd.",
        lambda: acl.aclnnMul(None, 0, executor, None),
    )
    refused(
        561103,
        "Given: executor is None. Allowed: an aclOpExecutor that has not run. Call "
        "aclnnMulGetWorkspaceSize again, or make it repeatable (aclSetAclOpExecutorRepeatable).",
        lambda: acl.aclnnMul(None, 0, None, None),
    )
    refused(
        161002,
        "Given: executor of type int. Allowed: an aclOpExecutor. Call aclnnMulGetWorkspaceSize.",
        lambda: acl.aclnnMul(None, 0, 3, None),
    )
    for call in (acl.aclDestroyAclOpExecutor, acl.aclSetAclOpExecutorRepeatable):
        with pytest.raises(AclnnError) as error:
            call(None)
        assert error.value.code == 561103


@pytest.mark.parametrize("which", ["self", "out"])
def test_tensors_destroyed_in_between(which):
    x, out, executor = planned()
    acl.aclDestroyTensor(x if which == "self" else out)
    with pytest.raises(AclnnError, match=f"Given: {which}, an aclTensor that was") as error:
        acl.aclnnAdd(None, 0, executor, None)
    assert error.value.code == 161001


def test_two_calls_may_share_memory():
    x = tensor([1.0, 2.0], "float32")
    executor = plan("Add", x, x, scalar(1, "int32"), x)[1]
    acl.aclnnAdd(None, 0, executor, None)
    assert x.to_jax().tolist() == [2, 4]
