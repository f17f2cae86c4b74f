"""The part of kustomize that deploy/k8s uses: resources, components, images and strategic merge patches.

No registry that this project installs from has the real one. Whatever is not understood here fails the test.
"""

import copy
from pathlib import Path
from typing import Any

import yaml

Resource = dict[str, Any]
_KNOWN = {"apiVersion", "kind", "resources", "components", "images", "patches"}


def build(folder: Path) -> list[Resource]:
    """What ``kubectl kustomize FOLDER`` prints."""
    description = yaml.safe_load((folder / "kustomization.yaml").read_text())
    if unknown := set(description) - _KNOWN:
        raise NotImplementedError(f"{folder}: {unknown}")
    found: list[Resource] = []
    for name in description["resources"]:
        path = folder / name
        found += build(path.resolve()) if path.is_dir() else documents(path)
    for name in description.get("components", ()):
        apply_component(found, (folder / name).resolve())
    for patch in description.get("patches", ()):
        _patch(found, patch, folder)
    for image in description.get("images", ()):
        _retag(found, image)
    return found


def apply_component(found: list[Resource], folder: Path) -> None:
    """Patches alone: all that a component here is made of."""
    description = yaml.safe_load((folder / "kustomization.yaml").read_text())
    if description["kind"] != "Component" or set(description) - {"apiVersion", "kind", "patches"}:
        raise NotImplementedError(f"{folder}: {set(description)}")
    for patch in description["patches"]:
        _patch(found, patch, folder)


def documents(path: Path) -> list[Resource]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def identity(resource: Resource) -> tuple[str, str]:
    return resource["kind"], resource["metadata"]["name"]


def _patch(found: list[Resource], patch: dict[str, Any], folder: Path) -> None:
    for change in documents(folder / patch["path"]):
        target = patch.get("target")
        wanted = [
            each for each in found if (each["kind"] == target["kind"] if target else identity(each) == identity(change))
        ]
        if not wanted:
            raise LookupError(f"{patch['path']}: nothing to patch: {identity(change)}")
        for resource in wanted:
            name = resource["metadata"]["name"]
            merged = merge(resource, change)
            resource.clear()
            resource.update(merged)
            resource["metadata"]["name"] = name


def merge(base: Any, change: Any) -> Any:
    """Maps are merged, null removes, lists of named things are merged by name, everything else is replaced."""
    if isinstance(base, dict) and isinstance(change, dict):
        result = copy.deepcopy(base)
        for key, value in change.items():
            if value is None:
                result.pop(key, None)
                continue
            result[key] = merge(base[key], value) if key in base else copy.deepcopy(value)
        return result
    if isinstance(base, list) and isinstance(change, list) and all(_named(each) for each in [*base, *change]):
        result = copy.deepcopy(base)
        for each in change:
            at = next((i for i, other in enumerate(result) if other["name"] == each["name"]), None)
            if at is None:
                result.append(copy.deepcopy(each))
            else:
                result[at] = merge(result[at], each)
        return result
    return copy.deepcopy(change)


def _named(each: Any) -> bool:
    return isinstance(each, dict) and "name" in each


def _retag(value: Any, image: dict[str, str]) -> None:
    if isinstance(value, dict):
        current = value.get("image")
        if isinstance(current, str) and current.rpartition(":")[0] == image["name"]:
            value["image"] = f"{image['name']}:{image['newTag']}"
        for each in value.values():
            _retag(each, image)
    elif isinstance(value, list):
        for each in value:
            _retag(each, image)
