"""An ElasticQuotaProfile as its owner wrote it: which nodes, what part of them, and the quota they make."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from cotenant_common.model import labels, resources
from cotenant_common.model.ids import InvalidNameError, encode_token
from cotenant_common.model.quota.spec import BUILT_IN, Problem

_RATIO: Final = re.compile(r"^(0|1)(\.\d{1,9})?$|^\.\d{1,9}$")
_FNV_OFFSET: Final = 0xCBF29CE484222325
_FNV_PRIME: Final = 0x100000001B3


@dataclass(frozen=True, slots=True)
class QuotaProfile:
    """``node_selector`` is compared label by label; an empty one selects every node."""

    name: str
    namespace: str
    quota_name: str
    quota_labels: Mapping[str, str]
    node_selector: Mapping[str, str]
    ratio: Fraction
    tree_id: str
    resource_keys: tuple[str, ...]

    def selects(self, node_labels: Mapping[str, str]) -> bool:
        return all(node_labels.get(key) == value for key, value in self.node_selector.items())


def parse_profile(manifest: Mapping[str, Any]) -> tuple[QuotaProfile | None, tuple[Problem, ...]]:
    """Read one ElasticQuotaProfile whose shape is right. The profile is None exactly when there is a problem."""
    metadata: Mapping[str, Any] = manifest.get("metadata") or {}
    spec: Mapping[str, Any] = manifest.get("spec") or {}
    name, namespace = str(metadata.get("name") or ""), str(metadata.get("namespace") or "default")
    given: Mapping[str, str] = metadata.get("labels") or {}
    quota_labels: Mapping[str, str] = spec.get("quotaLabels") or {}
    problems: list[Problem] = []
    ratio = _ratio(spec.get("resourceRatio"), problems)
    quota_name = str(spec.get("quotaName") or "")
    if not quota_name:
        problems.append(Problem("spec.quotaName", "required: the name of the quota that stands for the nodes"))
    elif quota_name in BUILT_IN:
        problems.append(Problem("spec.quotaName", f"{quota_name} is built in and cannot stand for a pool of nodes"))
    tree_id = given.get(labels.QUOTA_TREE_ID) or quota_labels.get(labels.QUOTA_TREE_ID)
    tree_id = tree_id or str(fnv64a(f"{namespace}/{name}"))
    try:
        encode_token(tree_id)
    except InvalidNameError as error:
        problems.append(Problem(f"metadata.labels[{labels.QUOTA_TREE_ID}]", str(error)))
    keys = _resource_keys((metadata.get("annotations") or {}).get(labels.QUOTA_RESOURCE_KEYS), problems)
    if problems or ratio is None:
        return None, tuple(problems)
    selector = spec.get("nodeSelector") or {}
    return QuotaProfile(name, namespace, quota_name, quota_labels, selector, ratio, tree_id, keys), ()


def _ratio(value: Any, problems: list[Problem]) -> Fraction | None:
    """Exact, as it is written: a float would make two pools of one fleet not add up."""
    if value in (None, ""):
        return Fraction(1)
    text = str(value)
    found = Fraction(text) if _RATIO.match(text) else Fraction(0)
    if 0 < found <= 1:
        return found
    problems.append(
        Problem("spec.resourceRatio", f'expected a ratio above 0 and at most 1, such as "0.9", got {text!r}')
    )
    return None


def _resource_keys(text: Any, problems: list[Problem]) -> tuple[str, ...]:
    """Koordinator's annotation: a JSON list, or names with commas between them."""
    if text in (None, ""):
        return (resources.CPU, resources.MEMORY)
    names = [part.strip(' "') for part in str(text).strip("[] ").split(",")]
    if all(names):
        return tuple(sorted(dict.fromkeys(names)))
    where = f"metadata.annotations[{labels.QUOTA_RESOURCE_KEYS}]"
    problems.append(Problem(where, f'expected names of resources, such as ["cpu", "memory"], got {text!r}'))
    return ()


def fnv64a(text: str) -> int:
    """FNV-1a, 64 bits: what Koordinator makes a tree id of."""
    digest = _FNV_OFFSET
    for byte in text.encode():
        digest = (digest ^ byte) * _FNV_PRIME % 2**64
    return digest
