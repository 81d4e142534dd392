"""The rooms of the house and the one direction of its imports, read from the source text."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import npusim

HOUSE = Path(npusim.__file__).parent
ORDER = (
    "_errors", "_grids", "dtypes", "modes", "numerics", "casting", "layouts", "promotion", "ops",
    "quant", "numpy", "acl", "pypto", "inject", "flax", "training", "reporting", "sweep", "cli",
)  # fmt: skip
HEAVY = ("flax", "sklearn", "matplotlib", "typer", "optax", "pydantic")
FILES = sorted(HOUSE.rglob("*.py"))


def room_of(path):
    """The room a file belongs to; the front door, ``npusim/__init__.py``, is none."""
    first = path.relative_to(HOUSE).parts[0].removesuffix(".py")
    return None if first == "__init__" else first


def imported(tree):
    """Every module named in an import statement, inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            for alias in node.names:
                yield f"{node.module}.{alias.name}", node.lineno


def test_every_room_has_its_place():
    rooms = {room_of(path) for path in FILES} - {None}
    assert rooms <= set(ORDER), f"rooms without a place in the order: {rooms - set(ORDER)}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(HOUSE)))
def test_a_module_imports_only_what_stands_before_it(path):
    room = room_of(path)
    wrong = []
    for name, line in imported(ast.parse(path.read_text("utf-8"))):
        parts = name.split(".")
        if name.startswith("jax._src"):
            wrong.append(f"{path}:{line}: {name} is private to JAX")
        if parts[0] != "npusim" or room is None:
            continue
        other = parts[1] if len(parts) > 1 else ""
        if other not in ORDER:  # `import npusim` itself, or a name of the front door
            if room != "cli" and other != "__version__":
                wrong.append(f"{path}:{line}: {name} goes through the front door")
        elif ORDER.index(other) > ORDER.index(room):
            wrong.append(f"{path}:{line}: {room} imports {other}, which stands behind it")
    assert not wrong, "\n".join(wrong)


def test_no_private_names_of_jax_by_attribute():
    for path in FILES:
        text = path.read_text("utf-8")
        assert "jax._src" not in text, path


def test_no_public_function_has_the_name_of_a_subpackage():
    """A lazy import of the subpackage would replace the function."""
    names = {room_of(path) for path in FILES} - {None}
    for name in names:
        value = getattr(npusim, name, None)
        assert value is None or type(value).__name__ == "module", name
    for path in HOUSE.iterdir():
        if (path / "__init__.py").exists():
            assert path.name not in dir(npusim) or not callable(getattr(npusim, path.name))


def test_import_npusim_loads_no_heavy_package():
    code = (
        "import sys, npusim; "
        f"print([name for name in {HEAVY} if name in sys.modules]); "
        "print('tests' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=HOUSE.parent
    )
    assert done.stdout.split("\n")[:2] == ["[]", "False"], done.stdout


def test_adapters_are_reached_from_npusim_alone():
    """In a process of its own: here other tests have imported them."""
    code = "import npusim as npu; print(npu.flax.nnx.__name__, npu.flax.linen.__name__)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=HOUSE.parent
    )
    assert done.stdout.split() == ["npusim.flax.nnx", "npusim.flax.linen"]
