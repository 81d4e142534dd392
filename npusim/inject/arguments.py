"""Taking a call apart: which leaves are traced, which are static, which are parameters."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax

from npusim._errors import InputError, message

KeyPath = tuple[Any, ...]
Params = int | Sequence[int] | Callable[[KeyPath, Any], bool] | None


@dataclasses.dataclass(frozen=True)
class Call:
    """The arguments of one call.

    Attributes:
        treedef: structure of ``(args, kwargs)``.
        leaves: all leaves, the static ones included.
        dynamic: positions of the leaves that are traced.
        params: of those, whether each is a parameter.
    """

    treedef: Any
    leaves: tuple[Any, ...]
    dynamic: tuple[int, ...]
    params: tuple[bool, ...]

    @property
    def arrays(self) -> list[Any]:
        """The traced leaves."""
        return [self.leaves[i] for i in self.dynamic]

    def restored(self, arrays: Iterable[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with ``arrays`` in the place of the traced leaves."""
        leaves = list(self.leaves)
        for position, array in zip(self.dynamic, arrays, strict=True):
            leaves[position] = array
        return jax.tree.unflatten(self.treedef, leaves)


def take_apart(
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    params: Params = None,
    static: Sequence[str] = (),
    names: Sequence[str] = (),
) -> Call:
    """Return the arguments with each leaf sorted into traced or static, parameter or not.

    Args:
        args: positional arguments.
        kwargs: keyword arguments.
        params: argument numbers, or a predicate on (key path, leaf); None: leaves under a key
            ``params``, those of an ``nnx.Param``, else all of argument 0.
        static: names of arguments whose leaves are static whatever they are.
        names: names of the function's positional parameters.
    """
    with_paths, treedef = jax.tree_util.tree_flatten_with_path((args, kwargs))
    leaves = tuple(leaf for _, leaf in with_paths)
    paths = [path for path, _ in with_paths]
    fixed = _static_prefixes(static, names)
    dynamic = tuple(
        i
        for i, leaf in enumerate(leaves)
        if _is_array(leaf)
        and not _is_setting(leaf, paths[i])
        and not any(paths[i][:2] == prefix for prefix in fixed)
    )
    chosen = _chosen(params, paths, leaves, (args, kwargs))
    return Call(treedef, leaves, dynamic, tuple(chosen[i] for i in dynamic))


def refuse_shared(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise if an NNX Variable stands in two places: as a plain pytree it would become two.

    The gradient of a shared parameter would then be two halves, each at its own place.
    """
    places: dict[int, KeyPath] = {}
    for path, node in jax.tree_util.tree_flatten_with_path((args, kwargs), is_leaf=_is_variable)[0]:
        if _is_variable(node) and id(node) in places:
            one, other = (jax.tree_util.keystr(p[1:]) for p in (places[id(node)], path))
            raise InputError(
                message(
                    f"an NNX {type(node).__name__} that stands both at {one} and at {other} of the "
                    "arguments",
                    "NNX arguments in which each Variable stands once",
                    "Use npusim.flax.nnx.simulate, which keeps what is shared and module state.",
                )
            )
        places[id(node)] = path


def _is_array(leaf: Any) -> bool:
    """Whether a leaf is traced: arrays and numbers are; bool, str, None and callables are not."""
    if isinstance(leaf, bool | str | bytes) or leaf is None:
        return False
    if isinstance(leaf, int | float | complex):
        return True
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype") and not isinstance(leaf, type)


def _is_setting(leaf: Any, path: KeyPath) -> bool:
    """Whether a leaf is a number that some object holds as an attribute, so that code may ask it.

    Such are the rates and limits in an Equinox model, which its own jit takes as static too.
    """
    number = isinstance(leaf, int | float | complex) and not hasattr(leaf, "dtype")
    return number and any(isinstance(key, jax.tree_util.GetAttrKey) for key in path)


def _static_prefixes(static: Sequence[str], names: Sequence[str]) -> list[KeyPath]:
    wanted = (static,) if isinstance(static, str) else tuple(static)
    key = jax.tree_util
    prefixes: list[KeyPath] = [(key.SequenceKey(1), key.DictKey(name)) for name in wanted]
    prefixes += [
        (key.SequenceKey(0), key.SequenceKey(names.index(name))) for name in wanted if name in names
    ]
    return prefixes


def _chosen(
    params: Params, paths: list[KeyPath], leaves: Sequence[Any], arguments: Any
) -> list[bool]:
    if callable(params):
        # The predicate sees the path as the caller would write it: without the (args, kwargs) pair.
        return [bool(params(path[1:], leaf)) for path, leaf in zip(paths, leaves, strict=True)]
    if params is not None:
        numbers = (params,) if isinstance(params, int) else tuple(params)
        count = len(arguments[0])
        for number in numbers:
            if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < count:
                raise InputError(
                    message(
                        f"params={params!r} for a call with {count} positional arguments",
                        "numbers of positional arguments, or a predicate (key path, leaf) -> bool",
                        "Correct the numbers.",
                    )
                )
        return [_argument(path) in numbers for path in paths]
    named = [any(_key_name(key) == "params" for key in path[1:]) for path in paths]
    if any(named):
        return named
    of_nnx = _nnx_params(arguments, len(paths))
    if any(of_nnx):
        return of_nnx
    return [_argument(path) == 0 for path in paths]


def _argument(path: KeyPath) -> int | None:
    """Number of the positional argument that a path lies in."""
    return path[1].idx if path[0].idx == 0 else None


def _key_name(key: Any) -> Any:
    return getattr(key, "key", getattr(key, "name", None))


def _nnx_params(arguments: Any, count: int) -> list[bool]:
    """Mark the leaves of `flax.nnx.Param` variables, recognised without importing Flax."""
    marks: list[bool] = []
    for node in jax.tree.leaves(arguments, is_leaf=_is_variable):
        size = len(jax.tree.leaves(node))
        is_param = _is_variable(node) and "Param" in (c.__name__ for c in type(node).__mro__)
        marks += [is_param] * size
    assert len(marks) == count
    return marks


def _is_variable(node: Any) -> bool:
    names = [c.__name__ for c in type(node).__mro__ if c.__module__.startswith("flax.nnx")]
    return "Variable" in names
