"""In a process of its own: a meter provider is one per process and cannot be taken back."""

import subprocess
import sys


def python(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


def test_services_of_one_process_share_a_provider_and_differ_by_label() -> None:
    shown = python(
        "from cotenant_common.telemetry.metrics import OpenTelemetryMetrics, render_prometheus\n"
        "for service in ('scheduler', 'quota'):\n"
        "    metrics = OpenTelemetryMetrics(service)\n"
        "    metrics.counter('cotenant_bus_errors_total', 'errors').add(2, {'kind': 'timeout'})\n"
        "    metrics.histogram('cotenant_cycle_seconds', 'time').record(0.5)\n"
        "    metrics.gauge('cotenant_queue_pods', 'waiting').set(3)\n"
        "    assert metrics.counter('cotenant_x', '') is metrics.counter('cotenant_x', '')\n"
        "print(render_prometheus().decode())\n"
    )
    for service in ("scheduler", "quota"):
        assert f'service="{service}"' in shown
    assert 'kind="timeout"' in shown
    assert "cotenant_queue_pods" in shown
    assert "cotenant_cycle_seconds_bucket" in shown


def test_what_is_optional_is_not_imported() -> None:
    loaded = python(
        "import sys\n"
        "import cotenant_common.runtime.service, cotenant_common.bus.memory_bus, cotenant_common.testing.context\n"
        "heavy = ('aiohttp', 'nats', 'opentelemetry.sdk', 'opentelemetry.exporter', 'requests', 'google')\n"
        "print([name for name in heavy if name in sys.modules])\n"
    )
    assert loaded.strip() == "[]"


def test_null_metrics_measure_nothing() -> None:
    from cotenant_common.telemetry.metrics import null_metrics

    metrics = null_metrics()
    metrics.counter("a", "b").add(1, {"x": "y"})
    metrics.histogram("a", "b").record(1)
    metrics.gauge("a", "b").set(1)


def test_seconds_have_buckets_below_a_second() -> None:
    shown = python(
        "from cotenant_common.telemetry.metrics import OpenTelemetryMetrics, render_prometheus\n"
        "OpenTelemetryMetrics('x').histogram('cotenant_x_seconds', 'time').record(0.02)\n"
        "print(render_prometheus().decode())\n"
    )
    assert 'cotenant_x_seconds_bucket{le="0.01",service="x"} 0.0' in shown
    assert 'cotenant_x_seconds_bucket{le="0.025",service="x"} 1.0' in shown


def test_a_gauge_can_be_read_when_it_is_asked_for() -> None:
    shown = python(
        "from cotenant_common.telemetry.metrics import OpenTelemetryMetrics, render_prometheus\n"
        "state = {'ready': 0}\n"
        "OpenTelemetryMetrics('x').observe_gauge('cotenant_service_state', 'state', lambda: state)\n"
        "state['ready'] = 1\n"
        "print(render_prometheus().decode())\n"
    )
    assert 'cotenant_service_state{kind="ready",service="x"} 1.0' in shown
