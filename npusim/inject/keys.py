"""What a rule is matched against, and the keys that are neither path, op kind nor direction."""

import dataclasses
import re
from typing import Any

from npusim._errors import NpusimError, PolicyError, message
from npusim.dtypes import dtype as dtype_of
from npusim.inject.paths import Call

KEYS = ("source", "dtypes", "result_dtypes", "function")
"""What a rule may ask of an operation besides path, ops and direction."""


@dataclasses.dataclass(frozen=True)
class Operation:
    """What rules are matched against.

    Attributes:
        path: normalised module path.
        primitive: its name.
        direction: ``forward`` or ``backward``.
        source: the user's line that made it, ``file:line:column (function)``.
        dtypes: JAX's names of the operands' dtypes.
        result_dtypes: those of the results.
        functions: the functions whose calls made it, outermost first.
    """

    path: str
    primitive: str
    direction: str
    source: str = ""
    dtypes: frozenset[str] = frozenset()
    result_dtypes: frozenset[str] = frozenset()
    functions: tuple[Call, ...] = ()


def check_pattern(key: str, given: Any, searched: str) -> None:
    """Refuse what is no regular expression."""
    try:
        re.compile(given)
    except (re.error, TypeError) as error:
        raise PolicyError(
            message(
                f"{key} {given!r}, which is no regular expression ({error})",
                f"a regular expression that is searched in {searched}",
                "Correct it; a backslash before a special character takes it literally.",
            )
        ) from error


def named_dtypes(key: str, given: Any) -> str | tuple[str, ...] | None:
    """The dtypes of a key by their short names, each one that an array of JAX can have."""
    if given is None:
        return None
    listed = tuple(given) if isinstance(given, tuple | list) else (given,)
    if not listed:
        raise PolicyError(
            message(f"{key}={given!r}", "a dtype or a list of them", "Name one, or leave it out.")
        )
    found: list[str] = []
    for one in listed:
        try:
            dtype = dtype_of(one)
        except NpusimError as error:
            text = str(error).removeprefix("Given: ")
            raise type(error)(f"Given: {key}: {text}") from error
        if dtype.jax_dtype is None or dtype_of(dtype.jax_dtype) is not dtype:
            raise PolicyError(
                message(
                    f"{key}={given!r}: no array in JAX has the dtype {dtype.short}",
                    "dtypes of arrays, such as fp32, bf16, fp16, int32",
                    "Name the dtype that the traced function computes in.",
                )
            )
        found.append(dtype.short)
    names = tuple(dict.fromkeys(found))
    return names[0] if len(names) == 1 else names


def jax_names(given: str | tuple[str, ...] | None) -> frozenset[str] | None:
    """Return JAX's names of the dtypes of a key, None where it was not given.

    Example:
        >>> jax_names("bf16")
        frozenset({'bfloat16'})
    """
    if given is None:
        return None
    return frozenset(str(dtype_of(n).jax_dtype) for n in ([given] if type(given) is str else given))
