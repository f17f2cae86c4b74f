"""The identity of what was bound: scheduler and agent must compute it alike, or every binding looks stale."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def spec_digest(spec: Mapping[str, Any]) -> str:
    """Equal content, equal digest, whatever the order of keys."""
    canonical = json.dumps(spec, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]
