"""A ViT layer by layer and as a scan of rematerialised layers: the same numbers, same rules."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from npusim.casting import FormatParams
from npusim.inject import CastSpec, Policy, Rule, simulate, sites
from tests.flax.zoo import cases, checks, models
from tests.helpers import same_arrays

LAYERS = 3
E4M3, E5M2 = CastSpec("fp8_e4m3", "RINT", "ON"), CastSpec("fp8_e5m2", "RINT", "ON")
CUBE = ["matmul", "conv"]
EVERYWHERE = Policy([Rule(ops=CUBE, input=E4M3, weight=E4M3, grad=E5M2)])

pytestmark = pytest.mark.slow


def stacked(tree):
    """Parameters of the scanned model from those of the unrolled one; gradients alike."""
    tree = dict(tree)
    layers = [tree.pop(f"layer_{i}") for i in range(LAYERS)]
    return tree | {"layers": jax.tree.map(lambda *leaves: jnp.stack(leaves), *layers)}


def in_both_forms(unrolled, scanned):
    """Loss and gradients under a policy for each, at the same parameters."""
    one, other = cases.MAKE["vit"](), cases.MAKE["vit_scanned"]()
    loss, grads = one.under(unrolled)
    return (loss, stacked(grads)), jax.jit(simulate(other.step, scanned))(
        stacked(one.params), *other.inputs
    )


def test_the_same_loss_and_gradients():
    unrolled, scanned = in_both_forms(EVERYWHERE, EVERYWHERE)
    same_arrays(scanned, unrolled, "scan of remat")


def test_as_many_sites_as_layers():
    one, other = (
        sites(cases.MAKE[name]().step, EVERYWHERE, *cases.MAKE[name]().args)
        for name in ("vit", "vit_scanned")
    )

    def per_layer(path):
        return path.replace("layers/", "layer/") if "layers" in path else path

    def counted(found):
        out = {}
        for site in found:
            if site.recomputed:
                continue
            path = site.path
            for i in range(LAYERS):
                path = path.replace(f"layer_{i}/", "layer/")
            key = per_layer(path), site.direction, site.roles, site.casts
            out[key] = out.get(key, 0) + site.trips
        return out

    assert counted(one) == counted(other)
    # Rematerialisation repeats what the backward pass needs: all but the last product of a layer.
    again = [s.path for s in other if s.recomputed]
    inside = [s.path for s in other if s.direction == "forward" and "layers" in s.path]
    assert len(again) == 7
    assert set(inside) - set(again) == {"ViT/layers/mlp/down"}
    assert {s.casts for s in other if s.recomputed} == {
        s.casts for s in other if s.direction == "forward" and not s.recomputed
    }


def test_first_and_last_layer_in_high_precision():
    # By path where the layers have names of their own, by index where a scan runs over them.
    names = ["fp32", "fp8_e4m3", "fp32"]
    back = ["fp32", "fp8_e5m2", "fp32"]
    unrolled = Policy(
        [
            Rule("patches|head", ops=CUBE),
            Rule("layer_0/|layer_2/|layer_2$|layer_0$", ops=CUBE),
            Rule(ops=CUBE, input=E4M3, weight=E4M3, grad=E5M2),
        ]
    )

    def stack(names):
        formats = [FormatParams.of(name, "RINT", "ON") for name in names]
        return CastSpec(jax.tree.map(lambda *leaves: jnp.stack(leaves), *formats))

    spec = stack(names)
    scanned = Policy([Rule("layers", ops=CUBE, input=spec, weight=spec, grad=stack(back))])
    one, other = in_both_forms(unrolled, scanned)
    same_arrays(other, one, "first and last layer")
    everywhere = cases.MAKE["vit"]().under(EVERYWHERE)
    plain = cases.MAKE["vit"]().plain
    assert len({float(loss) for loss in (one[0], everywhere[0], plain[0])}) == 3


@functools.cache
def remat_case(policy):
    """The scanned form under one of JAX's rematerialisation policies."""
    case = cases.MAKE["vit_scanned"]()
    model = models.ViT(scanned=True, saves=policy)
    classify = cases.classifier(model, cases.IMAGES, cases.CLASSES, case.products, case.zero)
    return classify


@pytest.mark.parametrize("saves", ["checkpoint_dots", "nothing_saveable", "everything_saveable"])
def test_rematerialisation_policies(saves):
    case = remat_case(saves)
    checks.check_identity(case, compiled=True)
    same_arrays(
        case.under(EVERYWHERE), cases.MAKE["vit_scanned"]().under(EVERYWHERE), "same numbers"
    )
    found = sites(case.step, EVERYWHERE, *case.args)
    assert checks.found(found) == checks.implied(case.products)
    again = len([s for s in found if s.recomputed])
    assert again == {"checkpoint_dots": 0, "nothing_saveable": 7, "everything_saveable": 0}[saves]


def test_the_casts_of_a_layer_see_its_own_weights():
    case = cases.MAKE["vit"]()
    only = Policy([Rule("layer_1", ops=CUBE, weight=CastSpec("fp4_e2m1", scale="amax"))])
    rounded = jax.tree.map(np.array, dict(case.params))
    # By hand: the weights of that layer rounded beforehand, nothing else.
    from npusim.inject import apply_cast

    spec = CastSpec("fp4_e2m1", scale="amax")
    rounded["layer_1"] = jax.tree.map_with_path(
        lambda path, leaf: apply_cast(spec, leaf) if path[-1].key == "kernel" else leaf,
        rounded["layer_1"],
    )
    want = jax.jit(case.loss)(rounded, *case.inputs)
    np.testing.assert_allclose(jax.jit(simulate(case.loss, only))(*case.args), want, rtol=1e-6)
