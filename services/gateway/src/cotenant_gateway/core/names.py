"""Names that only the gateway writes or reads."""

from typing import Final

APPLIED_DIGEST: Final = "cotenant.io/applied-digest"
"""Annotation: digest of the manifest as the user wrote it, so that applying it again is recognised as no change."""
TEMPLATE_HASH: Final = "pod-template-hash"
JOB_NAME: Final = "job-name"
COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
COMPLETION_INDEX_ENV: Final = "JOB_COMPLETION_INDEX"
NAMESPACE_LABEL: Final = "kubernetes.io/metadata.name"

SYSTEM_NAMESPACES: Final = ("cotenant-system", "koordinator-system")
"""Where configuration is looked for; the first one wins."""
SLO_CONFIG: Final = "slo-controller-config"
FREEZE: Final = "cotenant-freeze"
"""ConfigMap whose existence is a freeze; keys ``reason``, ``by``, ``since_ms``."""
OBSERVE: Final = "cotenant-observe"
"""ConfigMap that names what is only looked at: ``nodes``, ``namespaces``, ``everything``."""

SHIPPED_SYSTEM_CLASSES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
SYSTEM_CRITICAL: Final = 2_000_000_000
NEVER_EVICT_COST: Final = 2**31 - 1
