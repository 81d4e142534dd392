"""Rules and policies: what is refused, and the words it is refused with."""

import dataclasses
import warnings

import pytest

from npusim import _errors as errors
from npusim.casting import FormatParams
from npusim.inject import CastSpec, Policy, Rule
from npusim.modes import Target

CAST = {"dtype": "fp8_e4m3", "mode": "RINT", "scale": "amax"}


def refused(kind, build, *args, **kwargs):
    with pytest.raises(kind) as caught:
        build(*args, **kwargs)
    return str(caught.value)


def test_plain_form_and_back():
    policy = Policy(
        [
            Rule("head", ["matmul", "conv"]),
            Rule(input=CAST, weight="half", output="bf16", direction="forward"),
            Rule(grad=CastSpec("e5m2", scale=4), direction="backward"),
            Rule("norm", "rsqrt", output="fp16"),
        ]
    )
    plain = policy.to_dict()
    assert plain == {
        "target": None,
        "rules": [
            {"path": "head", "ops": ["matmul", "conv"]},
            {
                "path": ".*",
                "ops": "matmul",
                "input": {"dtype": "fp8_e4m3", "mode": "RINT", "scale": "amax"},
                "weight": {"dtype": "fp16"},
                "output": {"dtype": "bf16"},
                "direction": "forward",
            },
            {
                "path": ".*",
                "ops": "matmul",
                "grad": {"dtype": "fp8_e5m2", "scale": 4.0},
                "direction": "backward",
            },
            {"path": "norm", "ops": "rsqrt", "output": {"dtype": "fp16"}},
        ],
    }
    again = Policy.from_dict(plain)
    assert again.to_dict() == plain
    assert again.hash() == policy.hash()
    assert len(policy.hash()) == 16
    assert policy.hash() != Policy([Rule(input="half")]).hash()
    held = Policy([Rule(input="fp16")], target=Target("A5", "ascendc"))
    assert held.to_dict()["target"] == {
        "soc": "950PR",
        "api": "ascendc",
        "overflow": "INF_NAN",
        "level": "memory",
    }
    assert Policy.from_dict(held.to_dict()).target == held.target


def test_yaml(tmp_path):
    file = tmp_path / "policy.yaml"
    file.write_text(
        "target: {soc: 950, api: ascendc}\n"
        "rules:\n"
        "  - {path: head}\n"
        "  - {input: &c {dtype: hif8, mode: ROUND, satmode: ON}, weight: *c}\n"
    )
    policy = Policy.from_yaml(file)
    assert policy.target == Target("950PR", "ascendc")
    assert policy.rules[1].input == policy.rules[1].weight == CastSpec("hif8", "ROUND", "ON")


MISTAKES = [
    (
        "rules: [{optional: 'no'}]",
        errors.PolicyError,
        (
            "Given: FILE, key 'rules[0]': optional 'no'. Allowed: True or False. In YAML write "
            "true or false, without quotes."
        ),
    ),
    (
        "rules: [{reason: 3}]",
        errors.PolicyError,
        "Given: FILE, key 'rules[0]': reason 3. Allowed: a text. Put it in quotes.",
    ),
    (
        "rules: [{pth: head}]",
        errors.ConfigError,
        (
            "Given: FILE, key 'rules[0].pth': an unknown key. Allowed: path, ops, input, "
            "weight, output, grad, accumulate, direction, source, dtypes, result_dtypes, function, "
            "follow, optional, reason. Did you "
            "mean 'path'? Correct or remove it."
        ),
    ),
    (
        "rules: [{input: {dtyp: half}}]",
        errors.ConfigError,
        (
            "Given: FILE, key 'rules[0].input.dtyp': an unknown key. Allowed: dtype, mode, "
            "satmode, scale, ste, via, amax_to, amax. Did you mean 'dtype'? Correct or remove "
            "it."
        ),
    ),
    (
        "rules: [{input: {mode: RINT}}]",
        errors.ConfigError,
        (
            "Given: FILE, key 'rules[0].input': no key 'dtype'. Allowed: dtype, mode, satmode, "
            "scale, ste, via, amax_to, amax. Add the dtype."
        ),
    ),
    (
        "rules: [{input: {dtype: half, mode: RIMT}}]",
        errors.UnknownNameError,
        (
            "Given: FILE, key 'rules[0].input': cast mode 'RIMT'. Allowed: NONE, RINT, FLOOR, "
            "CEIL, ROUND, TRUNC, ODD, HYBRID. Did you mean 'RINT'? Pass one of these names."
        ),
    ),
    (
        "rules: [{path: '['}]",
        errors.PolicyError,
        (
            "Given: FILE, key 'rules[0]': path '[', which is no regular expression "
            "(unterminated character set at position 0). Allowed: a regular expression that is "
            "searched in the module path. Correct it; a backslash before a special character "
            "takes it literally."
        ),
    ),
    (
        "rules: [{ops: matmull}]",
        errors.PolicyError,
        (
            "Given: FILE, key 'rules[0]': ops 'matmull'. Allowed: matmul, conv, elementwise, "
            "reduce, convert, index, all, boundary, or the name of a JAX primitive such as exp. "
            "Did you mean 'matmul'? Pass one of these."
        ),
    ),
    (
        "rules: [{ops: boundary}]",
        errors.PolicyError,
        (
            "Given: FILE, key 'rules[0]': ops 'boundary' with path '.*', which matches everything. "
            "Allowed: a path that names modules, such as 'norm', or a function. Narrow the path, "
            "or name the function."
        ),
    ),
    (
        "rules: [{path: norm, ops: [boundary, matmul]}]",
        errors.PolicyError,
        (
            "Given: FILE, key 'rules[0]': ops ['boundary', 'matmul']. Allowed: 'boundary' alone, "
            "which speaks of scopes and not of operations. Write a rule of its own for it."
        ),
    ),
    (
        "rules: [{direction: forwards}]",
        errors.PolicyError,
        (
            "Given: FILE, key 'rules[0]': direction 'forwards'. Allowed: both, forward, "
            "backward. Did you mean 'forward'? Pass one of these names."
        ),
    ),
    (
        "rules: [{accumulate: random}]",
        errors.UnknownNameError,
        (
            "Given: FILE, key 'rules[0]': accumulate='random'. Allowed: 'fast', 'sequential', "
            "('blocked', k) with a positive integer k. Pass one of these; 'fast' is the default."
        ),
    ),
    (
        "rules: [{ops: conv, accumulate: [blocked, 16]}]",
        errors.PolicyError,
        (
            "Given: FILE, key 'rules[0]': accumulate=('blocked', 16) with ops 'conv'. Allowed: "
            "ops with dot_general among them, such as matmul. Remove accumulate, or name matmul."
        ),
    ),
    (
        "rules: {path: head}",
        errors.ConfigError,
        ("Given: FILE, key 'rules': {'path': 'head'}. Allowed: a list of rules. Write the list."),
    ),
    (
        "rules: [head]",
        errors.ConfigError,
        (
            "Given: FILE, key 'rules[0]': 'head'. Allowed: a mapping with path, ops, input, "
            "weight, output, grad, accumulate, direction, source, dtypes, result_dtypes, function, "
            "follow, optional, reason. Correct "
            "it."
        ),
    ),
    (
        "rule: []",
        errors.ConfigError,
        (
            "Given: FILE, key 'rule': an unknown key. Allowed: rules, target. Did you mean "
            "'rules'? Correct or remove it."
        ),
    ),
    (
        "{rules: [], target: {soc: 910}}",
        errors.UnknownNameError,
        (
            "Given: FILE, key 'target': SoC '910'. Allowed: A2A3, A2, A3, 910B, 950PR, 950, "
            "950DT, A5. Did you mean '910B'? Pass one of these names."
        ),
    ),
    (
        "{rules: [], target: {chip: 950}}",
        errors.ConfigError,
        (
            "Given: FILE, key 'target.chip': an unknown key. Allowed: soc, api, overflow, "
            "level. Correct or remove it."
        ),
    ),
]


@pytest.mark.parametrize(("text", "kind", "message"), MISTAKES)
def test_yaml_mistakes_name_file_and_key(tmp_path, text, kind, message):
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    assert refused(kind, Policy.from_yaml, file) == message.replace("FILE", str(file))


def test_files_that_are_none(tmp_path):
    missing = tmp_path / "no.yaml"
    assert refused(errors.ConfigError, Policy.from_yaml, missing) == (
        f"Given: policy file {missing} (No such file or directory). Allowed: a YAML file. "
        "Check the path."
    )
    broken = tmp_path / "broken.yaml"
    broken.write_text("rules: [")
    assert "which is no YAML" in refused(errors.ConfigError, Policy.from_yaml, broken)


def test_contradictions():
    assert refused(
        errors.PolicyError, Policy, [Rule("head", input="half"), Rule("head", input="bf16")]
    ) == (
        "Given: rules 1 and 2, which put different casts on the same operations (path 'head', "
        "ops 'matmul', direction both). Allowed: one rule for the same path, ops and direction. "
        "Merge them, or make the earlier path narrower."
    )


@pytest.mark.parametrize(
    "rules",
    [
        [Rule(input="half"), Rule("head")],
        [Rule("head", input="half"), Rule("head", input="half")],
        [Rule("head"), Rule("head", direction="forward")],
        [
            Rule("head", direction="forward"),
            Rule("head", direction="backward"),
            Rule("head", input="half"),
        ],
        [Rule(ops=["matmul", "conv"]), Rule("stem", "conv", input="half")],
        [Rule(ops="conv_general_dilated"), Rule("head", "conv")],
    ],
)
def test_rules_that_nothing_is_left_for(rules):
    with pytest.raises(errors.PolicyError, match=r"leaves nothing to|different casts"):
        Policy(rules)


@pytest.mark.parametrize(
    "rules",
    [
        [Rule("head"), Rule(input="half")],
        [Rule(direction="forward"), Rule(direction="backward")],
        [Rule(ops="conv"), Rule(ops="matmul")],
        [Rule("head", direction="forward", input="half"), Rule("head", input="bf16")],
    ],
)
def test_rules_that_are_left_something(rules):
    assert Policy(rules).rules == tuple(rules)


def test_the_text_of_an_unreachable_rule():
    assert refused(errors.PolicyError, Policy, [Rule(input="half"), Rule("head")]) == (
        "Given: rule 2 (path 'head'), which rule 1 (path '.*') leaves nothing to. Allowed: rules "
        "in the order in which they are tried: the first match wins. Move rule 2 before rule 1, "
        "or remove it."
    )


def test_a_target_refuses_a_cast_it_lacks_when_the_policy_is_made():
    rule = Rule(input=CastSpec("int8", "RINT"))
    text = refused(errors.UnsupportedCastError, Policy, [rule], Target("A2", "ascendc"))
    assert text.startswith("Given: rule 1, input: ")
    assert "fp32" in text
    assert "int8" in text
    # The chain over half that the chip does have.
    Policy([Rule(input=CastSpec("int8", "RINT", via="fp16"))], Target("A2", "ascendc"))
    Policy([rule])
    traced = Rule(input=CastSpec(FormatParams.of("half")))
    assert refused(errors.PolicyError, Policy, [traced], Target("A2", "ascendc")).startswith(
        "Given: rule 1, input: traced FormatParams under the target A2A3 ascendc. "
    )


def test_a_fallback_is_reported_when_the_policy_is_made_and_not_again():
    import jax.numpy as jnp

    from npusim.inject import simulate

    with pytest.warns(errors.CastFallbackWarning, match=r"does not take RINT: ROUND runs instead"):
        policy = Policy([Rule(input=CastSpec("hif8", "RINT"))], Target("950", "pypto"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        simulate(lambda w, x: x @ w, policy)(jnp.eye(2), jnp.eye(2))


def test_what_is_no_rule():
    assert refused(errors.PolicyError, Policy, [{"path": "head"}]) == (
        "Given: {'path': 'head'} among the rules. Allowed: npusim.Rule. Build it with Rule(...), "
        "or the whole policy with Policy.from_dict."
    )
    assert "target 'A2'" in refused(errors.PolicyError, Policy, [], "A2")
    assert refused(errors.UnknownNameError, Rule, input="fp9").startswith(
        "Given: input: data type 'fp9'"
    )
    assert "unexpected keyword" in refused(errors.PolicyError, Rule, input={"dtype": 1, "x": 2})


def test_rules_and_specs_can_be_replaced_field_by_field():
    rule = Rule("head", ["conv", "matmul"], input=CAST)
    spec = dataclasses.replace(rule.input, dtype=FormatParams.of("half"), mode=None)
    other = dataclasses.replace(rule, input=spec, direction="forward")
    assert other.ops == ("conv", "matmul")
    assert other.input.traced
    assert repr(other) == (
        "Rule(path='head', ops=('conv', 'matmul'), input=CastSpec(traced scale=amax), "
        "direction='forward')"
    )
    with pytest.raises(errors.InputError, match="a plain form"):
        Policy([other]).hash()


def test_control_flow_is_no_operation():
    for name in ("scan", "cond", "jit"):
        with pytest.raises(errors.PolicyError):
            Rule(ops=name)
