"""What a sweep file may say, and the words in which it is refused."""

import copy
from pathlib import Path

import pytest

from npusim._errors import ConfigError
from npusim.sweep.config import load_config, parse_config, placeholders
from npusim.sweep.plan import plan
from tests.sweep.tiny import config

ROOT = Path(__file__).parents[2]


def refusal(raw, read=parse_config):
    with pytest.raises(ConfigError) as caught:
        read(raw, "my.yaml")
    return str(caught.value)


def planned(raw, source):
    return plan(parse_config(raw, source))


def with_rule(**fields):
    raw = copy.deepcopy(config())
    raw["policy"]["rules"][0] |= fields
    return raw


def test_the_demo_file_is_what_the_project_promises():
    demo = load_config(ROOT / "configs" / "digits_castmodes.yaml")
    assert demo.axes["dtype"] == ("bf16", "fp16", "fp8_e4m3", "hif8", "fp4_e2m1", "int8")
    assert demo.axes["mode"] == ("RINT", "FLOOR", "CEIL", "ROUND", "TRUNC", "ODD")
    assert demo.axes["satmode"] == ("ON", "OFF")
    assert demo.seeds == (0, 1, 2)
    assert demo.baseline == {"dtype": "fp32"}
    cells = plan(demo)
    assert len(cells) == 73
    assert len({cell.program for cell in cells}) == 2


def test_yaml_1_1_booleans_are_saturation_modes(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text(
        "name: a\ntask: digits_mlp\nseeds: [0]\n"
        "policy: {rules: [{path: '.*', ops: matmul, input: &c {dtype: $f, satmode: $s}, "
        "weight: *c}]}\n"
        "axes: {f: [half, ACL_FLOAT8_E4M3FN], s: [ON, off]}\n"
    )
    loaded = load_config(path)
    assert loaded.axes == {"f": ("fp16", "fp8_e4m3"), "s": ("ON", "OFF")}
    assert loaded.baseline is None
    assert loaded.points()[1] == {"f": "fp16", "s": "OFF"}
    rule = loaded.resolve({"f": "fp16", "s": "OFF"})["rules"][0]
    assert rule["input"] == rule["weight"] == {"dtype": "fp16", "satmode": "OFF"}


def test_numbers_with_exponents_are_numbers(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text(
        "name: a\ntask: t:t\nseeds: [0]\npolicy: {rules: [{path: 'x', input: {dtype: $f"
        ", scale: 1e-3}}]}\naxes: {f: [int8]}\ntask_args: {rate: 2E-4}\n"
    )
    loaded = load_config(path)
    assert loaded.policy["rules"][0]["input"]["scale"] == 1e-3
    assert loaded.task_args == {"rate": 2e-4}


def test_a_dollar_at_the_end_of_a_regular_expression_is_no_placeholder():
    raw = with_rule(path="(first|head)$")
    assert parse_config(raw).policy["rules"][0]["path"] == "(first|head)$"
    assert placeholders({"path": "head$", "ops": "$ops"}) == [("ops", "policy.ops")]


def test_the_hash_changes_with_settings_only():
    plain = parse_config(config(), "a.yaml")
    assert plain.hash == parse_config(copy.deepcopy(config()), "b.yaml").hash
    assert plain.hash != parse_config(config(seeds=[0, 2])).hash
    respelled = config(
        axes={"dtype": ["e2m1", "INT8"], "mode": ["rint", "CAST_TRUNC"], "satmode": ["on", "off"]}
    )
    assert plain.hash == parse_config(respelled).hash


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            {"axis": {"dtype": ["int8"]}},
            (
                "Given: my.yaml, key 'axis': unknown key 'axis'. Allowed: name, task, seeds, "
                "policy, axes, baseline, task_args. Did you mean 'axes'? Correct or remove it."
            ),
        ),
        (
            {"seeds": None},
            (
                "Given: my.yaml, key 'seeds': the key is missing. Allowed: name, task, seeds, "
                "policy, axes. Add it."
            ),
        ),
        (
            {"seeds": [0, 1, 0]},
            (
                "Given: my.yaml, key 'seeds[2]': 0 a second time. Allowed: a list of "
                "different whole numbers from 0, e.g. [0, 1, 2]. Remove it."
            ),
        ),
        (
            {"seeds": []},
            (
                "Given: my.yaml, key 'seeds': []. Allowed: a list of different whole numbers "
                "from 0, e.g. [0, 1, 2]. Correct the list."
            ),
        ),
        (
            {"seeds": [True]},
            (
                "Given: my.yaml, key 'seeds[0]': a truth value. Allowed: a list of different whole "
                "numbers from 0, e.g. [0, 1, 2]. Correct it."
            ),
        ),
        (
            {"name": "a/b"},
            (
                "Given: my.yaml, key 'name': 'a/b'. Allowed: letters, digits, '.', '_', '-'. "
                "It names a folder: correct."
            ),
        ),
        (
            {"baseline": {"dtyp": "fp32"}},
            (
                "Given: my.yaml, key 'baseline.dtyp': unknown key 'dtyp'. Allowed: dtype, mode, "
                "satmode. Did you mean 'dtype'? Correct or remove it."
            ),
        ),
    ],
)
def test_top_keys(change, text):
    assert refusal(config(**change)) == text


@pytest.mark.parametrize(
    ("axes", "text"),
    [
        (
            {"dtype": ["int8"], "mode": ["RINT", "RIMT"], "satmode": ["ON"]},
            (
                "Given: my.yaml, key 'axes.mode[1]': cast mode 'RIMT'. Allowed: NONE, RINT, FLOOR, "
                "CEIL, ROUND, TRUNC, ODD, HYBRID. Did you mean 'RINT'? Pass one of these names."
            ),
        ),
        (
            {"dtype": ["int8"], "mode": ["RINT"], "satmode": ["ON", True]},
            (
                "Given: my.yaml, key 'axes.satmode[1]': 'ON' a second time. Allowed: different "
                "values. Remove it."
            ),
        ),
        (
            {"dtype": [], "mode": ["RINT"], "satmode": ["ON"]},
            (
                "Given: my.yaml, key 'axes.dtype': []. Allowed: a list of at least one "
                "value. Write its values."
            ),
        ),
        (
            {"dtype": ["int8"], "mode": ["RINT"], "satmode": ["ON"], "speed": [1]},
            (
                "Given: my.yaml, key 'axes.speed': an axis that no placeholder uses (used: $dtype, "
                "$mode, $satmode). Allowed: axes that a rule names as $speed. Use it in a rule or "
                "remove the axis."
            ),
        ),
        (
            {"dtype": ["int8"], "modes": ["RINT"], "satmode": ["ON"]},
            (
                "Given: my.yaml, key 'policy.rules[0].input.mode': unknown placeholder '$mode'. "
                "Allowed: $dtype, $modes, $satmode. Did you mean '$modes'? Correct or remove it."
            ),
        ),
    ],
)
def test_axes(axes, text):
    assert refusal(config(axes=axes)) == text


def test_an_unknown_format_names_the_nearest():
    axes = {"dtype": ["fp8_e4m4"], "mode": ["RINT"], "satmode": ["ON"]}
    text = refusal(config(axes=axes))
    assert text.startswith("Given: my.yaml, key 'axes.dtype[0]': data type 'fp8_e4m4'. Allowed: ")
    assert "Did you mean 'fp8_e4m3'?" in text


def test_keys_of_rules_and_casts():
    assert refusal(with_rule(wieght={"dtype": "int8"})).startswith(
        "Given: my.yaml, key 'policy.rules[0].wieght': unknown key 'wieght'. Allowed: path, ops, "
    )
    raw = with_rule(input={"dtpye": "$dtype"})
    text = refusal(raw)
    assert text.startswith("Given: my.yaml, key 'policy.rules[0].input.dtpye': unknown key 'dtpye'")
    assert "Did you mean 'dtype'?" in text
    assert refusal(with_rule(grad={"mode": "RINT"})) == (
        "Given: my.yaml, key 'policy.rules[0].grad.dtype': the key is missing. Allowed: a data "
        "type. Add it."
    )


def test_an_unknown_chip():
    raw = copy.deepcopy(config())
    raw["policy"]["target"] = {"soc": "951PR", "api": "ascendc"}
    text = refusal(raw)
    assert text.startswith("Given: my.yaml, key 'policy.target': SoC '951PR'. Allowed: ")
    assert "Did you mean '950PR'?" in text


def test_a_baseline_that_casts_needs_every_axis():
    assert refusal(config(baseline={"dtype": "bf16"}), planned) == (
        "Given: my.yaml, key 'baseline': no value for mode, satmode. Allowed: a value for every "
        "axis, or {dtype: fp32}, which leaves no cast. Add it."
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name: a\nname: b\n", "line 2, column 1: key 'name' stands twice. Allowed: valid YAML."),
        ("name: [a\n", "Allowed: valid YAML. Correct this place."),
        ("- a\n", "a list. Allowed: a mapping with the keys name, task, seeds"),
        ("", "nothing. Allowed: a mapping with the keys name, task, seeds"),
    ],
)
def test_files_that_are_no_sweep(tmp_path, text, expected):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert str(path) in str(caught.value)
    assert expected in str(caught.value)


def test_a_missing_file(tmp_path):
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "none.yaml")
    assert str(caught.value) == (
        f"Given: {tmp_path / 'none.yaml'}: No such file or directory. Allowed: a readable YAML "
        "file. Correct the path."
    )


def test_a_cast_the_chip_lacks_is_refused_for_every_combination():
    raw = copy.deepcopy(config())
    raw["policy"]["target"] = {"soc": "A2A3", "api": "ascendc"}
    raw["axes"]["dtype"] = ["fp16", "hif8"]
    text = refusal(raw, planned)
    assert text.startswith(
        "Given: my.yaml at dtype=hif8, mode=RINT, satmode=ON, key 'policy.rules': rule 1, input: "
    )
    assert "A2A3 ascendc" in text
    assert "Refused are 4 of 8 combinations." in text
