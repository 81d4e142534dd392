"""Settings that must be there before JAX is imported, and the fixtures all tests share."""

import os
import re
import sys

DEVICES = 8
_COUNT = "--xla_force_host_platform_device_count"


def _with_devices(flags: str, count: int) -> str:
    """XLA flags with at least ``count`` simulated CPU devices; a larger count stays."""
    given = re.search(rf"{_COUNT}=(\d+)", flags)
    if given is None:
        return f"{flags} {_COUNT}={count}".strip()
    most = max(count, int(given[1]))
    return flags.replace(given[0], f"{_COUNT}={most}")


assert "jax" not in sys.modules, "JAX was imported before its settings were made"
os.environ["XLA_FLAGS"] = _with_devices(os.environ.get("XLA_FLAGS", ""), DEVICES)
if not os.environ.get("NPUSIM_TEST_DEVICE"):
    os.environ.setdefault("JAX_PLATFORMS", "cpu")

import hypothesis  # noqa: E402
import jax  # noqa: E402
import pytest  # noqa: E402

hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
hypothesis.settings.register_profile("random", deadline=None, print_blob=True)


def pytest_configure(config):
    """Random examples in the slow suite, the same ones every time elsewhere."""
    expression = config.option.markexpr
    slow = "slow" in expression and "not slow" not in expression
    hypothesis.settings.load_profile("random" if slow else "fixed")


_finished: list[str] = []


@pytest.fixture(autouse=True, scope="module")
def _forget_programs(request):
    """Drop compiled programs now and then: a worker that keeps all gets slow and large."""
    yield
    _finished.append(request.node.name)
    if len(_finished) % 5 == 0:
        jax.clear_caches()


@pytest.fixture
def strict_promotion():
    """No implicit promotion between dtypes: a kernel that relies on one fails."""
    with jax.numpy_dtype_promotion("strict"):
        yield
