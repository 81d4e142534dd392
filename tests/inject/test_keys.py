"""Rules that ask for more than path and primitive: the source line, operand and result dtypes."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from npusim import _errors as errors
from npusim.inject import CastSpec, Policy, Rule, apply_cast, report, simulate, sites
from tests.helpers import same_arrays

E4M3 = CastSpec("fp8_e4m3", "RINT", "ON")
W = jnp.eye(3) * 0.7 + 0.11
X = jnp.linspace(-1.3, 1.7, 9).reshape(3, 3)


def first(w, x):
    return jax.nn.relu(x @ w)


def second(w, x):
    x = x * 1.3
    return jax.nn.relu(x @ w)


def model(w, x):
    return jnp.sum(second(w, first(w, x)))


def cast_lines(fn, policy, *args):
    return [(s.op, s.source.split("(")[-1]) for s in sites(fn, policy, *args) if s.casts]


def test_a_function_without_module_names_by_its_own_name():
    policies = [Policy([Rule(source=s, input=E4M3, weight=E4M3)]) for s in (r"\(second\)", "first")]
    got = simulate(model, policies[0])(W, X)
    h = first(W, X) * 1.3
    want = jnp.sum(jax.nn.relu(apply_cast(E4M3, h) @ apply_cast(E4M3, W)))
    same_arrays(got, want, "second")
    # Backward operations stand on the line of their forward one.
    found = sites(jax.grad(model), policies[1], W, X)
    assert [(s.direction, bool(s.casts)) for s in found if "first" in s.source] == [
        ("forward", True),
        ("backward", True),
    ]
    assert not any(s.casts for s in found if "second" in s.source)


def test_a_line_and_what_jax_jits_itself():
    line = inspect.getsourcelines(second)[1] + 2
    policy = Policy([Rule(source=f"test_keys.py:{line}:", ops=["dot_general", "max"], output=E4M3)])
    # The `max` is inside of a jitted function of JAX that `first` has called before.
    assert cast_lines(model, policy, W, X) == [("dot_general", "second)"), ("max", "second)")]
    rows = report(model, policy, W, X).rows()
    assert [r["op"] for r in rows if f"test_keys.py:{line}:" in r["source"]] == [
        "dot_general",
        "max",
    ]


def test_one_of_two_destinations_gets_the_rules_cast():
    x = jnp.array([1.001, 3.3333, 0.1])

    def both(x):
        return x.astype(jnp.bfloat16), x.astype(jnp.float16), x.astype(jnp.bfloat16) * 2

    floor = CastSpec("bf16", "FLOOR")
    rule = Rule(ops="convert", output=floor, result_dtypes="bf16")
    low, half, _ = jax.jit(simulate(both, Policy([rule])))(x)
    # FLOOR of a positive number keeps the upper half of its word.
    words = np.asarray(x).view(np.uint32) >> 16
    np.testing.assert_array_equal(np.asarray(low).view(np.uint16), words)
    np.testing.assert_array_equal(half, np.asarray(x).astype(np.float16))
    # RINT of the same numbers is another one, so the rule is what did it.
    assert (np.asarray(x.astype(jnp.bfloat16)).view(np.uint16) != words).any()
    each = Policy([rule, Rule(ops="convert", output=CastSpec("fp16", "CEIL"), dtypes="fp32")])
    _, half, _ = simulate(both, each)(x)
    same_arrays(half, apply_cast(CastSpec("fp16", "CEIL"), x).astype(jnp.float16), "CEIL")


def test_operand_dtypes():
    def f(w, x):
        narrow = x.astype(jnp.bfloat16) @ w.astype(jnp.bfloat16)
        return narrow, x @ w, x[jnp.array([0, 2])]

    def hit(**keys):
        return cast_ops(Policy([Rule(output=E4M3, **keys)]))

    def cast_ops(policy):
        return [(s.op, s.dtypes[0]) for s in sites(f, policy, W, X) if s.casts]

    assert hit(dtypes="bf16") == [("dot_general", "bfloat16")]
    assert hit(dtypes=["float32", "half"]) == [("dot_general", "float32")]
    assert hit(dtypes=["fp32", "bf16"]) == [("dot_general", "bfloat16"), ("dot_general", "float32")]
    assert hit(ops="all", dtypes="int32") == [("gather", "float32")]  # its indices
    assert hit(dtypes="fp32", result_dtypes="bf16") == []
    back = Policy([Rule(grad="fp8_e5m2", direction="backward", dtypes="bf16")])
    assert cast_ops(back) == [("dot_general", "bfloat16")]


def test_plain_form(tmp_path):
    rule = Rule(ops="convert", source="attend", dtypes=["half", "DT_BF16"], result_dtypes="float")
    assert rule.to_dict() == {
        "path": ".*",
        "ops": "convert",
        "source": "attend",
        "dtypes": ["fp16", "bf16"],
        "result_dtypes": "fp32",
    }
    file = tmp_path / "policy.yaml"
    file.write_text(
        r"rules: [{ops: convert, source: 'model\.py:.*\(attend\)', dtypes: [half], "
        r"result_dtypes: [bf16, fp8_e5m2], output: bf16}]"
    )
    (read,) = Policy.from_yaml(file).rules
    assert (read.source, read.dtypes) == (r"model\.py:.*\(attend\)", "fp16")
    assert read.result_dtypes == ("bf16", "fp8_e5m2")
    policy = Policy([read])
    assert Policy.from_dict(policy.to_dict()).to_dict() == policy.to_dict()
    assert policy.hash() != Policy([Rule(ops="convert", output="bf16")]).hash()
    assert repr(read).endswith(
        r"source='model\\.py:.*\\(attend\\)', dtypes='fp16', result_dtypes=('bf16', 'fp8_e5m2'))"
    )


def test_an_unused_rule_says_its_keys():
    rules = [Rule(source="nowhere", dtypes="fp16", input="bf16"), Rule(input="bf16")]
    with pytest.warns(errors.UnusedRuleWarning, match=r"rule 1, .*source='nowhere', dtypes='fp16'"):
        simulate(model, Policy(rules))(W, X)


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        (
            [Rule(source="f", input="half"), Rule(source="f", input="bf16")],
            (
                "Given: rules 1 and 2, which put different casts on the same operations (path "
                "'.*', source 'f', ops 'matmul', direction both). Allowed: one rule for the same "
                "path, ops and direction. Merge them, or make the earlier path narrower."
            ),
        ),
        (
            [Rule(dtypes=["fp16", "bf16"]), Rule("head", dtypes="bf16", input="half")],
            (
                "Given: rule 2 (path 'head', dtypes 'bf16'), which rule 1 (path '.*', dtypes "
                "('fp16', 'bf16')) leaves nothing to. Allowed: rules in the order in which they "
                "are tried: the first match wins. Move rule 2 before rule 1, or remove it."
            ),
        ),
        (
            [Rule(input="half"), Rule(source="f")],
            (
                "Given: rule 2 (path '.*', source 'f'), which rule 1 (path '.*') leaves nothing "
                "to. Allowed: rules in the order in which they are tried: the first match wins. "
                "Move rule 2 before rule 1, or remove it."
            ),
        ),
    ],
)
def test_rules_that_earlier_ones_leave_nothing_to(rules, text):
    with pytest.raises(errors.PolicyError) as caught:
        Policy(rules)
    assert str(caught.value) == text


@pytest.mark.parametrize(
    "rules",
    [
        [Rule(source="f", input="half"), Rule(input="bf16")],
        [Rule(source="f"), Rule(source="g")],
        [Rule(dtypes="bf16"), Rule(dtypes=["bf16", "fp16"])],
        [Rule(dtypes="bf16"), Rule(result_dtypes="bf16")],
        [Rule(dtypes="bf16"), Rule(source="f")],
    ],
)
def test_rules_that_are_left_something(rules):
    assert Policy(rules).rules == tuple(rules)


@pytest.mark.parametrize(
    ("fields", "kind", "text"),
    [
        (
            {"source": "("},
            errors.PolicyError,
            (
                "Given: source '(', which is no regular expression (missing ), unterminated "
                "subpattern at position 0). Allowed: a regular expression that is searched in "
                "file:line:column (function). Correct it; a backslash before a special character "
                "takes it literally."
            ),
        ),
        (
            {"dtypes": "hif8"},
            errors.PolicyError,
            (
                "Given: dtypes='hif8': no array in JAX has the dtype hif8. Allowed: dtypes of "
                "arrays, such as fp32, bf16, fp16, int32. Name the dtype that the traced function "
                "computes in."
            ),
        ),
        (
            {"dtypes": []},
            errors.PolicyError,
            "Given: dtypes=[]. Allowed: a dtype or a list of them. Name one, or leave it out.",
        ),
        (
            {"path": "norm", "ops": "boundary", "source": "f"},
            errors.PolicyError,
            (
                "Given: ops 'boundary' with source='f'. Allowed: path and function: a scope is a "
                "module or a call, not a line and not a dtype. Remove source, or speak of the "
                "operations."
            ),
        ),
    ],
)
def test_keys_that_are_wrong(fields, kind, text):
    with pytest.raises(kind) as caught:
        Rule(**fields)
    assert str(caught.value) == text
    with pytest.raises(errors.UnknownNameError, match="Given: result_dtypes: data type 'fp9'"):
        Rule(result_dtypes="fp9")
