"""What `diff` lists, and that nothing in it goes unexplained."""

import ast
from pathlib import Path

import pytest

import npusim.promotion
from npusim._errors import UnknownNameError
from npusim.promotion import assumed, diff
from tests.promotion.pages import PAIRS


def test_every_difference_has_a_reason_and_a_grade():
    rows = diff()
    assert {row.kind for row in rows} == {"derivation", "conversion", "scalar"}
    assert [row for row in rows if not row.reason] == []
    assert all(row.grade in ("documented", "implementation", "assumed") for row in rows)


@pytest.mark.parametrize(
    ("source", "count"), [("implementation", 8), ("zh", 5), ("jnp", 78), ("torch", 26)]
)
def test_how_many_cells_differ_from_the_default(source, count):
    rows = diff("derivation")
    differing = [r for r in rows if r.results[source] not in ("", r.results["documented"])]
    assert len(differing) == count


def test_jnp_agrees_on_the_twelve_common_types():
    for row in diff("derivation"):
        if row.results["jnp"] and row.results["jnp"] != row.results["documented"]:
            assert {"uint16", "uint32", "uint64"} & {str(row.lhs), str(row.rhs)}


def test_the_reasons_name_the_culprit():
    reasons = {(str(r.lhs), str(r.rhs)): r.reason for r in diff("derivation")}
    assert "probably an error of the pages" in reasons["bf16", "complex32"]
    assert "misprint" in reasons["bf16", "fp16"]
    assert ("fp16", "bf16") not in reasons
    assert "mirror cell is refused" in reasons["uint16", "complex64"]
    assert "mirror cell" not in reasons["complex64", "uint16"]


def test_conversions_differ_in_39_pairs():
    assert len(diff("conversion")) == 39


def test_scalar_rows_cover_what_differs():
    assert 0 < len(diff("scalar")) < len(PAIRS)


def test_assumed_rows():
    cells = assumed()
    assert {c.grade for c in cells} == {"assumed"}
    assert len(cells) == 42


def test_unknown_kind():
    with pytest.raises(UnknownNameError, match="derivation, conversion, scalar"):
        diff("all")


def test_the_room_does_not_import_jax_until_it_asks_jnp():
    files = list(Path(npusim.promotion.__file__).parent.glob("*.py"))
    assert len(files) >= 6
    for file in files:
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not [name for name in names if name.split(".")[0] == "jax"]
