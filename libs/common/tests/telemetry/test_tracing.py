from opentelemetry import context, trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from cotenant_common.telemetry import tracing

PARENT = SpanContext(0x0AF7651916CD43DD8448EB211C80319C, 0x00F067AA0BA902B7, False, TraceFlags(1))
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"


def test_without_a_trace_headers_stay_as_they_are() -> None:
    assert tracing.outgoing({"a": "b"}) == {"a": "b"}
    assert tracing.outgoing() == {}


def test_the_current_trace_travels_in_headers() -> None:
    token = context.attach(trace.set_span_in_context(NonRecordingSpan(PARENT)))
    try:
        assert tracing.outgoing({"a": "b"}) == {"a": "b", "traceparent": TRACEPARENT}
    finally:
        context.detach(token)


def test_a_handler_continues_its_senders_trace() -> None:
    with tracing.incoming("pod_evict", {"traceparent": TRACEPARENT}):
        assert trace.get_current_span().get_span_context().trace_id == PARENT.trace_id
        assert tracing.outgoing()["traceparent"].startswith("00-0af7651916cd43dd8448eb211c80319c-")
    assert not trace.get_current_span().get_span_context().is_valid


def test_without_an_endpoint_nothing_is_configured() -> None:
    tracing.configure("scheduler", None)
    with tracing.incoming("x", {}):
        assert not trace.get_current_span().get_span_context().is_valid
