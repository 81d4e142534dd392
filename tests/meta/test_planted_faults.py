"""Each planted fault must make the suite fail; without one the same tests pass."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import npusim
from tests.meta.faults import FAULTS

pytestmark = pytest.mark.meta
ROOT = Path(npusim.__file__).parents[1]
FAILED, PASSED = 1, 0  # exit codes of pytest; anything else is a mishap


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A copy of the package and the tests, to plant faults in."""
    copy = tmp_path_factory.mktemp("house")
    leave = shutil.ignore_patterns("__pycache__", "meta")
    for name in ("npusim", "tests"):
        shutil.copytree(ROOT / name, copy / name, ignore=leave)
    shutil.copy(ROOT / "pyproject.toml", copy)
    return copy


def run(house, *tests):
    """Exit code and output of pytest on the copy."""
    environment = {**os.environ, "PYTHONPATH": str(house), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("PYTEST_ADDOPTS", None)
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(
        command, cwd=house, env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout[-3000:] + done.stderr[-1000:]


def test_the_copy_is_what_runs(house):
    code = "import npusim, pathlib; print(pathlib.Path(npusim.__file__).parents[1])"
    environment = {**os.environ, "PYTHONPATH": str(house)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=house, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert Path(done.stdout.strip()).resolve() == house.resolve()


def test_without_a_fault_the_chosen_tests_pass(house):
    status, output = run(house, *sorted({fault.seen_by for fault in FAULTS.values()}))
    assert status == PASSED, output


@pytest.mark.parametrize("name", FAULTS)
def test_the_fault_is_noticed(house, name):
    fault = FAULTS[name]
    path = house / "npusim" / fault.file
    text = path.read_text("utf-8")
    assert text.count(fault.old) == 1, f"the text to change occurs {text.count(fault.old)} times"
    try:
        path.write_text(text.replace(fault.old, fault.new), "utf-8")
        status, output = run(house, fault.seen_by)
    finally:
        path.write_text(text, "utf-8")
    assert status == FAILED, output
    assert "AssertionError" in output or "assert" in output, output
