"""YAML as a user means it: no key twice, and ``1e-3`` is a number."""

import re
from pathlib import Path
from typing import Any

import yaml
from yaml.composer import ComposerError

from npusim._errors import ConfigError, message


class _Loader(yaml.SafeLoader):
    """SafeLoader that refuses a repeated key and reads 1e-3 as a float."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        # Here, and not in the constructor: a merge key (<<) may be overridden on purpose, and
        # the constructor sees merged keys and own keys side by side.
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
                continue
            if key.value in seen:
                raise ComposerError(None, None, f"key {key.value!r} stands twice", key.start_mark)
            seen.add(key.value)
        return node


# PyYAML wants a dot before the exponent and takes 1e-3 for a string.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:\d[\d_]*)(?:\.\d*)?[eE][-+]?\d+$"),
    list("-+0123456789"),
)


def read_yaml(path: Path) -> Any:
    """Return what the YAML file at ``path`` says.

    Raises:
        ConfigError: the file is missing, unreadable or no valid YAML.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise ConfigError(
            message(f"{path}: {reason}", "a readable YAML file", "Correct the path.")
        ) from error
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f" line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError(
            message(f"{path}{place}: {error.problem}", "valid YAML", "Correct this place.")
        ) from error
    except yaml.YAMLError as error:
        raise ConfigError(message(f"{path}: {error}", "valid YAML", "Correct the file.")) from error
