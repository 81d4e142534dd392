"""The helpers that every other test trusts."""

import jax.numpy as jnp
import numpy as np
import pytest

from tests.conftest import _with_devices
from tests.helpers import SHOWN, host_words, same_arrays, same_words


def words(*values):
    return np.array(values, np.uint16)


def test_equal_words_pass():
    same_words(words(1, 2), words(3, 4), words(3, 4), "x")


def test_a_difference_prints_input_got_and_want_and_a_line_to_paste():
    with pytest.raises(AssertionError) as failure:
        same_words(words(1, 2), words(3, 0x7C00), words(3, 0x7BFF), "half RINT")
    text = str(failure.value)
    assert "half RINT: 1 of 2 differ" in text
    assert "input 0x2  got 0x7c00  want 0x7bff" in text
    assert "inputs: [0x2]" in text


def test_at_most_twenty_are_shown():
    with pytest.raises(AssertionError) as failure:
        same_words(np.arange(50), np.arange(50), np.arange(50) + 1, "x")
    assert str(failure.value).count("got") == SHOWN
    assert "50 of 50 differ" in str(failure.value)


@pytest.mark.parametrize(
    ("got", "want"),
    [
        (words(1), words(1, 2)),
        (words(1), np.array([1], np.uint8)),
        (words(0x8000), words(0)),
        (words(0x7E00), words(0x7FFF)),
    ],
    ids=["shape", "dtype", "sign of zero", "payload"],
)
def test_what_counts_as_different(got, want):
    with pytest.raises(AssertionError, match="x: "):
        same_words(words(0), got, want, "x")


def test_nan_as_a_class():
    same_words(words(0), words(0xFE00), words(0x7FFF), "x", nan_from=0x7C01)
    with pytest.raises(AssertionError):
        same_words(words(0), words(0x7C00), words(0x7FFF), "x", nan_from=0x7C01)


def test_arrays_differ_by_type_as_well():
    same_arrays({"a": jnp.float32(1)}, {"a": jnp.float32(1)}, "x")
    with pytest.raises(AssertionError):
        same_arrays(jnp.float32(1), jnp.float16(1), "x")
    with pytest.raises(AssertionError):
        same_arrays(jnp.array([0.0]), jnp.array([-0.0]), "x")


def test_words_of_a_complex_array_are_both_parts():
    assert host_words(jnp.array([1 - 2j])).tolist() == [[0x3F800000, 0xC0000000]]


def test_the_device_count_is_merged_into_flags_that_are_there():
    name = "--xla_force_host_platform_device_count"
    assert _with_devices("", 8) == f"{name}=8"
    assert _with_devices("--a=1", 8) == f"--a=1 {name}=8"
    assert _with_devices(f"{name}=2 --a=1", 8) == f"{name}=8 --a=1"
    assert _with_devices(f"{name}=16", 8) == f"{name}=16"
