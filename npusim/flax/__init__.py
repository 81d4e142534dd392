"""Thin adapters for Flax: `linen` and `nnx`. Each is imported, and Flax with it, on first use."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from npusim.flax import linen as linen
    from npusim.flax import nnx as nnx

__all__ = ["linen", "nnx"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'npusim.flax' has no attribute {name!r}")
    return importlib.import_module(f"npusim.flax.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
