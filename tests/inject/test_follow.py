"""Rules that follow: gray operators take the format of what they read; expectations by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from npusim._errors import PolicyError
from npusim.inject import CastSpec, Policy, Rule, report, simulate

HALF = CastSpec("fp16", "RINT", "OFF")
ALL = {"input": HALF, "weight": HALF, "output": HALF, "grad": HALF}
GRAY_OPS = ["elementwise", "reduce", "index"]
X = jnp.array([[0.1, 1.3, -0.7], [2.9, 0.3, 1e-3]])
W = jnp.array([[0.9, 0.1, 0.3], [0.2, -1.1, 0.7], [0.4, 0.6, 0.5]])


def policy(follow="previous", black="exp"):
    return Policy(
        [
            Rule(**ALL, reason="white"),
            Rule(ops=black, reason="black", optional=True),
            Rule(ops=GRAY_OPS, **ALL, follow=follow, reason="gray", optional=True),
        ]
    )


def formats(fn, *args, follow="previous", direction="forward"):
    """The format of every operation that a rule matches, in program order."""
    found = report(fn, policy(follow), *args).sites
    found = [s for s in found if s.rule is not None and s.direction == direction]
    return " ".join(f"{s.op}:{s.formats}" for s in found)


def test_a_gray_operator_follows_the_one_before_it_down_a_chain():
    def chain(w, x):
        product = x @ w  # white
        doubled = product * 1.1  # gray
        shifted = doubled - x  # gray, with an operand in float32
        raised = jnp.exp(shifted)  # black
        return raised * 1.1  # gray

    want = "dot_general:fp16 mul:fp16 sub:fp16 exp:fp32 mul:fp32"
    assert formats(chain, W, X) == want

    def half(x):
        return np.float32(np.float16(x))

    product = half(half(np.asarray(X)) @ half(np.asarray(W)))
    doubled = half(product * half(1.1))
    shifted = half(doubled - half(np.asarray(X)))
    got = jax.jit(simulate(chain, policy()))(W, X)
    np.testing.assert_allclose(got, np.exp(shifted) * np.float32(1.1), rtol=3e-7)
    # The same with float32 gray operators is another result.
    assert np.abs(np.asarray(chain(W, X)) - got).max() > 1e-4
    rows = {row["op"]: row["why"] for row in report(chain, policy(), W, X).rows()}
    assert rows == {
        "dot_general": "white",
        "mul": "gray: follows exp (fp32)",
        "sub": "gray: follows mul (fp16)",
        "exp": "black",
    }


@pytest.mark.parametrize(
    ("name", "previous", "widest"),
    [
        ("white + black", "fp16", "fp32"),
        ("black + white", "fp32", "fp32"),
        ("white + white", "fp16", "fp16"),
        ("constant - white", "fp16", "fp16"),
        ("parameter * white", "fp16", "fp32"),
        ("input * white", "fp32", "fp32"),
        ("scalar * white", "fp32", "fp16"),
        ("moved white + white", "fp16", "fp16"),
        ("white as float32", "fp16", "fp32"),
        ("joined white and black", "fp32", "fp32"),
    ],
)
def test_which_operand_decides(name, previous, widest):
    def f(w, x):
        white, black = x @ w, jnp.exp(x)
        with jax.named_scope("here"):
            return {
                "white + black": lambda: white + black,
                "black + white": lambda: black + white,
                "white + white": lambda: white + white,
                "constant - white": lambda: 1 - white,
                "parameter * white": lambda: w[:2] * white,
                "input * white": lambda: x * white,
                "scalar * white": lambda: x[0, 0] * white,
                "moved white + white": lambda: white[::-1].reshape(2, 3) + white,
                "white as float32": lambda: (
                    lax.convert_element_type(
                        lax.convert_element_type(white, jnp.bfloat16), jnp.float32
                    )
                    * 2
                ),
                "joined white and black": lambda: jnp.concatenate([white, black]) * 2,
            }[name]()

    for follow, want in (("previous", previous), ("widest", widest)):
        found = [s for s in report(f, policy(follow), W, X).sites if s.path == "here"]
        site = next(s for s in found if s.op in ("add", "sub", "mul"))
        # A conversion that the model itself has keeps the name of its own type.
        got = "fp16" if name == "white as float32" and "fp16" in site.formats else site.formats
        assert got == want, (follow, site)


def test_labels_go_through_jit_remat_and_custom_rules():
    def body(w, x):
        return jax.nn.relu(x @ w) * 2

    want = "dot_general:fp16 max:fp16 mul:fp16"
    for wrap in (jax.jit, jax.checkpoint, lambda f: jax.vmap(f, (None, 0))):
        assert (
            formats(wrap(body), W, X if wrap in (jax.jit, jax.checkpoint) else X[:, None]) == want
        )

    def outside(w, x):
        return jax.jit(lambda h: h * 2)(x @ w) + jax.jit(lambda h: h * 2)(x)

    # One traced function, planned in two places.
    assert formats(outside, W, X) == "dot_general:fp16 mul:fp16 mul:fp32 add:fp16"

    @jax.custom_vjp
    def square(h):
        return h * h

    square.defvjp(lambda h: (h * h, h), lambda h, g: (2 * h * g,))
    run = simulate(jax.grad(lambda x: jnp.sum(square(x @ W)) * 1.0), policy())
    assert bool(jnp.isfinite(run(X)).all())


def test_branches_join_in_the_wider_format():
    def f(other):
        def run(w, x):
            h = lax.cond(x[0, 0] > 0, lambda: x @ w, lambda: other(w, x))
            return h * 2

        return run

    # The branch that is not taken comes first in the program.
    assert formats(f(lambda w, x: x @ w), W, X) == "dot_general:fp16 dot_general:fp16 mul:fp16"
    assert formats(f(lambda w, x: jnp.exp(x)), W, X) == "exp:fp32 dot_general:fp16 mul:fp32"
    assert formats(f(lambda w, x: x), W, X) == "dot_general:fp16 mul:fp32"


def test_what_a_loop_carries_is_narrow_only_from_the_start():
    def scanned(start, w):
        def step(h, _):
            return (h * 2) @ w, h + 1

        return lax.scan(step, start, None, length=3)

    def from_input(w, x):
        return scanned(x, w)

    def from_white(w, x):
        return scanned(x @ w, w)

    inside = "mul:{0} dot_general:fp16 add:{0}"
    assert formats(from_input, W, X) == inside.format("fp32")
    assert formats(from_white, W, X) == "dot_general:fp16 " + inside.format("fp16")

    def repeated(start, w):
        return lax.while_loop(lambda h: jnp.sum(h) < 9, lambda h: (h * 2) @ w, start) - 1

    want = "reduce_sum:{0} mul:{0} dot_general:fp16 sub:{0}"
    assert formats(lambda w, x: repeated(x, w), W, X) == want.format("fp32")
    assert formats(lambda w, x: repeated(x @ w, w), W, X) == "dot_general:fp16 " + want.format(
        "fp16"
    )
    # Two steps until it settles: the second carry is float32 only because the first one is.

    def crossed(w, x):
        def step(carry, _):
            a, b = carry
            return (b * 1.5, a @ w + jnp.exp(a)), None

        return lax.scan(step, (x @ w, x @ w), None, length=3)[0][0]

    assert formats(crossed, W, X).split(" ", 2)[2] == "mul:fp16 dot_general:fp16 exp:fp32 add:fp16"

    def late(w, x):
        def step(carry, _):
            a, b = carry
            return (b * 1.5, jnp.exp(a)), None

        return lax.scan(step, (x @ w, x @ w), None, length=3)[0][0] * 2

    assert formats(late, W, X).split(" ", 2)[2] == "mul:fp32 exp:fp32 mul:fp32"


def test_backward_operations_follow_what_comes_back():
    def loss(w, x):
        return jnp.sum(jnp.tanh(x @ w) * 1.5)

    # The cotangent starts as a constant in float32, and all that follow it stay there although
    # tanh's own result is in fp16; the matmul's gradient is white.
    back = formats(jax.grad(loss, 1), W, X, direction="backward").split()
    assert set(back[:-1]) == {"mul:fp32", "add_any:fp32"}
    assert back[-1] == "dot_general:fp16"

    def twice(w, x):
        with jax.named_scope("low"):
            h = x @ w
        return jnp.sum((h * h) @ w)

    found = report(jax.grad(twice, 1), policy(), W, X).sites
    mul = [s for s in found if s.op == "mul" and s.direction == "backward"]
    assert {s.formats for s in mul} == {"fp16"}
    assert {s.why for s in mul} == {"gray: follows dot_general (fp16)"}


def test_boundaries_follow_what_enters_first():
    rules = policy().rules
    soft = Rule(".*", "boundary", **ALL, function="softmax", follow="previous", reason="gray")

    def f(w, x):
        return jax.nn.softmax(x @ w) + jax.nn.softmax(jnp.exp(x))

    found = report(f, Policy([soft, *rules]), W, X).sites
    crossings = [s for s in found if s.op == "boundary"]
    # Two calls of one function are two operators: the first runs in fp16, the other does not.
    assert [s.why for s in crossings] == ["gray: softmax: follows dot_general (fp16)"] * 2
    assert [s.roles for s in crossings] == [("input",), ()]
    assert [s.formats for s in found if s.op == "add" and s.rule == 3] == ["fp16"]

    def g(w, x):
        return jax.nn.softmax(jnp.exp(x)) + x @ w

    found = report(g, Policy([soft, *rules]), W, X).sites
    assert not [s for s in found if s.op == "boundary"]
    assert [s.formats for s in found if s.op == "add" and s.rule == 3] == ["fp32"]


def test_plain_form_and_refusals():
    for rule in policy("widest").rules:
        assert Policy.from_dict({"rules": [rule.to_dict()]}).rules[0].to_dict() == rule.to_dict()
    assert policy().rules[2].to_dict()["follow"] == "previous"
    with pytest.raises(PolicyError, match=r"follow 'next'\. Allowed: previous, widest, or None"):
        Rule(follow="next")
    with pytest.raises(PolicyError, match="rules 1 and 2, which put different casts"):
        Policy([Rule(follow="widest"), Rule()])
