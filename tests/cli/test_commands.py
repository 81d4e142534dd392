"""The other commands, their help, and what all commands share."""

import csv
import io
import json
import subprocess
import sys

import pytest

import npusim as npu
from npusim.casting.provenance import GRADES, provenance
from npusim.cli.app import app
from tests.cli.run import data, out, run

COMMANDS = sorted(command.name or command.callback.__name__ for command in app.registered_commands)


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_the_commands():
    assert COMMANDS == [
        "cast", "check", "formats", "layout", "lint", "promote", "provenance", "report", "support",
        "sweep", "vectors",
    ]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("columns", [80, 200])
def test_every_command_has_help_with_examples(command, columns):
    text = out(command, "--help", columns=columns)
    assert "Examples:" in text
    assert f"npusim {command} " in text
    assert max(map(len, text.splitlines())) <= columns


def test_no_command_prints_the_help():
    text = run(code=2).stdout
    assert all(command in text for command in COMMANDS)


def test_unknown_command():
    assert "casst" in run("casst", code=2).stderr


def test_version():
    assert out("--version").startswith(f"npusim {npu.__version__} (jax ")


def test_as_a_module_and_no_traceback():
    command = [sys.executable, "-m", "npusim.cli.app", "cast", "1", "--from", "x", "--to", "int8"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: Given: data type 'x'.")
    assert "Traceback" not in done.stderr


def test_formats_list():
    table = data("formats")
    assert [row["format"] for row in table] == [row.short for row in npu.dtypes.DTYPES]
    by_name = {row["format"]: row for row in table}
    assert by_name["fp16"]["max"] == 65504
    assert by_name["int64"]["max"] == 2**63 - 1
    assert by_name["fp8_e8m0"]["min"] == 2.0**-127
    assert by_name["hif8"]["jax"] == "NpuArray"
    text = out("formats", columns=80)
    assert "fp8_e4m3" in text
    assert max(map(len, text.splitlines())) <= 80


def test_formats_of_the_chips():
    assert data("formats", "hf32")[0]["grid"] == "1/8/10"
    assert data("formats", "hf32", "--soc", "A3")[0]["grid"] == "1/8/11"


@pytest.mark.parametrize("name", ["hif8", "e4m3", "e5m2", "e8m0", "e2m1", "e1m2", "int4"])
def test_value_tables_are_the_formats(name):
    fmt = npu.dtype(name)
    table = data("formats", name)
    assert [int(row["code"], 16) for row in table] == list(range(1 << fmt.bits))
    finite = [row["value"] for row in table if not isinstance(row["value"], str)]
    assert max(finite) == fmt.max
    assert min(finite) == fmt.min
    assert min(v for v in finite if v > 0) == fmt.quantum
    assert rows(out("formats", name, "--format", "csv"))[1]["code"] == table[1]["code"]


def test_value_table_of_hif8():
    text = out("formats", "hif8", columns=80)
    assert "│ 0x01 │ 0 0000 001  │ 2^-22" in text
    assert "0x6F  │ 0 11 0111 1 │ inf" in text
    assert "With the sign bit (0x80) set the value is the negative one; 0x80 alone is NaN." in text


def test_support():
    table = data("support", "--soc", "A2A3")
    assert len(table) == 25
    table = data("support", "--api", "ascendc", "--from", "float", "--to", "hif8")
    assert table[0]["modes"] == "ROUND HYBRID"
    assert table[0]["NONE is"] == "refused"
    assert table[0]["source"] == "Ascend C Memory Cast page"
    reg = data("support", "--api", "ascendc", "--level", "reg", "--to", "e8m0")
    assert [row["from"] for row in reg] == ["bf16"]
    text = out("support", "--api", "ascendc", "--to", "hif8", columns=80)
    assert "All: grade: documented; source: Ascend C Memory Cast page" in text
    chains = data("support", "--api", "aclnn", "--from", "half", "--to", "e2m1")
    assert chains[0]["steps"] == "bf16 RINT, then fp4_e2m1 RINT"


def test_support_of_nothing_names_who_has_it():
    result = run("support", "--from", "half", "--to", "int4", code=2)
    assert "The pair exists on: A2A3 pypto INF_NAN;" in result.stderr


def test_provenance_rows_are_complete():
    found = provenance()
    assert len({row.id for row in found}) == len(found) > 80
    for row in found:
        assert row.grade in GRADES
        assert row.topic
        assert row.source
        assert row.rule.endswith(".")
    assert not [row for row in found if row.grade == "measured"]
    with pytest.raises(npu.UnknownNameError, match="grade 'guessed'"):
        provenance("guessed")


def test_provenance():
    assumed = data("provenance", "--grade", "assumed")
    assert {row["grade"] for row in assumed} == {"assumed"}
    assert [row.id for row in provenance("assumed")] == [row["id"] for row in assumed]
    flush = data("provenance", "flush", "--not-modelled")
    assert "double-float-flush" in {row["id"] for row in flush}
    text = out("provenance", "16.0", columns=80)
    assert "hybrid-exact-up  documented" in text
    assert max(map(len, text.splitlines())) <= 80
    assert "'guessed'" not in run("provenance", "--grade", "guessed", code=2).stdout


def test_vectors_and_check(tmp_path):
    text = out("vectors", "--from", "half", "--to", "int8")
    path = tmp_path / "v.csv"
    path.write_text(text)
    lines = text.splitlines()
    assert lines[0].startswith(f"# npusim {npu.__version__}, jax ")
    recorded = json.loads(lines[1].removeprefix("# cast "))
    assert (recorded["from"], recorded["to"], recorded["soc"]) == ("fp16", "int8", "950PR")
    assert lines[4] == "# inputs all 65536 codes of fp16"
    assert lines[5] == "input,code"
    assert "0x5CB0,0x2C" in lines
    assert "65536 rows, 65536 equal, 0 different" in out("check", str(path))
    # A device that clamps: one code in place of the expected one, and all in a column of their own.
    path.write_text(text.replace("0x5CB0,0x2C", "0x5CB0,0x7F"))
    found = data("check", str(path), code=1)
    assert found["different"] == 1
    assert found["differences"][0]["measured"] == "127 0x7F"
    assert found["differences"][0]["expected bits"] == "0010_1100"
    column = [*lines[:5], "input,code,measured"]
    column += [line + (",1" if line.startswith("0x5C") else ",0x2C") for line in lines[-40:]]
    path.write_text("\n".join(column))
    found = data("check", str(path), code=1)
    assert found["rows"] == 40
    assert len(found["differences"]) == 20
    assert found["different"] > 20
    assert "20 of" in out("check", str(path), code=1)
    assert len(rows(out("check", str(path), "--format", "csv", code=1))) == 20


def test_check_takes_nan_as_a_class(tmp_path):
    path = tmp_path / "v.csv"
    text = out("vectors", "--from", "bf16", "--to", "half", "--sat", "off")
    path.write_text(text.replace("0x7FC0,0x7FFF", "0x7FC0,0xFE00"))
    found = data("check", str(path))
    assert (found["nan"], found["different"]) == (1, 0)
    assert data("check", str(path), "--nan-bits", code=1)["different"] == 1


def test_vectors_of_wide_sources_are_many_and_the_same_again(tmp_path):
    words = [
        "vectors",
        "--from",
        "float",
        "--to",
        "hif8",
        "--api",
        "ascendc",
        "--mode",
        "hybrid",
        "--count",
        "2000",
    ]
    text = out(*words, "--seed", "3")
    assert text == out(*words, "--seed", "3")
    assert text != out(*words, "--seed", "4")
    inputs = [int(row["input"], 16) for row in rows(text[text.index("\ninput,") + 1 :])]
    assert len(inputs) == len(set(inputs)) > 1900
    path = tmp_path / "v.csv"
    path.write_text(text)
    assert " 0 different" in out("check", str(path))


def test_vectors_hit_the_breakpoints():
    text = out("vectors", "--from", "float", "--to", "e4m3", "--mode", "rint")
    assert "0x43E80000,0x7E" in text  # 464, the tie that stays at 448
    assert "0x43E80001,0x7F" in text


CHECK_ERRORS = {
    "absent": (None, "it cannot be read"),
    "no comments": ("input,code\n0x0,0x0\n", "0 comment lines '# cast'"),
    "no json": ("# cast half\ninput,code\n", "a line '# cast' that says half"),
}


@pytest.mark.parametrize("case", CHECK_ERRORS)
def test_check_refuses(case, tmp_path):
    text, said = CHECK_ERRORS[case]
    path = tmp_path / "v.csv"
    if text is not None:
        path.write_text(text)
    result = run("check", str(path), code=2)
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def test_check_names_the_row_it_cannot_read(tmp_path):
    path = tmp_path / "v.csv"
    head = out("vectors", "--from", "half", "--to", "int8", "--count", "2").split("input,")[0]
    path.write_text(f"{head}input,code,measured\n0x0000,0x00,0x00\n0x3C00,0x01,0x100\n")
    assert run("check", str(path), code=2).stderr == (
        "error: Given: row 2, column measured: 0x100. Allowed: codes of int8 from 0 to 0xFF, as "
        "0x..., 0b... or decimal. Correct the row, or leave it out.\n"
    )


POLICY = """
target: {soc: 950PR, api: ascendc}
rules:
  - {path: head, ops: matmul}
  - path: ".*"
    ops: matmul
    input: {dtype: hif8, mode: ROUND}
    weight: {dtype: int8, mode: RINT, via: fp16}
"""


def test_lint(tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY)
    found = data("lint", str(path))
    assert [row.get("role") for row in found] == [None, "input", "weight"]
    assert found[1]["runs"] == "fp32 -> hif8: ROUND, clamp to MAX, NaN becomes 0"
    assert "2 rules, every cast legal on 950PR ascendc memory" in out("lint", str(path))
    path.write_text(POLICY.replace("ROUND", "FLOOR"))
    result = run("lint", str(path), code=2)
    assert "rule 2, input: mode FLOOR for fp32 -> hif8" in result.stderr
    assert result.stderr.count("\n") == 1
