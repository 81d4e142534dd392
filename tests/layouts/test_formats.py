"""The rows, the rank rule, C0 and their error texts."""

import pytest

from npusim._errors import InputError, UnknownNameError
from npusim.layouts import FORMATS, check_rank, data_format, default_c0, formats_of_rank

NUMBERS = {
    "NCHW": 0,
    "NHWC": 1,
    "ND": 2,
    "NC1HWC0": 3,
    "FRACTAL_Z": 4,
    "NC1HWC0_C04": 12,
    "HWCN": 16,
    "NDHWC": 27,
    "FRACTAL_NZ": 29,
    "NCDHW": 30,
    "NDC1HWC0": 32,
    "FRACTAL_Z_3D": 33,
    "NC": 35,
    "NCL": 47,
}


def test_rows():
    assert {row.name: row.number for row in FORMATS} == NUMBERS
    assert all(row.source for row in FORMATS)
    for row in FORMATS:
        assert row.private == (len(row.tilings) > 0)
        assert data_format(row.name) is data_format(f"ACL_FORMAT_{row.name}".lower()) is row
        assert data_format(row) is row
        for tiling in row.tilings:
            assert tiling.source
            assert tiling.grade == "implementation"


def test_rank_rule_of_the_chinese_page():
    assert formats_of_rank(5) == ("ND", "NDHWC", "NCDHW")
    assert formats_of_rank(4) == ("ND", "NCHW", "NHWC", "HWCN")
    assert formats_of_rank(3) == ("ND", "NCL")
    assert formats_of_rank(2) == ("ND", "NC")
    for rank in (0, 1, 6, 7, 8):
        assert formats_of_rank(rank) == ("ND",)
    for row in FORMATS:
        for rank in range(9):
            if row.private or row.name in formats_of_rank(rank):
                check_rank(row, rank)
            else:
                with pytest.raises(InputError):
                    check_rank(row, rank)


def test_c0():
    for name, c0 in {
        **dict.fromkeys(
            ["half", "bf16", "float", "int32", "uint32", "hf32", "int16", "complex32"], 16
        ),
        **dict.fromkeys(["int8", "uint8", "bool", "fp8_e4m3", "fp8_e5m2", "hif8", "fp8_e8m0"], 32),
        **dict.fromkeys(["int4", "fp4_e2m1", "fp4_e1m2"], 64),
        **dict.fromkeys(["int64", "double", "complex64", "complex128"], 16),
    }.items():
        assert default_c0(name) == c0


def test_error_texts():
    with pytest.raises(InputError) as error:
        check_rank("NCHW", 3)
    assert str(error.value) == (
        "Given: format NCHW for a tensor of rank 3. Allowed: ND, NCL. NCHW has rank 4: reshape, "
        "or take one of these formats."
    )
    with pytest.raises(UnknownNameError, match=r"Did you mean 'FRACTAL_NZ'\? Pass one"):
        data_format("FRAKTAL_NZ")
    with pytest.raises(UnknownNameError):
        data_format(3)  # pyright: ignore[reportArgumentType]
