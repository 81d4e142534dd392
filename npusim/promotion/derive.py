"""`result_type`: the type aclnn computes in for operands of given types."""

import functools
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from npusim._errors import InputError, PromotionError, message
from npusim.dtypes import DTYPES, DataType, dtype
from npusim.modes import SoC, Target
from npusim.promotion import tables
from npusim.promotion.scalars import Scalar, combine, declared, rank0

_TARGET = Target(api="aclnn")
_Item = TypeVar("_Item", bound=Hashable)


class _Tensor(NamedTuple):
    dtype: DataType
    rank: int | None


def derive(lhs: DataType, rhs: DataType, rules: str) -> DataType | None:
    """Return the cell of table ``rules``; equal types give themselves, unlisted ones nothing."""
    if lhs is rhs:
        return lhs
    cell = tables.matrix(rules).get((lhs, rhs))
    result = None if cell is None else cell.result
    assert not isinstance(result, bool)
    return result


def partners(row: DataType, rules: str) -> tuple[DataType, ...]:
    """Return the types that ``row``, as the left operand, can be combined with."""
    return tuple(other for other in DTYPES if derive(row, other, rules) is not None)


def _concrete(x: Any) -> Any:
    """The number in ``x``, None if it is traced."""
    try:
        return x.item()
    except (TypeError, AttributeError):  # JAX's concretization error is a TypeError
        return None


def _operand(x: Any) -> _Tensor | Scalar:
    if isinstance(x, Scalar):
        return x
    if isinstance(x, DataType | str | np.dtype | type):
        return _Tensor(dtype(x), None)
    if hasattr(x, "dtype"):
        row = dtype(x.dtype)
        shape = getattr(x, "shape", None)
        if getattr(x, "weak_type", False) and shape == ():
            # A Python number that JAX has wrapped: its width says nothing, so the eager and the
            # traced call must agree on the declared type.
            return Scalar(_concrete(x), declared(row.kind))
        return _Tensor(row, None if shape is None else len(shape))
    if isinstance(x, bool | int | float | complex):
        return Scalar(x)
    raise InputError(
        message(
            f"operand {x!r} of type {type(x).__name__}",
            "a dtype or its name, an array, an NpuArray, a Python number",
            "Pass one of these; wrap a list in an array.",
        )
    )


def _unrelated(lhs: DataType, rhs: DataType, rules: str) -> PromotionError:
    known = {row: partners(row, rules) for row in (lhs, rhs)}
    allowed = "; ".join(f"{row} with {', '.join(map(str, other))}" for row, other in known.items())
    others = [
        f"rules={name!r} gives {result}"
        for name in tables.RULES
        if name != rules and (result := derive(lhs, rhs, name)) is not None
    ]
    remedy = f" ({', '.join(others)})" if others else ""
    return PromotionError(
        message(
            f"{lhs} with {rhs}, which no type can be derived for (rules={rules!r})",
            allowed,
            f"Cast one of them first with npusim.cast{remedy}.",
        ),
        operands=(lhs, rhs),
        partners=known,
    )


def _no_scalar(
    tensor: DataType, scalar: DataType, step: Callable[[Any, Scalar], DataType | None]
) -> PromotionError:
    fits = tuple(row for row in DTYPES if step(tensor, Scalar(None, row)) is not None)
    return PromotionError(
        message(
            f"{tensor} tensor with {scalar} scalar, which no type can be derived for",
            f"{tensor} with scalars of {', '.join(map(str, fits)) or 'no type'}",
            "Cast the tensor first with npusim.cast, or declare the scalar with another type.",
        ),
        operands=(tensor, scalar),
        partners={tensor: fits},
    )


def _outcomes(
    start: DataType | None, items: tuple[_Item, ...], step: Callable[[Any, _Item], DataType | None]
) -> dict[DataType | None, tuple[_Item, ...]]:
    """Every result that some order of folding ``items`` into ``start`` has, with such an order."""

    @functools.cache
    def reach(rest: frozenset[_Item]) -> dict[DataType | None, tuple[_Item, ...]]:
        if not rest:
            return {start: ()}
        found: dict[DataType | None, tuple[_Item, ...]] = {}
        for last in sorted(rest, key=items.index):
            for before, order in reach(rest - {last}).items():
                dead = before is None and order
                result = None if dead else step(before, last)
                found.setdefault(result, (*order, last))
        return found

    return reach(frozenset(items))


def _refuse_orders(outcomes: dict[DataType | None, tuple[Any, ...]], rules: str) -> None:
    if len(outcomes) < 2:
        return
    names = {
        " + ".join(str(getattr(x, "dtype", x)) for x in order): result
        for result, order in outcomes.items()
    }
    told = ", ".join(
        f"{order} = {'nothing' if result is None else result}" for order, result in names.items()
    )
    some = tuple(getattr(x, "dtype", x) for x in next(iter(outcomes.values())))
    raise PromotionError(
        message(
            f"{len(some)} types whose derivation depends on the order (rules={rules!r}): {told}",
            "operands that give one type in every order",
            "Combine two of them first with npusim.cast, in the order that the operators run in.",
        ),
        operands=some,
        partners={row: partners(row, rules) for row in some},
    )


def _fold_tensors(rows: tuple[DataType, ...], rules: str) -> DataType:
    result = rows[0]
    for row in rows[1:]:
        together = derive(result, row, rules)
        if together is None:
            raise _unrelated(result, row, rules)
        result = together
    if len(rows) > 2:

        def step(before: DataType | None, row: DataType) -> DataType | None:
            return row if before is None else derive(before, row, rules)

        _refuse_orders(_outcomes(None, tuple(dict.fromkeys(rows)), step), rules)
    return result


def _fold_scalars(
    start: DataType,
    scalars: tuple[Scalar, ...],
    op: tables.Operator | None,
    target: Target,
    out: DataType | None,
    rules: str,
) -> DataType:
    def step(before: DataType, scalar: Scalar) -> DataType | None:
        return combine(before, scalar, op, target, out)

    result = start
    for scalar in scalars:
        together = step(result, scalar)
        if together is None:
            raise _no_scalar(result, scalar.dtype, step)
        result = together
    if len(scalars) > 1:
        _refuse_orders(_outcomes(start, tuple(dict.fromkeys(scalars)), step), rules)
    return result


def result_type(
    *operands: Any,
    rules: str = "documented",
    op: str | None = None,
    target: Target = _TARGET,
    out: Any = None,
) -> DataType:
    """Return the type that aclnn derives for the operands and computes in.

    Operands are data types or their names, arrays, NpuArrays, `Scalar`s and Python numbers. Tensors
    are folded left by the table ``rules``; numbers then follow the scalar rules of the chip:

    * 950: a scalar counts by its category (bool, int, float, complex) only. Add, Sub, Mul, and a
      call without ``op``, compute in fp32 if an fp16 or bf16 tensor meets a scalar that its type
      does not hold to 2^-23 (`scalar_widens`). A traced scalar has no value, so it is not checked.
    * A2/A3 with ``op``: the operator's own rule, in which the declared width of the scalar counts.
      Python numbers are declared as torch_npu does (fp64, int64); ``out``, the output's type,
      counts where it is fp32. Without ``op`` the 950 rule answers, without the value check
      (assumed).

    The scalar rules are the operator library's, whatever ``rules`` says. The maximum, minimum and
    the comparisons of 950 count a rank-0 tensor beside a ranked one as a scalar; elsewhere, and for
    operands without a shape, rank means nothing.

    Special values: none; only the value check looks at a number.

    Raises:
        PromotionError: no type can be derived, or with more than two operands the order matters.
        UnknownNameError: an unknown type, operator or table.
        InputError: an operand of another kind, or no operand with a type.

    Source: aclnn derivation page, English edition, table 1 (``documented``) and Chinese edition
    (``zh``); hicann/opbase data_type_utils.h (``implementation``); hicann/ops-math
    math/*/op_api/aclnn_*.cpp for scalars.

    Example:
        >>> result_type("f16", "f32"), result_type("f32", "bool"), result_type("int8", "uint8")
        (npusim.DT_FP32, npusim.DT_FP32, npusim.DT_INT16)
        >>> result_type("bf16", "complex32"), result_type("bf16", "c32", rules="implementation")
        (npusim.DT_COMPLEX32, npusim.DT_COMPLEX64)
        >>> result_type("f16", 1.5), result_type("f16", 1.001), result_type("int8", 1.5)
        (npusim.DT_FP16, npusim.DT_FP32, npusim.DT_FP32)
        >>> result_type("int8", 1.5, op="add", target=Target("A2A3", "aclnn"))
        npusim.DT_DOUBLE
    """
    tables.check_rules(rules)
    row = None if op is None else tables.operator(op)
    out = None if out is None else dtype(out)
    known = [_operand(x) for x in operands]
    tensors = [x for x in known if isinstance(x, _Tensor)]
    if not tensors:
        raise InputError(
            message(
                f"{len(known)} operands, none with a data type of its own",
                "at least one dtype, array or NpuArray",
                "An aclnn operator takes at least one tensor: wrap a number in an array.",
            )
        )
    ranks = sorted(-1 if x.rank is None else x.rank for x in tensors)
    mixed = len(ranks) == 2 and ranks[0] == 0 and ranks[1] > 0
    if mixed and row is not None and row.rank0 and target.soc is SoC.ASCEND_950PR:
        ranked, other = sorted(tensors, key=lambda x: -(x.rank or 0))
        result = rank0(ranked.dtype, other.dtype)
        if result is None and ranked.dtype is other.dtype:
            result = ranked.dtype
        if result is None:
            raise _unrelated(ranked.dtype, other.dtype, rules)
    else:
        result = _fold_tensors(tuple(x.dtype for x in tensors), rules)
    scalars = tuple(x for x in known if isinstance(x, Scalar))
    return _fold_scalars(result, scalars, row, target, out, rules)
