import json

import pytest

from cotenant_common.bus.protocol import Put
from cotenant_common.contracts import buckets, subjects
from cotenant_common.contracts.messages.telemetry import NodeUsage, Usage
from cotenant_common.runtime import requests
from cotenant_common.testing.builders import pod_manifest
from cotenant_common.testing.virtual_loop import in_virtual_time
from cotenant_gateway.core.errors import ApiError
from cotenant_gateway.testing import stage


def keys(body, bucket):
    return [one["key"] for one in body["buckets"][bucket]["entries"]]


@in_virtual_time
async def test_every_bucket_is_told_with_its_revisions():
    async with stage() as s:
        await s.join("n1")
        await s.apply(pod_manifest("a"))
        await s.run_pod("a")
        body = await s.service.snapshots.take()
        assert set(body["buckets"]) == {spec.name for spec in buckets.BUCKETS}
        spec = next(one for one in body["buckets"]["specs"]["entries"] if one["key"] == "Pod.default.a")
        store = s.server.store(buckets.SPECS)
        assert spec["value"]["uid"] == s.pod("a").uid
        assert store.get("Pod.default.a").revision == spec["revision"] <= body["buckets"]["specs"]["revision"]
        assert body["consistent"]
        assert json.loads(json.dumps(body)) == body


@in_virtual_time
async def test_a_lease_is_left_out_and_its_history_is_not():
    async with stage() as s:
        body = await s.service.snapshots.take()
        assert "lease.gateway" not in keys(body, "specs")
        assert "lease.gateway.epoch" in keys(body, "specs")


@in_virtual_time
async def test_the_latest_usage_and_the_deciding_settings_are_told():
    async with stage(not_ready_s=17) as s:
        await s.join("n1")
        await s.settle()
        usage = NodeUsage(node="n1", at_ms=1, interval_ms=1_000, usage=Usage(cpu_milli=5), system=Usage(), pods=[])
        await requests.publish(s.bus, subjects.NODE_USAGE, usage, node="n1")
        await s.settle()
        body = await s.service.snapshots.take()
        assert [(one["node"], one["usage"]["cpu_milli"]) for one in body["usage"]] == [("n1", 5)]
        settings = body["settings"]["gateway"]
        assert settings["not_ready_s"] == 17
        assert not [name for name in settings if "token" in name or "host" in name or "nats" in name]


@in_virtual_time
async def test_what_changes_faster_than_it_is_read_is_named(monkeypatch):
    async with stage() as s:
        store = s.server.store(buckets.BINDINGS)
        opened = s.context.bus.bucket

        async def busy(spec):
            bucket = await opened(spec)
            watch = bucket.watch

            def moving(pattern=">"):
                if spec is buckets.BINDINGS:
                    store.apply([Put("u.n", b"\x80")])
                return watch(pattern)

            monkeypatch.setattr(bucket, "watch", moving)
            return bucket

        monkeypatch.setattr(s.context.bus, "bucket", busy)
        body = await s.service.snapshots.take()
        assert (body["consistent"], body["moved"]) == (False, ["bindings"])
        assert body["buckets"]["bindings"]["entries"][0]["revision"] == store.revision


@in_virtual_time
async def test_without_a_bus_the_answer_is_503():
    async with stage() as s:
        s.context.bus.partition()
        with pytest.raises(ApiError) as problem:
            await s.service.snapshots.take()
        assert problem.value.status == 503
        s.context.bus.heal()


@in_virtual_time
async def test_what_cannot_be_read_is_named_and_left_out():
    async with stage() as s:
        s.server.store(buckets.MIGRATIONS).apply([Put("odd", b"\xc1")])
        body = await s.service.snapshots.take()
        assert body["buckets"]["migrations"]["entries"] == []
        assert [one["key"] for one in body["buckets"]["migrations"]["unreadable"]] == ["odd"]
