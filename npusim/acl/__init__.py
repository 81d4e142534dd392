"""The aclnn interface in Python: handles, getters, and operators in two calls.

Names are those of C. Sizes of arrays are not passed, getters return the value, the first call of an
operator returns (workspaceSize, executor), the second one 0 after writing the output. The chip is
the keyword ``target`` of the first call; a stream is accepted and has no effect.

What will aclnnAdd give me?

    >>> import jax.numpy as jnp, npusim.acl as acl
    >>> x = acl.aclTensor.from_jax(jnp.array([1.0, 2.0], jnp.float16))
    >>> y = acl.aclTensor.from_jax(jnp.array([0.1, 0.2], jnp.float32))
    >>> out = acl.aclTensor.from_jax(jnp.zeros(2, jnp.bfloat16))
    >>> size, plan = acl.aclnnAddGetWorkspaceSize(x, y, acl.aclCreateScalar(1, "int32"), out)
    >>> plan, acl.aclnnAdd(None, size, plan, None), out.to_jax().tolist()
    (aclOpExecutor(aclnnAdd, computes in fp32, spent), 0, [1.1015625, 2.203125])

Whatever a call refuses is an `npusim.AclnnError`: its ``code`` is the status that aclnn would
return, its ``name`` the status by name. Errors of derivation and of output conversion are the
subclasses PromotionError and ConversionError. An error of another room of npusim (an unknown name,
a wrong rank) leaves as an AclnnError with the same text and the original as its cause.

The enumerators of C are attributes of this module too: ``acl.ACL_FLOAT16``, ``acl.ACL_FORMAT_ND``.
"""

from typing import Any

from npusim._errors import AclnnError as AclnnError
from npusim.acl.companions import aclBoolArray as aclBoolArray
from npusim.acl.companions import aclCreateBoolArray as aclCreateBoolArray
from npusim.acl.companions import aclCreateFloatArray as aclCreateFloatArray
from npusim.acl.companions import aclCreateIntArray as aclCreateIntArray
from npusim.acl.companions import aclCreateScalar as aclCreateScalar
from npusim.acl.companions import aclCreateTensorList as aclCreateTensorList
from npusim.acl.companions import aclDestroyBoolArray as aclDestroyBoolArray
from npusim.acl.companions import aclDestroyFloatArray as aclDestroyFloatArray
from npusim.acl.companions import aclDestroyIntArray as aclDestroyIntArray
from npusim.acl.companions import aclDestroyScalar as aclDestroyScalar
from npusim.acl.companions import aclDestroyTensorList as aclDestroyTensorList
from npusim.acl.companions import aclFloatArray as aclFloatArray
from npusim.acl.companions import aclGetBoolArraySize as aclGetBoolArraySize
from npusim.acl.companions import aclGetFloatArraySize as aclGetFloatArraySize
from npusim.acl.companions import aclGetIntArraySize as aclGetIntArraySize
from npusim.acl.companions import aclGetTensorListSize as aclGetTensorListSize
from npusim.acl.companions import aclIntArray as aclIntArray
from npusim.acl.companions import aclScalar as aclScalar
from npusim.acl.companions import aclTensorList as aclTensorList
from npusim.acl.conversion import aclnnCast as aclnnCast
from npusim.acl.conversion import aclnnCastGetWorkspaceSize as aclnnCastGetWorkspaceSize
from npusim.acl.cube import aclnnConvolution as aclnnConvolution
from npusim.acl.cube import aclnnConvolutionGetWorkspaceSize as aclnnConvolutionGetWorkspaceSize
from npusim.acl.cube import aclnnMatmul as aclnnMatmul
from npusim.acl.cube import aclnnMatmulGetWorkspaceSize as aclnnMatmulGetWorkspaceSize
from npusim.acl.enums import aclDataType as aclDataType
from npusim.acl.enums import aclFormat as aclFormat
from npusim.acl.executor import aclDestroyAclOpExecutor as aclDestroyAclOpExecutor
from npusim.acl.executor import aclOpExecutor as aclOpExecutor
from npusim.acl.executor import aclrtStream as aclrtStream
from npusim.acl.executor import aclSetAclOpExecutorRepeatable as aclSetAclOpExecutorRepeatable
from npusim.acl.factors import aclnnDiv as aclnnDiv
from npusim.acl.factors import aclnnDivGetWorkspaceSize as aclnnDivGetWorkspaceSize
from npusim.acl.factors import aclnnDivs as aclnnDivs
from npusim.acl.factors import aclnnDivsGetWorkspaceSize as aclnnDivsGetWorkspaceSize
from npusim.acl.factors import aclnnInplaceDiv as aclnnInplaceDiv
from npusim.acl.factors import aclnnInplaceDivGetWorkspaceSize as aclnnInplaceDivGetWorkspaceSize
from npusim.acl.factors import aclnnInplaceMul as aclnnInplaceMul
from npusim.acl.factors import aclnnInplaceMulGetWorkspaceSize as aclnnInplaceMulGetWorkspaceSize
from npusim.acl.factors import aclnnMul as aclnnMul
from npusim.acl.factors import aclnnMulGetWorkspaceSize as aclnnMulGetWorkspaceSize
from npusim.acl.factors import aclnnMuls as aclnnMuls
from npusim.acl.factors import aclnnMulsGetWorkspaceSize as aclnnMulsGetWorkspaceSize
from npusim.acl.linear import aclnnAdd as aclnnAdd
from npusim.acl.linear import aclnnAddGetWorkspaceSize as aclnnAddGetWorkspaceSize
from npusim.acl.linear import aclnnAdds as aclnnAdds
from npusim.acl.linear import aclnnAddsGetWorkspaceSize as aclnnAddsGetWorkspaceSize
from npusim.acl.linear import aclnnInplaceAdd as aclnnInplaceAdd
from npusim.acl.linear import aclnnInplaceAddGetWorkspaceSize as aclnnInplaceAddGetWorkspaceSize
from npusim.acl.linear import aclnnInplaceSub as aclnnInplaceSub
from npusim.acl.linear import aclnnInplaceSubGetWorkspaceSize as aclnnInplaceSubGetWorkspaceSize
from npusim.acl.linear import aclnnSub as aclnnSub
from npusim.acl.linear import aclnnSubGetWorkspaceSize as aclnnSubGetWorkspaceSize
from npusim.acl.linear import aclnnSubs as aclnnSubs
from npusim.acl.linear import aclnnSubsGetWorkspaceSize as aclnnSubsGetWorkspaceSize
from npusim.acl.status import ACL_SUCCESS as ACL_SUCCESS
from npusim.acl.status import ACLNN_SUCCESS as ACLNN_SUCCESS
from npusim.acl.tensor import DeviceMemory as DeviceMemory
from npusim.acl.tensor import aclCreateTensor as aclCreateTensor
from npusim.acl.tensor import aclDestroyTensor as aclDestroyTensor
from npusim.acl.tensor import aclGetDataType as aclGetDataType
from npusim.acl.tensor import aclGetFormat as aclGetFormat
from npusim.acl.tensor import aclGetStorageShape as aclGetStorageShape
from npusim.acl.tensor import aclGetViewOffset as aclGetViewOffset
from npusim.acl.tensor import aclGetViewShape as aclGetViewShape
from npusim.acl.tensor import aclGetViewStrides as aclGetViewStrides
from npusim.acl.tensor import aclTensor as aclTensor
from npusim.layouts import trans_data as trans_data

_ENUMERATORS = {**aclDataType.__members__, **aclFormat.__members__}

__all__ = [
    "ACLNN_SUCCESS",
    "ACL_SUCCESS",
    "AclnnError",
    "DeviceMemory",
    "aclBoolArray",
    "aclCreateBoolArray",
    "aclCreateFloatArray",
    "aclCreateIntArray",
    "aclCreateScalar",
    "aclCreateTensor",
    "aclCreateTensorList",
    "aclDataType",
    "aclDestroyAclOpExecutor",
    "aclDestroyBoolArray",
    "aclDestroyFloatArray",
    "aclDestroyIntArray",
    "aclDestroyScalar",
    "aclDestroyTensor",
    "aclDestroyTensorList",
    "aclFloatArray",
    "aclFormat",
    "aclGetBoolArraySize",
    "aclGetDataType",
    "aclGetFloatArraySize",
    "aclGetFormat",
    "aclGetIntArraySize",
    "aclGetStorageShape",
    "aclGetTensorListSize",
    "aclGetViewOffset",
    "aclGetViewShape",
    "aclGetViewStrides",
    "aclIntArray",
    "aclOpExecutor",
    "aclScalar",
    "aclSetAclOpExecutorRepeatable",
    "aclTensor",
    "aclTensorList",
    "aclnnAdd",
    "aclnnAddGetWorkspaceSize",
    "aclnnAdds",
    "aclnnAddsGetWorkspaceSize",
    "aclnnCast",
    "aclnnCastGetWorkspaceSize",
    "aclnnConvolution",
    "aclnnConvolutionGetWorkspaceSize",
    "aclnnDiv",
    "aclnnDivGetWorkspaceSize",
    "aclnnDivs",
    "aclnnDivsGetWorkspaceSize",
    "aclnnInplaceAdd",
    "aclnnInplaceAddGetWorkspaceSize",
    "aclnnInplaceDiv",
    "aclnnInplaceDivGetWorkspaceSize",
    "aclnnInplaceMul",
    "aclnnInplaceMulGetWorkspaceSize",
    "aclnnInplaceSub",
    "aclnnInplaceSubGetWorkspaceSize",
    "aclnnMatmul",
    "aclnnMatmulGetWorkspaceSize",
    "aclnnMul",
    "aclnnMulGetWorkspaceSize",
    "aclnnMuls",
    "aclnnMulsGetWorkspaceSize",
    "aclnnSub",
    "aclnnSubGetWorkspaceSize",
    "aclnnSubs",
    "aclnnSubsGetWorkspaceSize",
    "aclrtStream",
    "trans_data",
]


def __getattr__(name: str) -> Any:
    if name in _ENUMERATORS:
        return _ENUMERATORS[name]
    raise AttributeError(f"module 'npusim.acl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_ENUMERATORS})
