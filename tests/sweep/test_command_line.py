"""The main job through the command line: run, kill, resume, interrupt, report."""

import csv
import io
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.sweep.tiny import config

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-W", "error", "-m", "npusim.cli.app"]
ENVIRONMENT = os.environ | {"COLUMNS": "80", "PYTHONPATH": str(ROOT)}

DIGITS = """
name: digits-small
task: digits_mlp
seeds: [0, 1]
policy:
  rules:
    - {path: head, ops: matmul}
    - {path: ".*", ops: matmul,
       input: &c {dtype: $dtype, mode: $mode, satmode: $satmode, scale: amax}, weight: *c}
axes: {dtype: [fp4_e2m1, int8, hif8], mode: [RINT, ODD], satmode: [ON, OFF]}
baseline: {dtype: fp32}
task_args: {steps: 30, width: 16, learning_rate: 1e-2}
"""


def run(*arguments, cwd):
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        cwd=cwd,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=300,
    )


# A job in the background ignores Ctrl-C, and what it starts inherits that: listen again.
LISTENING = [
    *COMMAND[:3],
    "-c",
    (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from npusim.cli.app import main; main()"
    ),
]


def start(*arguments, cwd):
    return subprocess.Popen(
        [*LISTENING, *map(str, arguments)],
        cwd=cwd,
        env=ENVIRONMENT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def wait_for_lines(path, count, process):
    for _ in range(15_000):
        if path.exists() and path.read_bytes().count(b"\n") >= count:
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    raise AssertionError(f"{path} never had {count} lines")


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def key(line):
    return line["kind"], json.dumps(line["axes"]), line["seed"]


def test_the_main_job_is_killed_and_goes_on(tmp_path):
    (tmp_path / "small.yaml").write_text(DIGITS)
    results = tmp_path / "results" / "digits-small" / "results.jsonl"
    process = start("sweep", "small.yaml", cwd=tmp_path)
    wait_for_lines(results, 5, process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    kept = results.read_bytes()
    whole = kept[: kept.rfind(b"\n") + 1]
    # What a process leaves that dies in the middle of a line.
    results.write_bytes(whole + b'{"kind": "trial", "axes": {"dty')

    done = run("sweep", "small.yaml", "--format", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert results.read_bytes().startswith(whole)
    assert "cut short; its trial runs again" in done.stderr
    before = whole.count(b"\n")
    assert f"going on after {before} of 26 trials, 1 program to compile" in done.stderr
    assert done.stderr.rstrip().endswith("report: results/digits-small/report.html")

    lines = lines_of(results)
    assert len(lines) == len({key(line) for line in lines}) == 26
    assert max(line["compilations"] for line in lines) <= 2
    assert {line["target"] for line in lines} == {None}
    assert {"npusim", "jax", "jaxlib", "flax", "optax", "numpy", "python"} <= lines[0][
        "versions"
    ].keys()
    _check_digits(lines)
    _check_files(results.parent, lines, json.loads(done.stdout))


def _check_digits(lines):
    """Training on the real images learned something, and fp4 is worse than the baseline."""
    means = {}
    for line in lines:
        means.setdefault((line["kind"], *line["axes"].values()), []).append(
            line["metrics"]["accuracy"]
        )
    means = {k: statistics.fmean(v) for k, v in means.items()}
    base = means["baseline", "fp32", None, None]
    assert base > 0.7
    assert means["trial", "int8", "RINT", "ON"] == pytest.approx(base, abs=0.1)
    assert means["trial", "fp4_e2m1", "RINT", "ON"] != means["trial", "fp4_e2m1", "ODD", "ON"]


def _check_files(folder, lines, printed):
    page = (folder / "report.html").read_text()
    assert page.count("data:image/svg+xml;base64,") == 2
    rows = list(csv.DictReader(io.StringIO((folder / "results.csv").read_text())))
    assert [float(r["accuracy"]) for r in rows] == [i["metrics"]["accuracy"] for i in lines]
    summary = (folder / "summary.md").read_text()
    base = [line["metrics"]["accuracy"] for line in lines if line["kind"] == "baseline"]
    assert printed[0]["accuracy_mean"] == pytest.approx(statistics.fmean(base))
    cell = f"{statistics.fmean(base):.4f} ± {statistics.stdev(base):.4f}"
    assert cell in page
    assert cell in summary


def test_ctrl_c_keeps_what_is_finished(tmp_path):
    results = tmp_path / "results" / "tiny" / "results.jsonl"
    # A user's own module beside the sweep file; so many steps that an interruption falls between
    # two trials.
    (tmp_path / "own_task.py").write_text("from tests.sweep.tiny import make\n")
    raw = config(task="own_task:make", seeds=[0], task_args={"steps": 20_000})
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(raw))
    process = start("sweep", "tiny.yaml", cwd=tmp_path)
    wait_for_lines(results, 2, process)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 130, stderr
    finished = len(lines_of(results))
    assert 2 <= finished < 9
    assert (
        f"Stopped: {finished} finished trials are kept; a partial report is in results/tiny. To go "
        "on, run the same command."
    ) in stderr
    assert "Traceback" not in stderr
    page = (results.parent / "report.html").read_text()
    assert f"Not complete: {finished} of 9 trials have finished." in page


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            {"axis": 1},
            (
                "error: Given: tiny.yaml, key 'axis': unknown key 'axis'. Allowed: name, "
                "task, seeds, policy, axes, baseline, task_args. Did you mean 'axes'? Correct or "
                "remove it.\n"
            ),
        ),
        (
            {"task": "digits"},
            (
                "error: Given: tiny.yaml, key 'task': unknown task 'digits'. "
                "Allowed: digits_mlp, digits_cnn, or an import path 'package.module:function'. "
                "Did you mean 'digits_mlp'? Correct the name.\n"
            ),
        ),
    ],
)
def test_bad_files_give_one_line_and_code_2(tmp_path, change, text):
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(config(**change)))
    done = run("sweep", "tiny.yaml", "--check", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", text)
    assert not (tmp_path / "results").exists()


def test_check_says_what_would_run(tmp_path):
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(config()))
    done = run("sweep", "tiny.yaml", "--check", cwd=tmp_path)
    assert done.stderr == "tiny.yaml is fine: 18 trials, 2 programs to compile\n"
    assert not (tmp_path / "results").exists()


def test_report_needs_the_lines_alone(tmp_path):
    from tests.reporting import records

    folder = records.write(tmp_path / "elsewhere", records.lines())
    done = run("report", "elsewhere", "--format", "csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].startswith("kind,dtype,mode,satmode,seeds,diverged,")
    assert done.stderr == "report: elsewhere/report.html\n"
    assert (folder / "report.html").exists()
    (tmp_path / "empty").mkdir()
    bad = run("report", "empty", cwd=tmp_path)
    assert bad.returncode == 2
    assert re.fullmatch(
        r"error: Given: empty/results.jsonl: No such file or directory\. .*\n", bad.stderr
    )
