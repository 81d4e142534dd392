"""``npusim presets``: the list, a preset as YAML, and what it does to a sweep task."""

import csv
import io

import pytest

from npusim.inject import Policy, preset, presets
from npusim.modes import Target
from tests.cli.run import data, out, run


def test_the_list():
    rows = data("presets")
    assert [row["name"] for row in rows] == [row.name for row in presets()]
    by_name = {row["name"]: row for row in rows}
    assert by_name["cann_mixed_hif8"]["chips"] == "950PR"
    assert by_name["mindspeed_mxfp8"]["available"].startswith("no: a CastSpec scales a whole")
    assert "AutoCastOps.cpp" in by_name["torch_npu_autocast_fp16"]["source"]
    assert "mixed_hif8" not in out("presets", "--soc", "A2A3")
    table = out("presets", "--soc", "910B")
    assert "mindspore_o2_fp16" in table
    assert table.splitlines()[-1].startswith("21 presets, 0 not available yet.")


@pytest.mark.parametrize("name", ["allow_mix_precision", "mindspeed_tensorwise_hif8"])
def test_the_yaml_is_the_policy(name, tmp_path):
    file = tmp_path / "policy.yaml"
    file.write_text(out("presets", "show", name, "--soc", "950PR"))
    want = preset(name, Target("950PR", "numerics"))
    assert Policy.from_yaml(file).hash() == want.hash()
    assert file.read_text().startswith("# ")
    keys = {row["keys"] for row in data("lint", str(file))}
    asked = [rule for rule in want.rules if rule.function and not rule.follow]
    assert {f"function={rule.function}" for rule in asked} <= keys
    assert data("presets", "show", name, "--path", "head")["rules"][0]["path"] == "head"


def test_what_it_does_to_a_task():
    text = out("presets", "apply", "allow_mix_precision", "digits_cnn", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    convolutions = [row for row in rows if row["op"] == "conv_general_dilated"]
    assert {row["formats"] for row in convolutions} == {"fp16"}
    assert {row["direction"] for row in convolutions} == {"forward", "backward"}
    assert "white list: relu" in {row["why"] for row in rows}
    assert "follows" in " ".join(row["why"] for row in rows)
    assert "gray list" in out("presets", "apply", "allow_mix_precision", "digits_mlp")


def test_mistakes_are_one_line_and_exit_code_2():
    for words, told in (
        (("show", "cube_hf32"), "preset 'cube_hf32'"),
        (("show", "mxfp8"), "not available yet"),
        (("show", "mixed_hif8", "--soc", "A2A3"), "Allowed: 950PR"),
        (("show", "fp16", "--format", "csv"), "--format csv. Allowed: yaml, json"),
        (("apply", "fp16", "digits_mpl"), "Did you mean 'digits_mlp'"),
        (("--format", "yaml"), "--format yaml"),
        (("--soc", "A1"), "SoC 'A1'"),
    ):
        result = run("presets", *words, code=2)
        assert told in result.stderr, result.stderr
        assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("words", [(), ("show",), ("apply",)])
def test_help_has_examples(words):
    text = out("presets", *words, "--help")
    assert "Examples:" in text
    assert "npusim presets" in text
