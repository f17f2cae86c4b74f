"""``cotenant.io/sim-…``: what a manifest says of its own simulation."""

import json
from collections.abc import Mapping

from cotenant_common.model import labels, resources
from cotenant_common.model.quantity import QuantityError
from cotenant_simulator.core import durations
from cotenant_simulator.core.scenario import Demand


class AnnotationError(ValueError):
    """The value of one annotation cannot be used."""

    def __init__(self, annotation: str, message: str) -> None:
        super().__init__(f"{annotation}: {message}")
        self.annotation = annotation
        self.message = message


def read_sim_usage(text: str) -> Demand:
    """``{"cpu": "6", "memory": "200Mi"}``. Raise AnnotationError."""
    try:
        written = json.loads(text, parse_float=str, parse_int=str)
        unknown = sorted(set(written) - {resources.CPU, resources.MEMORY})
        amounts = {name: resources.parse(name, str(amount)) for name, amount in written.items()}
    except (ValueError, TypeError, AttributeError, QuantityError) as problem:
        message = f'expected JSON such as {{"cpu": "6", "memory": "200Mi"}}, got {text[:80]!r}'
        raise AnnotationError(labels.SIM_USAGE, message) from problem
    if unknown:
        raise AnnotationError(labels.SIM_USAGE, f"expected cpu and memory, got {', '.join(unknown)} besides")
    return Demand(amounts.get(resources.CPU), amounts.get(resources.MEMORY))


def read_duration_ms(annotations: Mapping[str, str], name: str) -> int | None:
    """None when it is not there. Raise AnnotationError."""
    text = annotations.get(name)
    if text is None:
        return None
    try:
        return durations.parse_ms(text)
    except durations.DurationError as problem:
        raise AnnotationError(name, str(problem)) from problem


def check(annotations: Mapping[str, str]) -> None:
    """Raise AnnotationError for the first that cannot be read."""
    if (usage := annotations.get(labels.SIM_USAGE)) is not None:
        read_sim_usage(usage)
    for name in (labels.SIM_DURATION, labels.SIM_GRACE):
        read_duration_ms(annotations, name)
