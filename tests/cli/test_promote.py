"""``npusim promote``: answers, tables, differences, and refusals on one line."""

import csv
import io
import json

import pytest
import typer
from typer.testing import CliRunner

from npusim.cli import layout, promote
from npusim.promotion import diff
from tests.promotion.pages import PAIRS


def run(*args):
    app = typer.Typer()
    promote.register(app)
    layout.register(app)
    # No terminal and no COLUMNS: as wide as the table needs.
    return CliRunner().invoke(app, ["promote", *args], env={"COLUMNS": None})


def records(*args):
    result = run(*args, "--format", "csv")
    assert result.exit_code == 0, result.output
    return list(csv.DictReader(io.StringIO(result.stdout)))


def test_two_types():
    assert [(r["rules"], r["type"]) for r in records("f16", "bf16")] == [
        ("documented", "fp32"),
        ("implementation", "fp32"),
        ("zh", "fp32"),
    ]
    assert [r["type"] for r in records("bf16", "f16", "--rules", "zh")] == ["fp64", "fp32", "fp32"]
    rows = records("u16", "c64", "--rules", "implementation")
    assert [r["type"] for r in rows] == ["complex64", "-", "-"]
    shown = run("f16", "bf16").stdout
    assert "f16 with bf16" in shown
    assert "English edition" in shown


@pytest.mark.parametrize(
    ("args", "want"),
    [
        (("f16", "1.001"), "fp32"),
        (("f16", "1.001", "--op", "div"), "fp16"),
        (("int8", "1.5", "--op", "add", "--soc", "A2A3"), "fp64"),
        (("int8", "1.5", "--op", "add", "--soc", "A2A3", "--out", "fp32"), "fp32"),
        (("int8", "1.5:f16", "--op", "add", "--soc", "A2A3"), "fp16"),
        (("bool", "3"), "int64"),
        (("bool", "True"), "bool"),
        (("f32", "1j"), "complex64"),
    ],
)
def test_numbers_are_scalars(args, want):
    rows = records(*args)
    assert rows[0]["type"] == want
    assert "scalar rules" in rows[0]["source"]


@pytest.mark.parametrize("rules", ["documented", "implementation", "zh"])
def test_the_table_in_every_form(rules):
    rows = records("--table", "--rules", rules)
    assert len(rows) == 16
    assert rows[0]["complex32"] == "complex64"
    result = run("--table", "--rules", rules, "--format", "json")
    assert len(json.loads(result.stdout)) == 16
    lines = run("--table", "--rules", rules).stdout.splitlines()
    assert rules in lines[0]
    names = rows[0].keys() - {"dtype"}
    assert len(names) == 16
    assert len([line for line in lines if len(line.split()) == 17]) == 17  # header and 16 rows
    assert any(line.startswith("bf16 ") and "c64" in line for line in lines)


def test_other_tables():
    rows = records("--table", "--kind", "conversion")
    assert len(rows) == 16
    assert {r["dtype"]: r["int8"] for r in rows}["fp32"] == "no"
    assert len(records("--table", "--kind", "conversion", "--rules", "implementation")) == 23
    assert "* assumed: the page is silent" in run("--table", "--kind", "conversion").stdout
    assert len(records("--table", "--kind", "scalar")) == len(PAIRS)


def test_differences():
    rows = records("--diff")
    assert len(rows) == len(diff())
    assert all(row["reason"] for row in rows)
    row = next(r for r in rows if (r["lhs"], r["rhs"]) == ("bf16", "fp16"))
    assert (row["documented"], row["zh"], row["jnp"], row["torch"]) == (
        *("fp32", "fp64"),
        *("fp32", "fp32"),
    )
    assert len(records("--diff", "--kind", "conversion")) == 39
    shown = run("--diff", "--kind", "derivation").stdout
    assert "85 differences" in shown
    assert "misprint" in shown
    assert "Assumed, no source states them:" in shown
    assert "bool with bool" in shown
    assert json.loads(run("--diff", "--format", "json").stdout)[0]["kind"] == "derivation"


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ((), "Given: no operands. Allowed: operands, --table or --diff, one of them."),
        (("f16", "--table"), "Given: several questions at once."),
        (("fp9", "f16"), "Given: data type 'fp9'."),
        (("u16", "f32"), "which no type can be derived for (rules='documented')"),
        (("f16", "bf16", "c32"), "depends on the order"),
        (("f16", "--rules", "chinese"), "Given: rules='chinese'."),
        (("f16", "1", "--op", "ad"), "Did you mean 'add'?"),
        (("f16", "--soc", "A9"), "Given: SoC 'A9'."),
        (("--table", "--kind", "all"), "Given: --kind all."),
        (("f16", "--format", "xml"), "Given: --format xml. Allowed: table, csv, json."),
        (("f16", "300:int8"), "Given: scalar 300 of type int8."),
    ],
)
def test_bad_input_is_one_line_and_code_2(args, text):
    result = run(*args)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: Given: ")
    assert text in result.stderr
    assert result.stderr.count("\n") == 1


def test_help_has_examples():
    shown = run("--help").stdout
    assert "npusim promote f16 bf16" in shown
    assert "--diff" in shown
