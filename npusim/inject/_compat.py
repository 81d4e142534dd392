"""The one file that touches names JAX does not promise: jaxpr types, name stacks, call layouts.

Everything version-dependent is behind a function here. Written for jax 0.10.2; where newer
releases are known to differ (0.12: `scan` layouts as trees, one jaxpr class), both are handled.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
from jax import lax
from jax.extend import core as jex_core
from jax.extend import source_info_util
from jax.extend.core import primitives as jex_primitives

Jaxpr = Any  # an open jaxpr: constvars, invars, outvars, eqns
Closed = Any  # a jaxpr with its constants (from 0.12 on the same class)
Equation = Any
Atom = Any

MATMUL = "dot_general"
CONV = "conv_general_dilated"
RAGGED = "ragged_dot_general"
CONVERT = "convert_element_type"
SCAN, WHILE, COND, JIT, REMAT = "scan", "while", "cond", "jit", "remat2"
CUSTOM_JVP, CUSTOM_VJP = "custom_jvp_call", "custom_vjp_call"

_SPELLINGS = {"pjit": JIT, "checkpoint": REMAT, "remat": REMAT, "custom_vjp_call_jaxpr": CUSTOM_VJP}
INLINED = frozenset({"closed_call", "core_closed_call", "call", "core_call", "eval_jaxpr"})
OPAQUE = frozenset(
    {
        "pallas_call",
        "shard_map",
        "custom_call",
        "ffi_call",
        "tpu_custom_call",
        "triton_kernel_call",
        "mosaic_gpu_call",
        "run_state",
        "xla_metadata_call",
        "custom_partitioning",
        "linear_solve",
        "pure_callback",
        "io_callback",
        "custom_linear_solve",
    }
)
# Their jaxpr says how two elements combine: it is part of the operation, not a body of sites.
COMBINERS = frozenset(
    {
        "reduce",
        "reduce_window",
        "select_and_scatter",
        "scatter",
        "scatter-add",
        "scatter-mul",
        "scatter-min",
        "scatter-max",
        "scatter-sub",
        "scatter_add",
        "scatter_mul",
        "scatter_min",
        "scatter_max",
        "sort",
        "custom_lin",
    }
)


def name_of(eqn: Equation) -> str:
    """The primitive's name, in one spelling across releases."""
    name = str(eqn.primitive.name)
    return _SPELLINGS.get(name, name)


def primitive_names() -> set[str]:
    """Names of all primitives JAX exports: what a rule may key on."""
    found = {getattr(p, "name", None) for p in vars(jex_primitives).values()}
    return {n for n in found if isinstance(n, str)}


def trace(fn: Callable[..., Any], *args: Any) -> tuple[Closed, Any]:
    """Return the closed jaxpr of ``fn`` at arrays, shapes or avals, and the pytree of its outputs.

    The name stack starts empty, so that paths in the jaxpr are relative to it.
    """
    with source_info_util.reset_name_stack():
        closed, shape = jax.make_jaxpr(fn, return_shape=True)(*args)
    return closed, shape


def is_literal(atom: Atom) -> bool:
    """Whether an operand is a constant written into the equation."""
    return isinstance(atom, jex_core.Literal)


def is_dropped(var: Any) -> bool:
    """Whether nobody reads this output."""
    return isinstance(var, jex_core.DropVar)


def opened(jaxpr: Any) -> Jaxpr:
    """The jaxpr without its constants, whichever form was given."""
    return getattr(jaxpr, "jaxpr", jaxpr)


def constants(jaxpr: Any) -> Sequence[Any]:
    """The constants that go with a jaxpr; an open one has none."""
    return tuple(getattr(jaxpr, "consts", ()) or ())


def bodies(eqn: Equation) -> list[Any]:
    """The jaxprs among an equation's parameters, in order."""
    found = []
    for param in eqn.params.values():
        for item in param if isinstance(param, tuple | list) else (param,):
            if hasattr(opened(item), "eqns"):
                found.append(item)
    return found


def stack_elements(eqn: Equation) -> list[tuple[str, bool]]:
    """The name stack of an equation as (name, whether it is a transform such as jvp)."""
    stack = eqn.source_info.name_stack.stack
    return [(item.name, type(item).__name__ == "Transform") for item in stack]


def source_line(eqn: Equation) -> str:
    """File, line and function of the user's code that made the equation."""
    return source_info_util.summarize(eqn.source_info)


def manual_axes() -> tuple[str, ...]:
    """Names of the mesh axes whose devices the code being traced runs on, each on its own part."""
    return tuple(jax.sharding.get_abstract_mesh().manual_axes)


def differs_over(aval: Any) -> frozenset[str]:
    """The manual mesh axes over which a value may differ, as its type says."""
    kind = getattr(aval, "manual_axis_type", None)
    return frozenset(getattr(aval, "vma", ()) if kind is None else kind.varying)


def declared_different(x: Any) -> Any:
    """``x``, declared to differ over all manual axes; where JAX does not track them, as it is."""
    missing = tuple(a for a in manual_axes() if a not in differs_over(jax.typeof(x)))
    return lax.pcast(x, missing, to="varying") if missing else x


def tracks_axes() -> bool:
    """Whether types say over which manual axes a value differs (``check_vma`` of shard_map)."""
    with source_info_util.reset_name_stack():
        return bool(differs_over(jax.typeof(declared_different(jax.numpy.zeros(())))))


def functions_of(eqn: Equation) -> tuple[tuple[str, int], ...]:
    """Functions whose calls made the equation, outermost first: name, and a number for the call.

    As far as its own jaxpr was traced: what was called around a jit or a scan made the equation
    that has the body. A class stands for its ``__call__``, a local function for itself; JAX's
    machinery is left out. Two calls have one number if the same lines led to them, as in a loop or
    in a derivative.
    """
    traceback = eqn.source_info.traceback
    codes, places = ((), ()) if traceback is None else traceback.raw_frames()
    found, before = [], [0]  # the calls, and the number of the calls that led to each
    for code, place in reversed(tuple(zip(codes, places, strict=True))):
        if not _is_core(code.co_filename):
            found.append((_short_name(code.co_qualname), before[-1]))
        before.append(hash((before[-1], code.co_filename, code.co_qualname, place)))
    called = eqn.params.get("name")
    if isinstance(called, str) and bodies(eqn):
        # JAX's own frames below the caller's differ between a function and its derivative.
        seen = enumerate(reversed(codes), 1)
        outside = (n for n, code in seen if not _is_core(code.co_filename))
        found.append((called, before[max(outside, default=0)]))
    return tuple(found)


@functools.lru_cache(maxsize=1 << 12)
def _is_core(file: str) -> bool:
    """Whether a file is part of JAX's machinery, not of its functions on arrays."""
    parts = file.replace("\\", "/").rpartition("/jax/_src/")[2].split("/")
    functions = ("image", "nn", "numpy", "ops", "scipy")
    return "/jax/_src/" in file.replace("\\", "/") and parts[0] not in functions


def _short_name(qualified: str) -> str:
    return qualified.rpartition("<locals>.")[2].removesuffix(".__call__")


@contextlib.contextmanager
def context_of(eqn: Equation) -> Iterator[None]:
    """Trace what follows as if the user's code of ``eqn`` had made it: name stack, line, mesh."""
    stack = source_info_util.current_name_stack() + eqn.source_info.name_stack
    with (
        source_info_util.user_context(eqn.source_info.traceback, name_stack=stack),
        eqn.ctx.manager,
    ):
        yield


def bind(eqn: Equation, operands: Sequence[Any], **changed: Any) -> list[Any]:
    """Emit the equation's primitive on ``operands``, with some parameters changed."""
    params = eqn.primitive.get_bind_params({**eqn.params, **changed})
    if isinstance(params, tuple):  # releases before 0.10 returned (functions, parameters)
        functions, params = params
        out = eqn.primitive.bind(*functions, *operands, **params)
    else:
        out = eqn.primitive.bind(*operands, **params)
    return list(out) if eqn.primitive.multiple_results else [out]


def combiner(eqn: Equation, dtype: Any) -> Any:
    """The jaxpr by which a scatter combines two values, for values of another dtype."""
    jaxpr = opened(eqn.params["update_jaxpr"])
    if jaxpr is None:
        return None  # a plain scatter: the later value stays

    def applied(*values: Any) -> Any:
        # What the user gave to ``.at[].apply`` keeps the dtype that it was traced in.
        pairs = zip(values, jaxpr.invars, strict=True)
        own = (lax.convert_element_type(v, x.aval.dtype) for v, x in pairs)
        closed = jex_core.ClosedJaxpr(jaxpr, eqn.params["update_consts"])
        (out,) = jex_core.jaxpr_as_fun(closed)(*own)
        return lax.convert_element_type(out, dtype)

    def combined(*values: Any) -> Any:
        return bind(jaxpr.eqns[0], values)[0]

    plain = len(jaxpr.eqns) == 1 and list(jaxpr.eqns[0].invars) == list(jaxpr.invars)
    scalar = jax.ShapeDtypeStruct((), dtype)
    return opened(jax.make_jaxpr(combined if plain else applied)(scalar, scalar))


def scan_layout(eqn: Equation) -> tuple[int, int]:
    """Number of constants and of carried values of a scan."""
    params = eqn.params
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    consts, carry, _ = params["ft_in"].unpack()
    return len(list(consts)), len(list(carry))


def while_layout(eqn: Equation) -> tuple[int, int]:
    """Number of constants of a while loop's condition and of its body."""
    return eqn.params["cond_nconsts"], eqn.params["body_nconsts"]


def rebuild_scan(eqn: Equation, body: Callable[..., Any], carry: Any, xs: Any) -> tuple[Any, Any]:
    """Emit a scan with another body; it may close over traced values, which become constants."""
    params = eqn.params
    return lax.scan(
        body,
        carry,
        xs,
        length=params["length"],
        reverse=params["reverse"],
        unroll=params["unroll"],
    )


def rebuild_cond(eqn: Equation, index: Any, branches: Sequence[Closed], operands: Sequence[Any]):
    """Emit a cond or switch with other branches, all of one new signature."""
    return bind(eqn, [index, *operands], branches=tuple(branches))


def rebuild_jit(eqn: Equation, jaxpr: Closed, extra: int, added: int, operands: Sequence[Any]):
    """Emit a jitted call whose jaxpr has ``extra`` operands in front and ``added`` more results.

    Shardings, layouts and donation of the old operands and results are kept.
    """
    changed: dict[str, Any] = {"jaxpr": jaxpr}
    for key, entry in (("donated_invars", False), ("in_layouts", None)):
        if key in eqn.params:
            changed[key] = (entry,) * extra + tuple(eqn.params[key])
    changed["in_shardings"] = (_unspecified(),) * extra + tuple(eqn.params["in_shardings"])
    changed["out_shardings"] = tuple(eqn.params["out_shardings"]) + (_unspecified(),) * added
    if "out_layouts" in eqn.params:
        changed["out_layouts"] = tuple(eqn.params["out_layouts"]) + (None,) * added
    return bind(eqn, operands, **changed)


@functools.cache
def _unspecified() -> Any:
    """JAX's object for "no sharding asked for", taken from an equation that has it."""
    closed = jax.make_jaxpr(jax.jit(lambda x: x + 1))(0.0)
    return opened(closed).eqns[0].params["in_shardings"][0]


def rebuild_remat(eqn: Equation, jaxpr: Closed, operands: Sequence[Any]) -> list[Any]:
    """Emit a rematerialised call with another body, its policy and its flags kept."""
    body, consts = opened(jaxpr), constants(jaxpr)
    if consts:
        body = body.replace(constvars=[], invars=[*body.constvars, *body.invars])
    return bind(eqn, [*consts, *operands], jaxpr=body)


def custom_jvp_rule(eqn: Equation) -> Callable[..., tuple[list[Any], list[Any]]]:
    """The user's rule as ``(primals, tangents) -> (outputs, output tangents)``, all flat lists."""
    rule = eqn.primitive.get_bind_params(eqn.params)["subfuns"][1]

    def call(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        out = rule.call_wrapped(*primals, *tangents)
        half = len(out) // 2
        return list(out[:half]), [_materialised(t) for t in out[half:]]

    return call


def custom_vjp_rules(eqn: Equation) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The user's rules as ``forward(*args) -> (outputs, residuals)`` and ``backward``.

    ``backward(residuals, cotangents)`` gives one entry per operand, None where there is none.
    """
    parameters = eqn.primitive.get_bind_params(eqn.params)
    _, forward, backward = parameters["subfuns"]
    constant = eqn.params.get("num_consts", 0)

    def run_forward(*args: Any) -> tuple[list[Any], list[Any]]:
        flags = [False] * constant + [True] * (len(args) - constant)
        out = forward.call_wrapped(*(x for pair in zip(args, flags, strict=True) for x in pair))
        _, residual_tree, forwarded = parameters["out_trees"]()
        own = residual_tree.num_leaves - sum(f is not None for f in forwarded)
        residuals, outputs = iter(out[:own]), list(out[own:])
        # JAX leaves out a residual that is an operand and names its position instead.
        kept = [next(residuals) if f is None else args[f] for f in forwarded]
        return outputs, kept

    def run_backward(residuals: Sequence[Any], cotangents: Sequence[Any]) -> tuple[Any, ...]:
        out = backward.call_wrapped(*residuals, *cotangents)
        if len(out) == 2 and isinstance(out[0], list):  # from 0.12 on with entries for a log
            out, _ = out
        return tuple(None if _is_symbolic_zero(c) else c for c in out)

    return run_forward, run_backward


def refuses_forward_mode(error: TypeError) -> bool:
    """Whether this is JAX's refusal to differentiate a custom VJP in forward mode."""
    return "forward-mode" in str(error) and "custom_vjp" in str(error)


def _is_symbolic_zero(value: Any) -> bool:
    return type(value).__name__ in ("Zero", "SymbolicZero")


def _materialised(tangent: Any) -> Any:
    if not _is_symbolic_zero(tangent):
        return tangent
    return jax.numpy.zeros(tangent.aval.shape, tangent.aval.dtype)
