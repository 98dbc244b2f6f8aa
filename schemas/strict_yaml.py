"""YAML in which no key is there twice."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml

_MERGE = "tag:yaml.org,2002:merge"


class _Loader(yaml.SafeLoader):
    """PyYAML lets the last of equal keys win, so that a part or a tool would be gone without a word."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag == _MERGE:
                continue
            key = self.construct_object(key_node)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is there twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def load_yaml(text: str) -> Any:
    """As `yaml.safe_load`.

    Raises:
        yaml.YAMLError: it is not YAML, or a mapping has a key twice; the message names line and column.
    """
    return yaml.load(text, _Loader)  # noqa: S506 - a kind of SafeLoader
