"""``npusim layout``: shapes, the place of an element, and refusals on one line."""

import csv
import io
import json

import pytest
import typer
from typer.testing import CliRunner

from npusim.cli import layout, promote


def run(*args):
    app = typer.Typer()
    promote.register(app)
    layout.register(app)
    return CliRunner().invoke(app, ["layout", *args])


def records(*args):
    result = run(*args, "--format", "csv")
    assert result.exit_code == 0, result.output
    return list(csv.DictReader(io.StringIO(result.stdout)))


def test_shape_and_element():
    args = ("NCHW", "1,35,7,9", "--to", "NC1HWC0", "--dtype", "half", "--element", "0,34,6,8")
    assert records(*args)[1] == {
        "side": "to",
        "format": "NC1HWC0",
        "shape": "1,3,7,9,16",
        "elements": "3024",
        "element": "0,2,6,8,2",
    }
    shown = run(*args).stdout
    assert "1,3,7,9,16" in shown
    assert "0,2,6,8,2" in shown
    assert json.loads(run(*args, "--format", "json").stdout)[0]["shape"] == [1, 35, 7, 9]


def test_back_from_a_private_format():
    args = ("NC1HWC0", "1,3,7,9,16", "--to", "NHWC", "--shape", "1,7,9,35", "--element")
    assert records(*args, "0,2,6,8,2")[1]["element"] == "0,6,8,34"
    assert records(*args, "0,2,6,8,3")[1]["element"] == "padding"
    assert records("NC1HWC0", "1,3,7,9,16", "--to", "NHWC")[1]["shape"] == "1,7,9,48"


def test_every_format_it_converts_to():
    rows = records("NCHW", "16,3,7,7", "--dtype", "int8")
    assert {r["format"]: r["shape"] for r in rows} == {
        "NCHW": "16,3,7,7",
        "ND": "16,3,7,7",
        "NHWC": "16,7,7,3",
        "HWCN": "7,7,3,16",
        "NC1HWC0": "16,1,7,7,32",
        "NC1HWC0_C04": "16,1,7,7,4",
        "FRACTAL_Z": "49,1,16,32",
        "FRACTAL_NZ": "16,3,1,1,16,32",
    }
    assert records("NCHW", "16,3,7,7", "--c0", "8")[4]["shape"] == "16,1,7,7,8"


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("NCL", "1,2,3", "--to", "FRACTAL_Z"), "Given: conversion NCL to FRACTAL_Z."),
        (("NCHW", "1,2,3"), "Given: format NCHW for a tensor of rank 3."),
        (("NCHW", "1,x,3,4"), "Given: '1,x,3,4'."),
        (("NCHW", "1,-2,3,4"), "Given: shape (1, -2, 3, 4)."),
        (("NCWH", "1,2,3,4"), "Did you mean 'NCHW'?"),
        (("NCHW", "1,2,3,4", "--element", "0,0,0,0"), "without --to"),
        (("NCHW", "1,2,3,4", "--to", "NHWC", "--element", "0,2,0,0"), "Given: index (0, 2, 0, 0)"),
        (("FRACTAL_Z", "4,1,16,16", "--to", "NCHW"), "without the shape it came from"),
        (("NCHW", "1,2,3,4", "--to", "NC1HWC0", "--dtype", "fp9"), "Given: data type 'fp9'."),
        (("NCHW", "1,2,3,4", "--format", "yaml"), "Given: --format yaml."),
    ],
)
def test_bad_input_is_one_line_and_code_2(args, text):
    result = run(*args)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert text in result.stderr
    assert result.stderr.count("\n") == 1


def test_help_has_examples():
    assert "npusim layout NCHW 1,35,7,9 --to NC1HWC0" in run("--help").stdout
