"""One quota as its owner wrote it, read from an ElasticQuota manifest."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from cotenant_common.model import labels, resources
from cotenant_common.model.ids import InvalidNameError, encode_token
from cotenant_common.model.quantity import QuantityError
from cotenant_common.model.resources import ResourceList

ROOT: Final = "koordinator-root-quota"
SYSTEM: Final = "koordinator-system-quota"
DEFAULT: Final = "koordinator-default-quota"
BUILT_IN: Final = (ROOT, SYSTEM, DEFAULT)
BUILT_IN_NAMESPACE: Final = "koordinator-system"
# Koordinator's "no limit": small enough that sums over many quotas stay inside 64 bits for readers in other languages.
UNLIMITED: Final = (2**63 - 1) // 5
LARGEST: Final = 2**63 - 1
"""What a message can carry; the root quota that Koordinator makes of a profile has half of it in milli-cores."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong, where in the manifest, and what would be right."""

    path: str
    message: str


class StopPolicy(StrEnum):
    """Whether a queue takes work, in Kueue's words. A parent's policy holds for all below it."""

    NONE = "None"
    HOLD = "Hold"
    """Nothing new is admitted; what runs goes on."""
    HOLD_AND_DRAIN = "HoldAndDrain"
    """Nothing new is admitted, and what runs is evicted within its disruption budgets and waits again."""


@dataclass(frozen=True, slots=True)
class QuotaSpec:
    """Amounts are canonical integers. ``tree_id`` is as written: empty means inherited from the parent.

    ``admission`` is the most that its pods may ask for, waiting ones included; None is no limit.
    """

    name: str
    namespace: str
    min: ResourceList
    max: ResourceList
    shared_weight: ResourceList
    parent: str = ROOT
    is_parent: bool = False
    allow_lent: bool = True
    namespaces: tuple[str, ...] = ()
    tree_id: str = ""
    is_root: bool = False
    total_resource: ResourceList | None = None
    ignore_default_tree: bool = False
    allow_force_update: bool = False
    strict_keys: tuple[str, ...] = ()
    stop_policy: StopPolicy = StopPolicy.NONE
    admission: ResourceList | None = None


@dataclass(slots=True)
class _Reader:
    """Collects every problem of one manifest, so that a user fixes them in one go."""

    manifest: Mapping[str, Any]
    problems: list[Problem] = field(default_factory=list)

    def complain(self, path: str, message: str) -> None:
        self.problems.append(Problem(path, message))

    def mapping(self, *path: str) -> Mapping[str, Any]:
        value: Any = self.manifest
        for step in path:
            value = value.get(step)
            if value is None:
                return {}
            if not isinstance(value, Mapping):
                self.complain(".".join(path), f"expected a mapping, got {type(value).__name__}")
                return {}
        found: Mapping[str, Any] = value
        return found

    def amounts(self, path: str, source: Mapping[str, Any]) -> dict[str, int]:
        parsed: dict[str, int] = {}
        for name in sorted(source):
            try:
                parsed[name] = resources.parse(name, source[name])
            except QuantityError as error:
                self.complain(f"{path}.{name}", str(error))
            else:
                if parsed[name] > LARGEST:
                    self.complain(f"{path}.{name}", f"expected at most {LARGEST}, got {str(source[name])[:40]}")
        return parsed

    def flag(self, name: str, default: bool) -> bool:
        text = self.mapping("metadata", "labels").get(name)
        if text in (None, ""):
            return default
        if text in ("true", "false"):
            return bool(text == "true")
        self.complain(f"metadata.labels[{name}]", f'expected "true" or "false", got {text!r}')
        return default

    def stop_policy(self) -> StopPolicy:
        text = self.mapping("metadata", "annotations").get(labels.QUOTA_STOP_POLICY)
        if text in (None, ""):
            return StopPolicy.NONE
        if text in tuple(StopPolicy):
            return StopPolicy(text)
        known = ", ".join(StopPolicy)
        self.complain(f"metadata.annotations[{labels.QUOTA_STOP_POLICY}]", f"expected one of {known}, got {text!r}")
        return StopPolicy.NONE

    def annotation(self, name: str, kind: type, shape: str) -> Any:
        """The decoded JSON of an annotation, or None when it is absent or malformed."""
        text = self.mapping("metadata", "annotations").get(name)
        if text in (None, ""):
            return None
        try:
            # Numbers stay text: a quantity must not pass through a float.
            value = json.loads(text, parse_float=str, parse_int=str)
        except (TypeError, ValueError, RecursionError):
            value = None
        if not isinstance(value, kind):
            self.complain(f"metadata.annotations[{name}]", f"expected {shape} as JSON, got {text!r}")
            return None
        return value

    def annotated_amounts(self, name: str) -> dict[str, int] | None:
        value = self.annotation(name, dict, 'quantities by resource, such as {"cpu": "4"},')
        return None if value is None else self.amounts(f"metadata.annotations[{name}]", value)

    def annotated_names(self, name: str) -> tuple[str, ...]:
        value = self.annotation(name, list, 'a list of names, such as ["a", "b"],') or []
        if all(isinstance(item, str) for item in value):
            return tuple(value)
        self.complain(f"metadata.annotations[{name}]", "expected a list of names; an entry is no text")
        return ()


def parse_quota(manifest: Mapping[str, Any]) -> tuple[QuotaSpec | None, tuple[Problem, ...]]:
    """Read one ElasticQuota. The spec is None exactly when there is a problem."""
    reader = _Reader(manifest)
    metadata = reader.mapping("metadata")
    given_labels = reader.mapping("metadata", "labels")
    name = str(metadata.get("name") or "")
    if not name:
        reader.complain("metadata.name", "expected the quota's name, got nothing")
    maximum = reader.amounts("spec.max", reader.mapping("spec", "max"))
    spec = QuotaSpec(
        name=name,
        namespace=str(metadata.get("namespace") or "default"),
        min=reader.amounts("spec.min", reader.mapping("spec", "min")),
        max=maximum,
        shared_weight=_weights(reader.annotated_amounts(labels.QUOTA_SHARED_WEIGHT), maximum),
        parent=str(given_labels.get(labels.QUOTA_PARENT) or ROOT),
        is_parent=reader.flag(labels.QUOTA_IS_PARENT, default=False),
        allow_lent=reader.flag(labels.QUOTA_ALLOW_LENT, default=True),
        namespaces=reader.annotated_names(labels.QUOTA_NAMESPACES),
        tree_id=str(given_labels.get(labels.QUOTA_TREE_ID) or ""),
        is_root=reader.flag(labels.QUOTA_IS_ROOT, default=False),
        total_resource=reader.annotated_amounts(labels.QUOTA_TOTAL_RESOURCE),
        ignore_default_tree=reader.flag(labels.QUOTA_IGNORE_DEFAULT_TREE, default=False),
        allow_force_update=reader.flag(labels.QUOTA_FORCE_UPDATE, default=False),
        strict_keys=reader.annotated_names(labels.QUOTA_STRICT_KEYS),
        stop_policy=reader.stop_policy(),
        admission=reader.annotated_amounts(labels.QUOTA_ADMISSION),
    )
    try:
        encode_token(spec.tree_id or "default")
    except InvalidNameError as error:
        reader.complain(f"metadata.labels[{labels.QUOTA_TREE_ID}]", str(error))
    if not reader.problems:
        reader.problems.extend(check_bounds(spec))
    return (None if reader.problems else spec), tuple(reader.problems)


def _weights(written: ResourceList | None, maximum: ResourceList) -> ResourceList:
    """Max where nothing was written, or only zeros. Keys follow max, so that every dimension shares."""
    if not written or not any(written.values()):
        return dict(maximum)
    return {name: written.get(name, value) for name, value in maximum.items()}


def check_bounds(spec: QuotaSpec) -> list[Problem]:
    """min needs a max of the same dimension, and must not pass it."""
    found: list[Problem] = []
    for name, low in sorted(spec.min.items()):
        high = spec.max.get(name)
        if high is None:
            found.append(Problem(f"spec.min.{name}", f"spec.max has no {name}; add it, or drop it from spec.min"))
        elif low > high:
            shown = f"{resources.render(name, low)} > {resources.render(name, high)}"
            found.append(Problem(f"spec.min.{name}", f"min must not pass max: {shown}"))
    return found
