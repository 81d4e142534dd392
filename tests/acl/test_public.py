"""The public names of npusim.acl: those of the vendor's table, and what comes with them."""

import npusim
from npusim import acl, layouts

# aclnn public interfaces page, Chinese edition, table 1.
TABLE = [
    "aclCreateTensor",
    "aclDestroyTensor",
    "aclCreateScalar",
    "aclDestroyScalar",
    "aclCreateIntArray",
    "aclDestroyIntArray",
    "aclCreateFloatArray",
    "aclDestroyFloatArray",
    "aclCreateBoolArray",
    "aclDestroyBoolArray",
    "aclCreateTensorList",
    "aclDestroyTensorList",
    "aclGetViewShape",
    "aclGetViewStrides",
    "aclGetViewOffset",
    "aclGetFormat",
    "aclGetDataType",
    "aclGetIntArraySize",
    "aclGetFloatArraySize",
    "aclGetBoolArraySize",
    "aclGetTensorListSize",
    "aclGetStorageShape",
]
# The same page, data structures.
STRUCTURES = [
    "aclTensor",
    "aclScalar",
    "aclIntArray",
    "aclFloatArray",
    "aclBoolArray",
    "aclTensorList",
    "aclOpExecutor",
    "aclrtStream",
]
OPERATORS = [
    "Add",
    "Adds",
    "InplaceAdd",
    "Sub",
    "Subs",
    "InplaceSub",
    "Mul",
    "Muls",
    "InplaceMul",
    "Div",
    "Divs",
    "InplaceDiv",
    "Cast",
    "Matmul",
    "Convolution",
]
OTHERS = [
    "ACL_SUCCESS",
    "ACLNN_SUCCESS",
    "AclnnError",
    "DeviceMemory",
    "aclDataType",
    "aclFormat",
    "aclSetAclOpExecutorRepeatable",
    "aclDestroyAclOpExecutor",
    "trans_data",
]


def test_names():
    calls = [f"aclnn{op}{part}" for op in OPERATORS for part in ("", "GetWorkspaceSize")]
    assert sorted(acl.__all__) == sorted([*TABLE, *STRUCTURES, *calls, *OTHERS])
    for name in acl.__all__:
        assert hasattr(acl, name)
        assert name == "aclrtStream" or getattr(acl, name).__doc__


def test_second_calls_carry_their_own_names():
    for op in OPERATORS:
        call = getattr(acl, f"aclnn{op}")
        assert call.__name__ == f"aclnn{op}"
        assert f"aclnn{op}GetWorkspaceSize" in call.__doc__


def test_enumerators_are_attributes():
    assert acl.ACL_FLOAT16 is acl.aclDataType.ACL_FLOAT16
    assert acl.ACL_FORMAT_ND is acl.aclFormat.ACL_FORMAT_ND
    assert "ACL_BF16" in dir(acl)
    assert not hasattr(acl, "ACL_FLOAT17")


def test_what_npusim_exports():
    assert npusim.acl is acl
    assert acl.trans_data is layouts.trans_data
    assert npusim.AclnnError is acl.AclnnError
    assert issubclass(npusim.PromotionError, npusim.AclnnError)
    assert issubclass(npusim.ConversionError, npusim.AclnnError)
    assert issubclass(npusim.AclnnError, npusim.NpusimError)
    assert npusim.result_type("f16", "f32") is npusim.DT_FP32
    assert npusim.can_cast("f32", "f16")
