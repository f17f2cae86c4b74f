"""OpenTelemetry metrics, read by Prometheus. One provider per process; services that share it differ by label.

The SDK costs memory and start-up time, so it is imported when the first real ``Metrics`` is made, not before.
Names: ``cotenant_<service>_<what>_<unit>``. Labels come from closed sets, never a pod's name or uid.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider

Attributes = Mapping[str, str | int | bool]
SECONDS_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)
"""The SDK's own bounds are meant for milliseconds: in seconds, everything would fall below the first one."""


class Counter(Protocol):
    def add(self, amount: float, attributes: Attributes | None = None) -> None: ...


class Histogram(Protocol):
    def record(self, amount: float, attributes: Attributes | None = None) -> None: ...


class Gauge(Protocol):
    def set(self, amount: float, attributes: Attributes | None = None) -> None: ...


class Metrics(Protocol):
    """Where a service gets its instruments; asking twice for one name gives the same instrument."""

    def counter(self, name: str, description: str, unit: str = "1") -> Counter: ...

    def histogram(self, name: str, description: str, unit: str = "s") -> Histogram: ...

    def gauge(self, name: str, description: str, unit: str = "1") -> Gauge: ...


class _Labelled:
    """An instrument of OpenTelemetry that adds the service to what the caller says."""

    __slots__ = ("_instrument", "_labels")

    def __init__(self, instrument: Any, labels: Mapping[str, str]) -> None:
        self._instrument = instrument
        self._labels = labels

    def add(self, amount: float, attributes: Attributes | None = None) -> None:
        self._instrument.add(amount, {**self._labels, **attributes} if attributes else self._labels)

    def record(self, amount: float, attributes: Attributes | None = None) -> None:
        self._instrument.record(amount, {**self._labels, **attributes} if attributes else self._labels)

    def set(self, amount: float, attributes: Attributes | None = None) -> None:
        self._instrument.set(amount, {**self._labels, **attributes} if attributes else self._labels)


Counts = Callable[[], Mapping[str, int]]
"""Totals by kind, read when somebody asks for the metrics."""


class OpenTelemetryMetrics:
    def __init__(self, service: str, *, otlp_endpoint: str | None = None) -> None:
        self._meter = provider(otlp_endpoint).get_meter("cotenant")
        self._labels = {"service": service}
        self._instruments: dict[str, _Labelled] = {}

    def counter(self, name: str, description: str, unit: str = "1") -> Counter:
        return self._keep(name, lambda: self._meter.create_counter(name, unit, description))

    def histogram(self, name: str, description: str, unit: str = "s") -> Histogram:
        bounds = SECONDS_BUCKETS if unit == "s" else None
        return self._keep(
            name,
            lambda: self._meter.create_histogram(name, unit, description, explicit_bucket_boundaries_advisory=bounds),
        )

    def gauge(self, name: str, description: str, unit: str = "1") -> Gauge:
        return self._keep(name, lambda: self._meter.create_gauge(name, unit, description))

    def observe(self, name: str, description: str, counts: Counts) -> None:
        """A counter whose totals somebody else keeps; label ``kind``."""
        self._meter.create_observable_counter(name, [self._reader(counts)], "1", description)

    def observe_gauge(self, name: str, description: str, counts: Counts, unit: str = "1") -> None:
        """A gauge that is read when somebody asks for the metrics; label ``kind``."""
        self._meter.create_observable_gauge(name, [self._reader(counts)], unit, description)

    def _reader(self, counts: Counts) -> Callable[[Any], list[Any]]:
        def read(_: Any) -> list[Any]:
            from opentelemetry.metrics import Observation  # noqa: PLC0415 - costs memory, see above

            return [Observation(value, {**self._labels, "kind": kind}) for kind, value in sorted(counts().items())]

        return read

    def _keep(self, name: str, create: Any) -> _Labelled:
        if name not in self._instruments:
            self._instruments[name] = _Labelled(create(), self._labels)
        return self._instruments[name]


@lru_cache(maxsize=1)
def _provider(otlp_endpoint: str | None) -> "MeterProvider":
    from opentelemetry.exporter.prometheus import PrometheusMetricReader  # noqa: PLC0415 - costs memory, see above
    from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
    from opentelemetry.sdk.metrics.export import MetricReader  # noqa: PLC0415

    readers: list[MetricReader] = [PrometheusMetricReader(scope_info_enabled=False)]
    if otlp_endpoint is not None:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # noqa: PLC0415
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415

        readers.append(PeriodicExportingMetricReader(OTLPMetricExporter(f"{otlp_endpoint.rstrip('/')}/v1/metrics")))
    return MeterProvider(metric_readers=readers)


_chosen: list["MeterProvider"] = []


def provider(otlp_endpoint: str | None = None) -> "MeterProvider":
    """The process's provider; the first caller decides whether it exports."""
    if not _chosen:
        _chosen.append(_provider(otlp_endpoint))
    return _chosen[0]


def render_prometheus() -> bytes:
    """Prometheus text of everything this process measured."""
    from prometheus_client import generate_latest  # noqa: PLC0415 - see above

    return generate_latest()


class _Nothing:
    def add(self, amount: float, attributes: Attributes | None = None) -> None:
        """Measure nothing."""

    record = add
    set = add


class NullMetrics:
    """Measures nothing: for tests and simulation."""

    _nothing = _Nothing()

    def counter(self, name: str, description: str, unit: str = "1") -> Counter:  # noqa: ARG002 - the protocol's
        return self._nothing

    def histogram(self, name: str, description: str, unit: str = "s") -> Histogram:  # noqa: ARG002
        return self._nothing

    def gauge(self, name: str, description: str, unit: str = "1") -> Gauge:  # noqa: ARG002
        return self._nothing


def null_metrics() -> Metrics:
    return NullMetrics()
