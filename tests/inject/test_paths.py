"""Name stacks as JAX and Flax write them, and the paths made of them."""

import pytest

from npusim.inject.paths import Place


def stack(text):
    """``!jvp Net up`` means the transform jvp, then the scopes Net and up."""
    return [(name.removeprefix("!"), name.startswith("!")) for name in text.split()]


@pytest.mark.parametrize(
    ("given", "path", "direction", "recomputed"),
    [
        ("", "", "forward", False),
        ("Net block_0 up", "Net/block_0/up", "forward", False),
        ("!jvp Net up", "Net/up", "forward", False),
        ("!transpose !jvp Net up", "Net/up", "backward", False),
        ("!vmap !transpose !jvp Net up", "Net/up", "backward", False),
        ("!transpose !jvp Net last !jvp Net last", "Net/last", "backward", False),
        ("!transpose !jvp Net !jvp Net last", "Net/last", "backward", False),
        ("rematted_computation up", "up", "forward", True),
        ("!transpose !jvp rematted_computation up", "up", "forward", True),
        ("Net/block_0 up", "Net/block_0/up", "forward", False),
        ("Net layers.<lambda> layers attn", "Net/layers/attn", "forward", False),
        ("Net Net.encode dense", "Net/dense", "forward", False),
        ("Net block block", "Net/block/block", "forward", False),
        ("v1.0 up", "v1.0/up", "forward", False),
    ],
)
def test_paths(given, path, direction, recomputed):
    place = Place().enter(stack(given))
    assert (place.path, place.direction, place.recomputed) == (path, direction, recomputed)


def test_subscripts_and_methods_become_fields():
    place = Place().enter(stack("Net attn ...qhd,...khd->...hqk"))
    assert (place.path, place.einsum) == ("Net/attn", "...qhd,...khd->...hqk")
    place = Place().enter(stack("Net emb.attend"))
    assert (place.path, place.method) == ("Net/emb", "attend")
    place = Place().enter(stack("!vmap BTNH,BSNH->BNTS"))
    assert (place.path, place.einsum) == ("", "BTNH,BSNH->BNTS")


def test_a_body_is_read_relative_to_its_equation():
    outer = Place().enter(stack("!transpose !jvp Net"))
    inner = outer.enter(stack("layers attn"))
    assert (inner.path, inner.direction) == ("Net/layers/attn", "backward")
    again = outer.enter(stack("rematted_computation layers"))
    assert (again.path, again.direction, again.recomputed) == ("Net/layers", "forward", True)
    assert again.enter(stack("up")).recomputed


def test_a_module_whose_method_is_a_loop_body_is_one_module():
    outer = Place().enter(stack("Net block"))
    assert outer.enter(stack("block.body layer")).path == "Net/block/layer"
    assert outer.enter(stack("block.<lambda> block layer")).path == "Net/block/layer"
    assert outer.enter(stack("block layer")).path == "Net/block/block/layer"
