"""Where the derivation, scalar and conversion tables, jnp and torch disagree, and why."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Literal

from npusim._errors import UnknownNameError, message
from npusim.dtypes import DataType, dtype
from npusim.promotion import tables

Kind = Literal["derivation", "conversion", "scalar"]
KINDS: tuple[str, ...] = ("derivation", "conversion", "scalar")

ABSENT = ""
"""The source does not have one of the types, so it cannot disagree."""


@dataclasses.dataclass(frozen=True)
class Difference:
    """One pair on which the sources disagree.

    Attributes:
        kind: derivation (tensor with tensor), scalar (tensor with scalar), conversion.
        lhs: left operand, tensor, or result type.
        rhs: right operand, scalar, or output type.
        results: what each source gives, by its name: a dtype, ``-`` for refused, ``yes`` or ``no``
            for a conversion, empty where the source does not have one of the types.
        reason: why they differ.
        grade: how well the default answer (the first source) is known.
    """

    kind: str
    lhs: DataType
    rhs: DataType
    results: Mapping[str, str]
    reason: str
    grade: str


_UNSIGNED = ("uint16", "uint32", "uint64")


def _wide_unsigned(lhs: str, rhs: str) -> bool:
    return lhs in _UNSIGNED or rhs in _UNSIGNED


_WITH_OUT = ("add", "mul", "pow")

_Test = Callable[[str, str, Mapping[str, str]], bool]

# Each reason with the cells it explains; a cell may have several.
_REASONS: dict[str, tuple[tuple[_Test, str], ...]] = {
    "derivation": (
        (
            lambda a, b, r: _wide_unsigned(a, b) and (r["jnp"] != "-" or r["torch"] != "-"),
            (
                "aclnn combines uint16, uint32 and uint64 with themselves only; jnp widens them "
                "with any partner, torch beside a float"
            ),
        ),
        (
            lambda a, b, r: _wide_unsigned(a, b) and r["implementation"] != "-",
            "one-sided leftover of the operator library: its mirror cell is refused",
        ),
        (
            lambda a, b, r: {a, b} == {"bf16", "complex32"},
            (
                "both pages print complex32; the code and torch give complex64, the only answer "
                "that keeps bf16's range: probably an error of the pages"
            ),
        ),
        (
            lambda a, b, r: "fp64" in (a, b) and r["zh"] == "complex64",
            (
                "the Chinese edition prints complex64 where all others give complex128: an error "
                "of that page"
            ),
        ),
        (
            lambda a, b, r: {a, b} == {"bf16", "fp16"},
            "the Chinese edition prints fp64 in this one of the two mirror cells: a misprint",
        ),
    ),
    "conversion": (
        (
            lambda a, b, r: b.startswith("complex") and not a.startswith("complex"),
            (
                "the page converts nothing between complex and non-complex; the code and torch let "
                "a real or bool result become complex"
            ),
        ),
    ),
    "scalar": (
        (
            lambda a, b, r: "complex32" in (r["category"], r["page"]),
            "950's operators compute complex32 results in complex64",
        ),
        (
            lambda a, b, r: r["page"] != r["category"],
            "the vendor's scalar table prints complex128 for an fp64 scalar; the code does not",
        ),
        (
            lambda a, b, r: _wide_unsigned(a, b) and r["torch"] != r["category"],
            (
                "aclnn derives nothing for uint16, uint32, uint64 with a float, or a bool tensor; "
                "torch does"
            ),
        ),
        (
            lambda a, b, r: a == "bool" and r["torch"] == "int64" != r["category"],
            "torch counts a Python int as 64 bits wide; aclnn keeps the declared width",
        ),
        (
            lambda a, b, r: r["a2a3_add"] != r["category"] or r["a2a3_eq"] != r["category"],
            "on A2/A3 the declared width of the scalar counts, on 950 only its category",
        ),
        (
            lambda a, b, r: (r["a2a3_mul"], r["a2a3_add"]) in (("fp32", "bf16"), ("fp32", "fp64")),
            "Muls of A2/A3 computes bf16, and bool with an fp64 scalar, in fp32",
        ),
        (
            lambda a, b, r: r["a2a3_div"] not in (r["category"], r["a2a3_add"]),
            "Divs of A2/A3 keeps a float or complex tensor's type and divides integers in fp32",
        ),
        (
            lambda a, b, r: r["a2a3_pow"] not in (r["category"], r["a2a3_add"]),
            "Pow of A2/A3 looks at the scalar's category before the tensor's",
        ),
        (
            lambda a, b, r: any(r[f"a2a3_{op}_out_fp32"] != r[f"a2a3_{op}"] for op in _WITH_OUT),
            "A2/A3 computes with an fp64 scalar in fp32 where the output is fp32",
        ),
    ),
}


def _text(result: DataType | bool | None) -> str:
    return tables.REFUSED if result is None else str(result)


def _jnp(lhs: DataType, rhs: DataType) -> str:
    import jax
    import jax.numpy as jnp

    if lhs.jax_dtype is None or rhs.jax_dtype is None:
        return ABSENT
    # A test suite may run under strict promotion; the question here is what the default does.
    with jax.numpy_dtype_promotion("standard"):
        return str(dtype(jnp.promote_types(lhs.jax_dtype, rhs.jax_dtype)))


def _derivations() -> list[tuple[DataType, DataType, dict[str, str], str]]:
    names = (*tables.RULES, "torch")
    rows: list[tuple[DataType, DataType, dict[str, str], str]] = []
    for pair, cell in tables.matrix("documented").items():
        results = {name: _text(tables.matrix(name)[pair].result) for name in names}
        rows.append((*pair, {**results, "jnp": _jnp(*pair)}, cell.grade))
    return rows


def _conversions() -> list[tuple[DataType, DataType, dict[str, str], str]]:
    word = {"1": "yes", "0": "no", "": ABSENT}
    columns = ("documented", "implementation", "torch")
    return [
        (src, dst, {k: word[row[k]] for k in columns}, row["documented_grade"])
        for (src, dst), row in tables.conversions().items()
        if row["documented"]
    ]


def _scalars() -> list[tuple[DataType, DataType, dict[str, str], str]]:
    return [
        (*pair, {name: _text(result) for name, result in row.items()}, "implementation")
        for pair, row in tables.scalars().items()
    ]


_ROWS = {"derivation": _derivations, "conversion": _conversions, "scalar": _scalars}

# Columns of scalar.csv that answer another question than the tensor-with-scalar rule itself.
_OTHER_QUESTIONS = ("rank0_950",)


def diff(kind: str | None = None) -> tuple[Difference, ...]:
    """Return every ordered pair on which the sources disagree, with the reason.

    Derivation: the three tables, torch (recorded) and jnp (asked now). Conversion: page, code and
    torch. Scalar: the 950 rule, A2/A3's operators, the vendor's scalar table and torch.

    Args:
        kind: one of derivation, conversion, scalar; all three by default.

    Raises:
        UnknownNameError: an unknown kind.

    Source: the tables' own; torch was asked in the version that the data files name.

    Example:
        >>> rows = [d for d in diff("derivation") if str(d.lhs) == "bf16" and str(d.rhs) == "fp16"]
        >>> rows[0].results["documented"], rows[0].results["zh"]
        ('fp32', 'fp64')
    """
    if kind is not None and kind not in KINDS:
        raise UnknownNameError(
            message(f"kind {kind!r}", ", ".join(KINDS), "Pass one of these, or None for all.")
        )
    found: list[Difference] = []
    for name in KINDS if kind is None else (kind,):
        for lhs, rhs, results, grade in _ROWS[name]():
            said = {v for k, v in results.items() if v != ABSENT and k not in _OTHER_QUESTIONS}
            if len(said) < 2:
                continue
            a, b = str(lhs), str(rhs)
            reasons = [text for test, text in _REASONS[name] if test(a, b, results)]
            found.append(Difference(name, lhs, rhs, results, "; ".join(reasons), grade))
    return tuple(found)


def assumed() -> tuple[tables.Cell, ...]:
    """Return every cell that no source states, so that the answer is npusim's own guess.

    Source: none, by definition; the cell names the table that is silent.

    Example:
        >>> [str(cell.lhs) for cell in assumed() if str(cell.rhs) == "int8"]
        ['bool', 'complex32']
    """
    cells = [c for rules in tables.RULES for c in tables.derivation_table(rules)]
    cells += tables.conversion_table("documented")
    return tuple(c for c in cells if c.grade == "assumed")
