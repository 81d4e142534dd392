"""aclOpExecutor: the plan that the first call of an operator makes and the second one runs."""

from collections.abc import Callable
from typing import Any, Protocol

from npusim._errors import AclnnError, message
from npusim.acl.status import (
    ACL_SUCCESS,
    ACLNN_SUCCESS,
    INNER_NULLPTR,
    Handle,
    alive,
    invalid,
    reported,
)
from npusim.acl.tensor import aclTensor

aclrtStream = Any
"""A stream: accepted, without effect, as calls run in the order of the program."""


class aclOpExecutor(Handle):
    """A checked plan, to be run by the call that it was made for.

    It is spent when it has run, unless aclSetAclOpExecutorRepeatable was called. Tensors are read
    when it runs, not when it was made.

    Attributes:
        op: the call that runs it, e.g. ``aclnnAdd``.
        computes_in: what the operator computes in, in words.
    """

    creator = "the GetWorkspaceSize call"

    def __init__(
        self,
        op: str,
        tensors: dict[str, aclTensor],
        out: aclTensor,
        compute: Callable[..., Any] | None,
        computes_in: str,
    ):
        self.op = op
        self.computes_in = computes_in
        self._tensors = tensors
        self._out = out
        self._compute = compute
        self._repeatable = False

    def run(self) -> None:
        """Compute and write to the output; do nothing where an input was empty."""
        alive(self._out, aclTensor, "out")
        values = {
            name: alive(tensor, aclTensor, name).to_jax() for name, tensor in self._tensors.items()
        }
        if self._compute is not None:
            self._out.write(self._compute(**values))
        if not self._repeatable:
            self.destroyed = True

    def __repr__(self) -> str:
        spent = ", spent" if self.destroyed else ""
        return f"aclOpExecutor({self.op}, computes in {self.computes_in}{spent})"


def _usable(executor: Any, op: str) -> aclOpExecutor:
    maker = f"{op}GetWorkspaceSize" if op else "a GetWorkspaceSize call"
    if executor is None or (isinstance(executor, aclOpExecutor) and executor.destroyed):
        given = "executor is None" if executor is None else "an executor that was spent"
        raise AclnnError(
            message(
                given,
                "an aclOpExecutor that has not run",
                f"Call {maker} again, or make it repeatable (aclSetAclOpExecutorRepeatable).",
            ),
            code=INNER_NULLPTR,
        )
    if not isinstance(executor, aclOpExecutor):
        raise invalid(
            f"executor of type {type(executor).__name__}", "an aclOpExecutor", f"Call {maker}."
        )
    return executor


def run_executor(op: str, executor: Any) -> int:
    """Run a plan that was made for ``op``, and return 0.

    Raises:
        AclnnError: 161002: the executor of another operator; 161001: a tensor destroyed in
            between; 561103: an executor that is None or spent, or a failure inside.
    """
    plan = _usable(executor, op)
    if plan.op != op:
        raise invalid(
            f"an executor of {plan.op} for {op}", f"an executor of {op}", f"Call {plan.op}."
        )
    with reported(INNER_NULLPTR):
        plan.run()
    return ACLNN_SUCCESS


class SecondCall(Protocol):
    """The second call of an operator."""

    def __call__(
        self, workspace: Any, workspaceSize: int, executor: aclOpExecutor, stream: aclrtStream
    ) -> int:
        """Run the executor and return 0."""
        ...


_DOC = """Run the executor that {op}GetWorkspaceSize made, and return 0.

The output is written in place; the executor is spent.

Args:
    workspace: device memory for intermediates; npusim needs none, so None will do.
    workspaceSize: what the first call returned.
    executor: likewise.
    stream: accepted, without effect.

Raises:
    AclnnError: 161001: a tensor was destroyed in between; 161002: the executor of another call;
        561103: an executor that is None or spent, or a failure inside.

Source: the operator's page of the CANN manual.
"""


def second_call(op: str) -> SecondCall:
    """The second call of operator ``op``, under its own name."""

    def call(
        workspace: Any, workspaceSize: int, executor: aclOpExecutor, stream: aclrtStream
    ) -> int:
        del workspace, workspaceSize, stream
        return run_executor(op, executor)

    call.__name__ = call.__qualname__ = op
    call.__doc__ = _DOC.format(op=op)
    return call


def aclSetAclOpExecutorRepeatable(executor: aclOpExecutor) -> int:
    """Let an executor run more than once, and return 0; aclDestroyAclOpExecutor ends it.

    Raises:
        AclnnError: 561103: None or spent; 161002: no executor.

    Source: aclSetAclOpExecutorRepeatable page of the CANN manual.
    """
    _usable(executor, "")._repeatable = True
    return ACL_SUCCESS


def aclDestroyAclOpExecutor(executor: aclOpExecutor) -> int:
    """End an executor, and return 0.

    Raises:
        AclnnError: 561103: None or spent; 161002: no executor.

    Source: aclDestroyAclOpExecutor page of the CANN manual.
    """
    _usable(executor, "").destroyed = True
    return ACL_SUCCESS
