"""What every model has to show: sites by its structure, identity bitwise, casts that bite."""

import collections
import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from npusim.inject import Policy, Rule, report, simulate
from tests.helpers import same_arrays

POLICIES = Path(__file__).parent / "policies"
NO_CASTS = Policy([Rule(ops=["matmul", "conv"])])


@functools.cache
def policy_file(name):
    return Policy.from_yaml(POLICIES / f"{name}.yaml")


@dataclasses.dataclass(frozen=True)
class Product:
    """A product as the architecture has it: where, of what, and which operands need a gradient."""

    path: str
    kind: str = "matmul"
    roles: tuple[str, str] = ("input", "weight")
    differentiated: tuple[bool, bool] = (True, True)
    trips: int = 1

    def sites(self):
        """The forward site, and a backward one for each operand that needs a gradient."""
        yield self.path, self.kind, "forward", tuple(sorted(self.roles)), self.trips
        for needed, other in zip(self.differentiated, self.roles[::-1], strict=True):
            if needed:
                yield self.path, self.kind, "backward", tuple(sorted(("grad", other))), self.trips


FIRST = (False, True)
"""The input of the first layer needs no gradient."""


def unet_products(*blocks):
    """Those of the U-Net, by the names of its residual blocks; the last one has a shortcut."""
    products = [
        Product("UNet/time_1", differentiated=FIRST),
        Product("UNet/time_2"),
        Product("UNet/stem", "conv", differentiated=FIRST),
        Product("UNet/halve", "conv"),
        Product("UNet/double", "conv"),
        Product(f"UNet/{blocks[-1]}/shortcut", "conv"),
        Product("UNet/out", "conv"),
    ]
    for block in blocks:
        products += [Product(f"UNet/{block}/conv_{i}", "conv") for i in (1, 2)]
        products += [Product(f"UNet/{block}/time")]
    return tuple(products)


@dataclasses.dataclass(frozen=True)
class Case:
    """A model with a loss, and what its architecture says.

    Attributes:
        loss: ``loss(params, *inputs)``.
        params: parameters.
        inputs: the rest of the arguments.
        products: the products, by the architecture.
        zero: ends of the key paths of parameters that have no gradient by mathematics.
    """

    loss: Callable[..., jax.Array]
    params: Any
    inputs: tuple[Any, ...]
    products: tuple[Product, ...]
    zero: tuple[str, ...] = ()

    @property
    def step(self):
        return jax.value_and_grad(self.loss)

    @property
    def args(self):
        return self.params, *self.inputs

    @functools.cached_property
    def plain(self):
        return jax.jit(self.step)(*self.args)

    def under(self, policy):
        """Loss and gradients with every operation rounded as itself."""
        return jax.jit(simulate(self.step, policy))(*self.args)

    def straight_through(self, policy):
        """Loss and gradients of the simulated loss."""
        return jax.jit(jax.value_and_grad(simulate(self.loss, policy)))(*self.args)


def implied(products):
    """The sites of a training step, by architecture."""
    return collections.Counter(site for product in products for site in product.sites())


def found(sites, recomputed=False):
    """The Cube's sites as `Product` writes them."""
    return collections.Counter(
        (s.path, s.kind, s.direction, _of_floats(s), s.trips)
        for s in sites
        if s.kind in ("matmul", "conv") and s.recomputed == recomputed
    )


def _of_floats(site):
    """Roles of the operands that are multiplied: a ragged product has the group sizes, too."""
    floating = [jnp.issubdtype(dtype, jnp.inexact) for dtype in site.dtypes]
    return tuple(sorted(role for role, keep in zip(site.roles, floating, strict=False) if keep))


def check_sites(case, policy):
    """Every product where the architecture has it, under the policy's rule; nothing left over."""
    told = report(case.step, policy, *case.args)
    assert found(told.sites) == implied(case.products)
    cube = [s for s in told.sites if s.kind in ("matmul", "conv")]
    assert {s.rule for s in cube} == {0}
    assert told.unused == ()
    assert told.opaque == ()
    return told


def check_identity(case, compiled):
    """A policy without casts: the bits of the plain function, in both orders."""
    outside, inside = (
        simulate(case.step, NO_CASTS),
        jax.value_and_grad(simulate(case.loss, NO_CASTS)),
    )
    # The same program, constants included, gives the same bits; where time allows, look at them.
    plain = lowered(case.step, case.args)
    assert lowered(outside, case.args) == plain
    assert lowered(inside, case.args) == plain
    if compiled:
        same_arrays(jax.jit(outside)(*case.args), case.plain, "simulate(grad)")
        same_arrays(jax.jit(inside)(*case.args), case.plain, "grad(simulate)")


def lowered(step, args):
    """The program that goes to the compiler."""
    return jax.jit(lambda *args: step(*args)).lower(*args).as_text()


def check_casts(case, policy):
    """Finite, no parameter without a gradient, and not what the plain function gives."""
    loss, grads = jax.device_get(case.under(policy))
    plain_loss, plain_grads = jax.device_get(case.plain)
    assert np.isfinite(loss)
    assert loss != plain_loss
    np.testing.assert_allclose(loss, plain_loss, rtol=0.3)
    for (path, got), plain in zip(
        jax.tree.leaves_with_path(grads), jax.tree.leaves(plain_grads), strict=True
    ):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        assert np.all(np.isfinite(got)), name
        if name.endswith(case.zero or ("no such name",)):
            continue
        assert np.any(got != 0), name
        assert not np.array_equal(got, plain), name
    return loss, grads
