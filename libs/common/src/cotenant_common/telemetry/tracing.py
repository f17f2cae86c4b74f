"""W3C trace context through bus headers; spans go out over OTLP when an endpoint is set, and cost nothing otherwise."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from opentelemetry import context, propagate, trace

_tracer: Final = trace.get_tracer("cotenant")
_configured: list[str] = []


def configure(service: str, otlp_endpoint: str | None) -> None:
    """Export spans of this process. Without an endpoint nothing is imported and every span is a no-op."""
    if otlp_endpoint is None or _configured:
        return
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - memory
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    tracer_provider = TracerProvider(resource=Resource.create({SERVICE_NAME: service}))
    exporter = OTLPSpanExporter(f"{otlp_endpoint.rstrip('/')}/v1/traces")
    tracer_provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(tracer_provider)
    _configured.append(otlp_endpoint)


def outgoing(headers: Mapping[str, str] | None = None) -> dict[str, str]:
    """The headers with the current trace context, if there is one."""
    carried = dict(headers or {})
    if trace.get_current_span().get_span_context().is_valid:
        propagate.inject(carried)
    return carried


@contextmanager
def incoming(name: str, headers: Mapping[str, str]) -> Iterator[None]:
    """Run a handler as the continuation of its sender's trace. Free of cost when neither side traces."""
    if not _configured and "traceparent" not in headers:
        yield
        return
    token = context.attach(propagate.extract(headers))
    try:
        with _tracer.start_as_current_span(name, kind=trace.SpanKind.CONSUMER):
            yield
    finally:
        context.detach(token)
