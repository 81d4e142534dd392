"""These tests speak of JAX's default types; those about 64 bits switch them on themselves."""

import jax
import pytest


@pytest.fixture(autouse=True)
def _default_types():
    with jax.enable_x64(False):
        yield
