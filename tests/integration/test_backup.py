"""Backup and restore on a real nats-server: revisions survive, what is there is left alone, a stack comes back."""

import asyncio
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cotenant.backup import archive, store
from cotenant.cli.main import main
from cotenant.client import CotenantClient
from cotenant.errors import BadInputError, CotenantError, RefusedError
from cotenant.stack.home import StackHome, load_record, start_ticks
from cotenant.stack.options import StackOptions
from cotenant.stack.run import embedded_stack
from cotenant.testing import quiet
from cotenant_common.bus.nats_bus import NatsBus, connect
from cotenant_common.bus.protocol import Delete, Put
from cotenant_common.contracts.buckets import BINDINGS, HEARTBEATS, SPECS
from cotenant_common.testing.nats_server import NatsServer, find_nats_server

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(find_nats_server() is None, reason="no nats-server on this machine"),
]


@asynccontextmanager
async def running_bus() -> AsyncIterator[NatsBus]:
    """On a server of its own, with an empty store."""
    async with NatsServer() as server:
        bus = await connect([server.url], name="gateway")
        try:
            yield bus
        finally:
            await bus.close()


async def filled(bus: NatsBus, keys: int = 300) -> dict[str, int]:
    """Specs with gaps in their revisions; the revision of every live key."""
    specs = await bus.bucket(SPECS)
    for at in range(keys):
        await specs.put(f"Pod.default.p{at}", b"%d" % at * 400)
    await specs.batch([Put("Pod.default.p1", b"again", expect=2), Delete("Pod.default.p0")])
    bindings = await bus.bucket(BINDINGS)
    await bindings.create("uid-1.node-a", b"bound")
    await (await bus.bucket(HEARTBEATS)).put("node-a", b"alive", ttl_s=5)
    return {key: entry.revision for key in await specs.keys() if (entry := await specs.get(key)) is not None}


async def take(bus: NatsBus, path: Path) -> archive.Manifest:
    return await store.take(bus.snapshots(), path, server="test", events=True, say=quiet)


async def give_back(bus: NatsBus, path: Path, *, force: bool = False) -> None:
    with archive.read(path) as found:
        await store.give_back(bus.snapshots(), found, force=force, replicas=None, say=quiet)


async def test_a_restored_store_has_every_key_at_its_revision(tmp_path: Path) -> None:
    path = tmp_path / "state.backup"
    async with running_bus() as bus:
        before = await filled(bus)
        written = await take(bus, path)
        last = await (await bus.bucket(SPECS)).last_revision()
    assert path.stat().st_mode & 0o777 == 0o600
    assert written.changed_meanwhile == ()
    assert HEARTBEATS.stream not in {entry.stream for entry in written.streams}
    async with running_bus() as bus:
        await give_back(bus, path)
        specs = await bus.bucket(SPECS)
        after = {key: entry.revision for key in await specs.keys() if (entry := await specs.get(key)) is not None}
        assert after == before
        assert await specs.last_revision() == last
        entry = await specs.get("Pod.default.p1")
        assert entry is not None
        assert entry.value == b"again"
        # Expectations go on where they stood, and the next write continues the count.
        assert await specs.update("Pod.default.p1", b"next", entry.revision) == last + 1
        assert await (await bus.bucket(BINDINGS)).get("uid-1.node-a") is not None


async def test_a_store_that_holds_something_is_left_alone_unless_forced(tmp_path: Path) -> None:
    path = tmp_path / "state.backup"
    async with running_bus() as bus:
        await filled(bus, 3)
        await take(bus, path)
        specs = await bus.bucket(SPECS)
        await specs.put("Pod.default.later", b"1")
        with pytest.raises(RefusedError, match=r"not empty \(KV_cotenant-specs 4 messages.*--force"):
            await give_back(bus, path)
        assert await specs.get("Pod.default.later") is not None
        await give_back(bus, path, force=True)
        assert await (await bus.bucket(SPECS)).keys() == ["Pod.default.p1", "Pod.default.p2"]


async def test_a_failed_backup_leaves_the_earlier_file(tmp_path: Path) -> None:
    path = tmp_path / "state.backup"
    path.write_text("yesterday")
    async with running_bus() as bus:
        with pytest.raises(CotenantError, match="nothing to back up"):
            await take(bus, path)
    assert path.read_text() == "yesterday"
    assert list(tmp_path.iterdir()) == [path]


async def a_backup(tmp_path: Path) -> Path:
    path = tmp_path / "state.backup"
    async with running_bus() as bus:
        await filled(bus, 3)
        await take(bus, path)
    return path


def rewritten(path: Path, change: dict[str, bytes]) -> Path:
    """The same tar with other contents for some members."""
    target = path.with_suffix(".changed")
    with tarfile.open(path) as source, tarfile.open(target, "w") as sink:
        for member in source.getmembers():
            content = source.extractfile(member)
            assert content is not None
            data = change.get(member.name, content.read())
            member.size = len(data)
            sink.addfile(member, io.BytesIO(data))
    return target


async def test_damage_is_found_before_anything_is_written(tmp_path: Path) -> None:
    path = await a_backup(tmp_path)
    stream = f"streams/{SPECS.stream}.snapshot"
    with pytest.raises(BadInputError, match=f"{stream} is damaged"), archive.read(rewritten(path, {stream: b"x"})):
        pass
    changed = rewritten(path, {"manifest.json": b"{}"})
    with pytest.raises(BadInputError, match=r"manifest\.json is damaged"), archive.read(changed):
        pass
    (tmp_path / "short").write_bytes(path.read_bytes()[:700])
    with pytest.raises(BadInputError, match=r"damaged|missing"), archive.read(tmp_path / "short"):
        pass
    (tmp_path / "text").write_text("hello")
    with pytest.raises(BadInputError, match="is no backup"), archive.read(tmp_path / "text"):
        pass


async def test_a_newer_format_is_refused_by_name(tmp_path: Path) -> None:
    path = await a_backup(tmp_path)
    with tarfile.open(path) as source:
        content = source.extractfile("manifest.json")
        assert content is not None
        data = json.loads(content.read()) | {"formatVersion": 2}
    text = json.dumps(data).encode()
    newer = rewritten(
        path, {"manifest.json": text, "manifest.sha256": hashlib.sha256(text).hexdigest().encode() + b" x\n"}
    )
    with pytest.raises(BadInputError, match="format 2 is newer"), archive.read(newer):
        pass


QUOTA = """
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: ElasticQuota
metadata: {name: team, namespace: default}
spec:
  min: {cpu: 100m, memory: 64Mi}
  max: {cpu: "1", memory: 1Gi}
"""


def service(mark: Path) -> str:
    return f"""
apiVersion: v1
kind: Pod
metadata:
  name: kept
  namespace: default
  labels: {{koordinator.sh/qosClass: LS, quota.scheduling.koordinator.sh/name: team}}
spec:
  priorityClassName: koord-prod
  securityContext: {{runAsUser: {os.getuid()}}}
  containers:
    - name: main
      command: [/bin/sh, -c, "echo $$$$ >> {mark}; exec sleep 300"]
      resources: {{requests: {{cpu: 50m, memory: 16Mi}}}}
"""


async def first_life(home: StackHome, mark: Path, file: Path) -> dict[str, object]:
    async with embedded_stack(StackOptions(home=home.root, node="here")) as stack:
        await stack.client.apply(QUOTA)
        await stack.client.apply(service(mark))
        pod = await stack.client.wait_pod("kept", timeout_s=30)
        used = (await quota(stack.client))["used"]
        url, token = stack.plan.nats_url, home.nats_token
        arguments = ["backup", str(file), "--nats-server", url, "--nats-token-file", str(token), "-o", "json"]
        assert await asyncio.to_thread(main, arguments) == 0
    return {"uid": pod["uid"], "used": used}


async def quota(client: CotenantClient) -> dict[str, object]:
    async def charged() -> dict[str, object] | None:
        rows = [row for row in await client.top_quotas() if row["name"] == "team"]
        return rows[0] if rows and rows[0].get("used", {}).get("cpu") else None

    return dict(await client.wait_for(charged, timeout_s=20))


async def second_life(home: StackHome) -> dict[str, object]:
    async with embedded_stack(StackOptions(home=home.root, node="here")) as stack:
        pod = await stack.client.wait_pod("kept", timeout_s=30)
        return {"uid": pod["uid"], "used": (await quota(stack.client))["used"], "restarts": pod["restarts"]}


@pytest.mark.skipif(sys.platform != "linux", reason="the agent needs Linux")
def test_a_stack_that_lost_its_store_comes_back_with_its_pods(home: StackHome, tmp_path: Path) -> None:
    mark, file = tmp_path / "pids", tmp_path / "state.backup"
    before = asyncio.run(first_life(home, mark, file))
    (pid,) = (int(line) for line in mark.read_text().split())
    started = start_ticks(pid)
    assert started is not None
    shutil.rmtree(home.nats / "jetstream")
    assert main(["--home", str(home.root), "restore", str(file), "--yes", "-o", "json"]) == 0
    after = asyncio.run(second_life(home))
    assert after == {**before, "restarts": 0}
    # The very process, started once and charged once.
    assert [int(line) for line in mark.read_text().split()] == [pid]
    assert start_ticks(pid) == started
    assert load_record(home) is not None


async def test_a_backup_can_go_through_a_pipe(tmp_path: Path) -> None:
    async with NatsServer() as server:
        bus = await connect([server.url], name="gateway")
        await filled(bus, 3)
        await bus.close()
        program = [sys.executable, "-c", "import sys; from cotenant.cli.main import main; sys.exit(main())"]
        wire = ["--nats-server", server.url]
        taken = await asyncio.to_thread(subprocess.run, [*program, "backup", "-", *wire], capture_output=True)
        assert taken.returncode == 0, taken.stderr
        (tmp_path / "piped").write_bytes(taken.stdout)
        with archive.read(tmp_path / "piped") as found:
            assert SPECS.stream in {entry.stream for entry in found.manifest.streams}
        again = [*program, "restore", "-", "--yes", "--force", *wire]
        given = await asyncio.to_thread(subprocess.run, again, input=taken.stdout, capture_output=True)
        assert given.returncode == 0, given.stderr
