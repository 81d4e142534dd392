"""What the tests of two-step calls share."""

import inspect

import jax.numpy as jnp
import numpy as np

from npusim import acl
from npusim.modes import Target

CHIPS = ("A2A3", "950PR")


def tensor(x, dtype=None, fmt="ND"):
    """A tensor of an array, or of Python numbers with a data type."""
    return acl.aclTensor.from_jax(x if dtype is None else jnp.asarray(x, dtype), fmt)


def blank(shape, dtype):
    """An output full of zeros."""
    return acl.aclCreateTensor(shape, dtype, None, 0, "ND", shape, None)


def scalar(value, dtype):
    """An aclScalar."""
    return acl.aclCreateScalar(value, dtype)


def plan(op, *arguments, soc="950PR", **options):
    """The first call."""
    target = options.pop("target", Target(soc, "aclnn"))
    return getattr(acl, f"aclnn{op}GetWorkspaceSize")(*arguments, target=target, **options)


def run(op, *arguments, soc="950PR", **options):
    """Both calls; what the output holds then."""
    first = getattr(acl, f"aclnn{op}GetWorkspaceSize")
    names = list(inspect.signature(first).parameters)
    size, executor = plan(op, *arguments, soc=soc, **options)
    assert size == 0
    assert getattr(acl, f"aclnn{op}")(None, size, executor, "stream") == 0
    last = "out" if "out" in names else "output" if "output" in names else "selfRef"
    return arguments[names.index(last)].to_jax()


def bits(x):
    """Words of a 16-bit float array, on the host."""
    return np.asarray(x).view(np.uint16)
