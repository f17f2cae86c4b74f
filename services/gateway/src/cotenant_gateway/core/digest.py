"""Digests of manifests: equal content, equal digest, whatever the order of keys."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def digest(value: Mapping[str, Any], length: int = 16) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:length]
