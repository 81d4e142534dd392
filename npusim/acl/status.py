"""How failures leave an acl call: always as an AclnnError, with the status it would return."""

import contextlib
from collections.abc import Iterator
from typing import Any, ClassVar, TypeVar

from npusim._errors import AclnnError, NpusimError, X64RequiredError, message

ACL_SUCCESS = 0
ACLNN_SUCCESS = 0
PARAM_NULLPTR = 161001
PARAM_INVALID = 161002
INNER_NULLPTR = 561103


class AclnnX64RequiredError(AclnnError, X64RequiredError):
    """A 64-bit tensor while JAX runs with 64-bit types switched off."""

    code = INNER_NULLPTR


class Handle:
    """What a create call returns and a destroy call ends.

    Attributes:
        creator: the call that makes one.
        destroyed: whether it was destroyed; using it then is an error.
    """

    creator: ClassVar[str]
    destroyed: bool = False


_H = TypeVar("_H", bound=Handle)


def invalid(given: str, allowed: str, remedy: str) -> AclnnError:
    """The error of a wrong parameter."""
    return AclnnError(message(given, allowed, remedy), code=PARAM_INVALID)


def alive(x: Any, kind: type[_H], what: str) -> _H:
    """Return ``x`` if it is a live handle of ``kind``.

    Raises:
        AclnnError: 161001 for None or a destroyed handle, 161002 for anything else.
    """
    name = kind.__name__
    if x is None:
        raise AclnnError(
            message(f"{what} is None", f"an {name}", f"Pass one made by {kind.creator}."),
            code=PARAM_NULLPTR,
        )
    if not isinstance(x, kind):
        raise invalid(
            f"{what} of type {type(x).__name__}", f"an {name}", f"Make one with {kind.creator}."
        )
    if x.destroyed:
        raise AclnnError(
            message(
                f"{what}, an {name} that was destroyed",
                f"a live {name}",
                f"Make a new one with {kind.creator}.",
            ),
            code=PARAM_NULLPTR,
        )
    return x


@contextlib.contextmanager
def reported(code: int = PARAM_INVALID) -> Iterator[None]:
    """Let every error of npusim leave as an AclnnError, the original being its cause.

    The text stays. A missing jax_enable_x64 is no wrong parameter but a tensor that cannot be made,
    so it has the status of a failure inside.
    """
    try:
        yield
    except AclnnError:
        raise
    except X64RequiredError as error:
        raise AclnnX64RequiredError(str(error)) from error
    except NpusimError as error:
        raise AclnnError(str(error), code=code) from error
