"""Every cell of every derivation table, against the pages as they are printed."""

import itertools

import pytest

from npusim.dtypes import dtype
from npusim.promotion import PromotionError, derivation_table, result_type
from tests.promotion.pages import CODE, PAIRS, TYPES, UNSIGNED, chinese, printed

PRINTED = {"documented": printed("english_page"), "implementation": CODE, "zh": chinese()}


def got(lhs, rhs, rules):
    try:
        return result_type(lhs, rhs, rules=rules)
    except PromotionError:
        return None


@pytest.mark.parametrize("rules", PRINTED)
def test_every_cell(rules):
    table = PRINTED[rules]
    assert table.keys() == set(PAIRS)
    wrong = {
        (a, b): (want, got(a, b, rules))
        for (a, b), want in table.items()
        if got(a, b, rules) is not (want and dtype(want))
    }
    assert not wrong


@pytest.mark.parametrize("rules", PRINTED)
def test_printed_rows_are_the_cells(rules):
    cells = derivation_table(rules)
    assert [(c.lhs, c.rhs) for c in cells] == [(dtype(a), dtype(b)) for a, b in PAIRS]
    assert all(c.source and c.grade in ("documented", "implementation", "assumed") for c in cells)


def test_what_the_tables_disagree_about():
    def differing(first, second):
        return {p for p in PAIRS if PRINTED[first][p] != PRINTED[second][p]}

    assert differing("documented", "zh") == {
        *itertools.permutations(("f64", "c32")),
        *itertools.permutations(("f64", "c64")),
        ("bf16", "f16"),
    }
    assert differing("documented", "implementation") == {
        *itertools.permutations(("bf16", "c32")),
        *itertools.product(UNSIGNED, ("c64", "c128")),
    }
    assert len(differing("implementation", "zh")) == 13


def test_examples_of_the_pages():
    for rules in PRINTED:
        assert result_type("float16", "float32", rules=rules) is dtype("float32")
        assert result_type("float32", "bool", rules=rules) is dtype("float32")


def test_only_the_diagonal_of_bool_is_assumed_in_the_chinese_table():
    assumed = [c for c in derivation_table("zh") if c.grade == "assumed"]
    assert [(str(c.lhs), str(c.rhs)) for c in assumed] == [("bool", "bool")]
    assert not [c for c in derivation_table() if c.grade != "documented"]


def test_types_outside_the_tables_meet_only_themselves():
    others = ["hif8", "fp8_e4m3", "fp8_e5m2", "fp8_e8m0", "fp4_e2m1", "fp4_e1m2", "int4", "hf32"]
    for rules, other in itertools.product(PRINTED, others):
        assert got(other, other, rules) is dtype(other)
        for name in (*TYPES, *others):
            if name != other:
                assert got(name, other, rules) is None
                assert got(other, name, rules) is None
