import asyncio
import os
import pwd
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cotenant_agent.runtime import ContainerLaunch, ContainerPhase, EnvVar, LaunchError, Rlimit, pod_runtime
from cotenant_agent.runtime import state as states
from cotenant_agent.runtime.testing import Bench, is_gone, kill, make_runtime, pod, py, sh

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="running as another user needs root")


async def test_exit_code_reaches_the_watcher(bench: Bench) -> None:
    (started,) = await bench.runtime.start(pod(sh("exit 7")))
    ended = await bench.ended()
    assert (ended.exit_code, ended.signal, ended.status_code) == (7, None, 7)
    assert ended.pid == started.pid
    assert ended.ran_ms is not None


async def test_death_by_signal_is_not_an_exit_code(bench: Bench) -> None:
    await bench.runtime.start(pod(sh("kill -USR1 $$$$")))
    ended = await bench.ended()
    assert (ended.exit_code, ended.signal, ended.status_code) == (None, signal.SIGUSR1, 128 + signal.SIGUSR1)


async def test_each_end_is_told_once(bench: Bench) -> None:
    await bench.runtime.start(pod(sh("true")))
    told: list[object] = []
    await bench.until(lambda: told.extend(bench.runtime.poll()) or told)
    assert bench.runtime.poll() == []


async def test_repeated_start_changes_nothing(bench: Bench) -> None:
    launch = pod(sh("sleep 60"))
    assert await bench.runtime.start(launch) == await bench.runtime.start(launch)


async def test_containers_of_a_pod_run_side_by_side(bench: Bench) -> None:
    states_ = await bench.runtime.start(pod(sh("sleep 60"), replace(sh("sleep 60"), name="side")))
    assert {s.container for s in states_} == {"main", "side"}
    result = await bench.runtime.stop("uid-1", 10_000, containers=["side"])
    assert {s.container: s.phase for s in result.containers} == {
        "main": ContainerPhase.RUNNING,
        "side": ContainerPhase.EXITED,
    }


async def test_a_pod_starts_whole_or_not_at_all(bench: Bench) -> None:
    bad = ContainerLaunch("bad", command=("/bin/sh",), rlimits=(Rlimit("nofile", 10, 5),))
    with pytest.raises(LaunchError) as caught:
        await bench.runtime.start(pod(sh("sleep 60"), bad))
    assert caught.value.field == "rlimits"
    assert bench.runtime.containers() == ()
    assert not list(bench.state_dir.glob("pods/*/*/state.json"))


async def test_restart_counts_attempts_and_keeps_the_log(bench: Bench) -> None:
    launch = pod(sh("echo again"))
    await bench.runtime.start(launch)
    await bench.ended()
    assert (await bench.runtime.restart(launch, "main")).attempt == 1
    await bench.ended()
    assert await bench.output() == b"again\nagain\n"


async def test_output_of_both_streams_keeps_its_order(bench: Bench) -> None:
    await bench.runtime.start(pod(sh("echo one; echo two >&2; echo three")))
    assert await bench.output(follow=True) == b"one\ntwo\nthree\n"


async def test_workload_may_reopen_its_standard_output(bench: Bench) -> None:
    user = {"run_as_user": "nobody"} if os.geteuid() == 0 else {}
    await bench.runtime.start(pod(sh("echo hello > /dev/stdout", **user)))
    assert await bench.output(follow=True) == b"hello\n"


async def test_child_that_obeys_is_not_killed(bench: Bench) -> None:
    await bench.runtime.start(pod(sh("sleep 60")))
    result = await bench.runtime.stop("uid-1", 15_000)
    assert not result.killed
    assert result.containers[0].signal == signal.SIGTERM


async def test_child_that_ignores_sigterm_is_killed_after_grace(bench: Bench) -> None:
    await bench.runtime.start(pod(sh("trap '' TERM; echo ready; while :; do sleep 60; done")))
    log = bench.state_dir / "pods/uid-1/main/log"
    await bench.until(lambda: log.exists() and b"ready" in log.read_bytes())
    result = await bench.runtime.stop("uid-1", 50)
    assert result.killed
    assert (result.containers[0].signal, result.left) == (signal.SIGKILL, 0)


async def test_stop_goes_on_until_the_group_is_empty(bench: Bench) -> None:
    await bench.runtime.start(pod(sh("sleep 60")))
    rounds = iter([3, 1, 0])
    told: list[int] = []
    result = await bench.runtime.stop("uid-1", 10_000, pids=lambda: told, kill_all=lambda: next(rounds))
    assert result.left == 0
    assert next(rounds, None) is None


async def test_stop_reports_what_it_could_not_end(tmp_path: Path) -> None:
    runtime = make_runtime(tmp_path, kill_timeout_s=0.05)
    assert (await runtime.stop("uid-1", 0, kill_all=lambda: 2)).left == 2


async def test_daemonised_grandchild_neither_hangs_nor_survives(bench: Bench) -> None:
    await bench.runtime.start(pod(sh("setsid sh -c 'echo $$$$; exec sleep 600' & sleep 0.2; exit 3")))
    ended = await bench.ended()
    assert ended.exit_code == 3
    grandchild = int(await bench.output())
    await bench.until(lambda: is_gone(grandchild))


async def test_environment_of_the_agent_does_not_leak(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COTENANT_TOKEN", "secret")
    await bench.runtime.start(pod(sh("env", env=(EnvVar("A", "1"), EnvVar("B", "$(A)2")))))
    lines = (await bench.output(follow=True)).decode().splitlines()
    names = {line.split("=")[0] for line in lines}
    assert {"PATH", "HOME", "LANG", "USER", "A", "B"} <= names
    assert "COTENANT_TOKEN" not in names
    assert "B=12" in lines


async def test_secrets_are_not_in_the_shims_arguments(bench: Bench) -> None:
    (found,) = await bench.runtime.start(pod(sh("sleep 60", env=(EnvVar("TOKEN", "hunter2"),))))
    shown = Path(f"/proc/{found.shim_pid}/cmdline").read_bytes()
    assert b"default/web" in shown
    assert b"hunter2" not in shown + Path(f"/proc/{found.shim_pid}/environ").read_bytes()
    assert "hunter2" not in (bench.state_dir / "pods/uid-1/main/state.json").read_text()


async def test_process_joins_its_group_before_it_runs(bench: Bench, tmp_path: Path) -> None:
    procs = [tmp_path / "cpu.procs", tmp_path / "memory.procs"]
    for path in procs:
        path.touch()
    script = f"test -s {procs[0]} && test -s {procs[1]}"
    (found,) = await bench.runtime.start(pod(sh(script, cgroup_procs=tuple(map(str, procs)))))
    assert (await bench.ended()).exit_code == 0
    assert [path.read_text() for path in procs] == [str(found.pid)] * 2


async def test_group_that_refuses_means_that_nothing_runs(bench: Bench, tmp_path: Path) -> None:
    refusing = tmp_path / "cgroup.procs"
    refusing.mkdir()
    with pytest.raises(LaunchError) as caught:
        await bench.runtime.start(pod(sh(f"touch {tmp_path}/ran", cgroup_procs=(str(refusing),))))
    assert caught.value.field == "cgroup"
    assert not (tmp_path / "ran").exists()


async def test_oom_kills_are_counted_where_the_group_says(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "cgroup.procs").touch()
    events = tmp_path / "memory.events"
    events.write_text("low 0\noom_kill 1\n")
    await bench.runtime.start(
        pod(sh(f"echo 'oom_kill 2' > {events}; kill -KILL $$$$", cgroup_procs=(str(tmp_path / "cgroup.procs"),)))
    )
    assert (await bench.ended()).oom_killed is True


async def test_limits_and_scheduling_reach_the_process(bench: Bench) -> None:
    script = (
        "import os, resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], os.nice(0), "
        "os.sched_getscheduler(0), len(os.sched_getaffinity(0)), open('/proc/self/oom_score_adj').read().strip())"
    )
    cpu = min(os.sched_getaffinity(0))
    launch = py(script, rlimits=(Rlimit("nofile", 77, 100),), nice=5, sched_idle=True, cpus=(cpu,), oom_score_adj=500)
    launch = replace(launch, command=tuple(word for word in launch.command if word != "-S"))
    await bench.runtime.start(pod(launch))
    assert (await bench.output(follow=True)).split() == [b"77", b"5", b"5", b"1", b"500"]


@needs_root
async def test_the_shim_of_a_pod_that_gives_way_does_so_and_the_workload_keeps_its_weight(bench: Bench) -> None:
    (started,) = await bench.runtime.start(replace(pod(sh("sleep 60")), gives_way=True))
    assert os.getpriority(os.PRIO_PROCESS, started.shim_pid) == 19
    assert started.pid is not None
    assert os.getpriority(os.PRIO_PROCESS, started.pid) == max(os.getpriority(os.PRIO_PROCESS, 0), 0)


@needs_root
async def test_command_runs_as_the_stated_user(bench: Bench) -> None:
    nobody = pwd.getpwnam("nobody")
    (found,) = await bench.runtime.start(pod(sh("id -u; id -g; id -G; echo $USER", run_as_user="nobody")))
    lines = (await bench.output(follow=True)).decode().splitlines()
    assert lines[:2] == [str(nobody.pw_uid), str(nobody.pw_gid)]
    assert "0" not in lines[2].split()
    assert lines[3] == "nobody"
    assert "runAsUser" in found.run_as


@needs_root
async def test_directory_closed_to_the_user_is_refused(bench: Bench, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(LaunchError) as caught:
        await bench.runtime.start(pod(sh("true", run_as_user="nobody", working_dir=str(closed))))
    assert caught.value.field == "workingDir"


async def test_failed_exec_is_a_refusal(bench: Bench, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    with pytest.raises(LaunchError) as caught:
        await bench.runtime.start(pod(ContainerLaunch("main", command=(str(script),))))
    assert caught.value.field == "command"


async def test_remove_refuses_while_it_runs_and_then_leaves_nothing(bench: Bench) -> None:
    await bench.runtime.start(pod(sh("sleep 60")))
    with pytest.raises(LaunchError):
        await bench.runtime.remove("uid-1")
    await bench.runtime.stop("uid-1", 10_000)
    await bench.runtime.remove("uid-1")
    assert not (bench.state_dir / "pods/uid-1").exists()
    assert bench.runtime.containers() == ()


async def test_exec_answers_with_exit_code_and_output(bench: Bench) -> None:
    launch = pod(sh("sleep 60", env=(EnvVar("A", "1"),)))
    await bench.runtime.start(launch)
    good = await bench.runtime.exec(launch, "main", ("/bin/sh", "-c", "echo A is $A"), 10_000)
    assert (good.ok, good.message) == (True, "exit code 0: A is 1")
    bad = await bench.runtime.exec(launch, "main", ("/bin/sh", "-c", "exit 4"), 10_000)
    assert (bad.ok, bad.message) == (False, "exit code 4")
    missing = await bench.runtime.exec(launch, "main", ("no-such-program",), 10_000)
    assert not missing.ok
    assert "not found" in missing.message


async def test_exec_is_killed_at_its_timeout(bench: Bench) -> None:
    launch = pod(sh("sleep 60"))
    assert not (await bench.runtime.exec(launch, "main", ("true",), 10_000)).ok
    await bench.runtime.start(launch)
    result = await bench.runtime.exec(launch, "main", ("sleep", "60"), 50)
    assert (result.ok, result.message) == (False, "no result within 50 ms")


async def test_start_cut_off_by_the_end_of_an_agent_is_not_made_twice(bench: Bench, tmp_path: Path) -> None:
    launch = pod(sh(f"echo ran >> {tmp_path}/ran"))
    task = asyncio.create_task(bench.runtime.start(launch))
    await bench.until(lambda: bench.runtime._shims)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await bench.new_agent().start(launch)
    assert (await bench.ended()).exit_code == 0
    assert (tmp_path / "ran").read_text() == "ran\n"


async def test_start_does_not_repeat_what_has_ended(bench: Bench) -> None:
    launch = pod(sh("true"))
    await bench.runtime.start(launch)
    ended = await bench.ended()
    assert await bench.runtime.start(launch) == (ended,)


async def test_new_agent_adopts_what_runs(bench: Bench) -> None:
    (before,) = await bench.runtime.start(pod(sh("sleep 60")))
    (after,) = await bench.new_agent().adopt()
    assert after == before
    assert (await bench.runtime.stop("uid-1", 10_000)).containers[0].signal == signal.SIGTERM


async def test_new_agent_learns_of_ends_it_did_not_see(bench: Bench, tmp_path: Path) -> None:
    go = tmp_path / "go"
    (before,) = await bench.runtime.start(pod(sh(f"while ! test -e {go}; do sleep 0.02; done; exit 9")))
    bench.runtime.close()
    go.touch()
    await bench.until(lambda: is_gone(before.shim_pid))
    (after,) = await bench.new_agent().adopt()
    assert (after.phase, after.exit_code) == (ContainerPhase.EXITED, 9)
    assert bench.runtime.poll() == []


async def test_command_outlives_its_shim_and_its_end_is_unknown(bench: Bench, tmp_path: Path) -> None:
    go = tmp_path / "go"
    script = f"while ! test -e {go}; do sleep 0.02; done; head -c 300000 /dev/zero; echo end; exit 5"
    (before,) = await bench.runtime.start(pod(sh(script)))
    kill(before.shim_pid)
    await bench.until(lambda: not bench.runtime.containers()[0].exit_status_known)
    (orphan,) = bench.runtime.containers()
    assert orphan.running
    assert orphan.pid == before.pid
    (adopted,) = await bench.new_agent().adopt()
    assert adopted == orphan
    go.touch()  # far more output than a pipe holds: it ends only if somebody reads
    ended = await bench.ended()
    assert (ended.phase, ended.status_code, ended.exit_status_known) == (ContainerPhase.EXITED, None, False)
    log = bench.state_dir / "pods/uid-1/main/log"
    await bench.until(lambda: log.read_bytes().endswith(b"end\n"))


async def test_shim_and_command_both_killed_is_an_unknown_end(bench: Bench) -> None:
    (before,) = await bench.runtime.start(pod(sh("sleep 60")))
    bench.runtime.close()
    kill(before.shim_pid)
    kill(before.pid)
    assert before.pid is not None
    await bench.until(lambda: is_gone(before.pid or 0) and is_gone(before.shim_pid))
    (after,) = await bench.new_agent().adopt()
    assert (after.phase, after.status_code, after.exit_status_known) == (ContainerPhase.EXITED, None, False)


@pytest.mark.parametrize("what", ["start_ticks", "boot_id"])
async def test_reused_pid_is_not_taken_for_ours(bench: Bench, what: str) -> None:
    (before,) = await bench.runtime.start(pod(sh("sleep 60")))
    mine = states.start_ticks(os.getpid())
    assert mine is not None
    shift = 1 if what == "start_ticks" else 0
    stale = replace(
        before,
        uid="uid-2",
        pid=os.getpid(),
        pid_start_ticks=mine + shift,
        shim_pid=os.getpid(),
        shim_start_ticks=mine + shift,
        boot_id=before.boot_id if shift else "another boot",
    )
    directory = bench.state_dir / "pods/uid-2/main"
    directory.mkdir(parents=True)
    states.write(directory / "state.json", stale)
    await bench.new_agent().adopt()
    (found,) = bench.runtime.containers("uid-2")
    assert (found.phase, found.status_code) == (ContainerPhase.EXITED, None)
    assert (await bench.runtime.stop("uid-2", 0)).left == 0  # and this test lives on


async def test_ends_are_noticed_without_pidfd(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(pid: int, flags: int = 0) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", unsupported)
    await bench.runtime.start(pod(sh("exit 6")))
    assert (await bench.ended()).exit_code == 6


async def test_unreadable_record_is_set_aside(bench: Bench) -> None:
    directory = bench.state_dir / "pods/uid-3/main"
    directory.mkdir(parents=True)
    (directory / "state.json").write_text('{"phase": "run')
    assert await bench.runtime.adopt() == ()
    assert (directory / "state.json.unreadable").exists()


async def test_signals_to_the_agents_group_do_not_end_a_shim(bench: Bench, tmp_path: Path) -> None:
    go = tmp_path / "go"
    (found,) = await bench.runtime.start(pod(sh(f"while ! test -e {go}; do sleep 0.02; done; exit 2")))
    os.kill(found.shim_pid, signal.SIGTERM)
    os.kill(found.shim_pid, signal.SIGINT)
    go.touch()
    ended = await bench.ended()
    assert (ended.exit_code, ended.exit_status_known) == (2, True)


async def test_workload_has_default_signals(bench: Bench) -> None:
    script = "import signal; print([s.name for s in signal.valid_signals() if signal.getsignal(s) == signal.SIG_IGN])"
    await bench.runtime.start(pod(py(script)))
    # This interpreter ignores these two by itself.
    assert await bench.output(follow=True) == b"['SIGPIPE', 'SIGXFSZ']\n"


async def test_remove_waits_for_the_last_output(bench: Bench) -> None:
    launch = pod(sh("echo bye"))
    await bench.runtime.start(launch)
    await bench.until(lambda: states.read(bench.state_dir / "pods/uid-1/main/state.json").exit_code == 0)
    await bench.runtime.stop("uid-1", 0)
    await bench.runtime.remove("uid-1")
    assert not (bench.state_dir / "pods/uid-1").exists()
    assert [found.attempt for found in await bench.runtime.start(launch)] == [0]


async def test_a_record_that_cannot_be_made_starts_nothing_at_all(bench: Bench) -> None:
    (bench.state_dir / "pods" / "uid-1").mkdir(parents=True)
    (bench.state_dir / "pods" / "uid-1" / "side").write_text("in the way")
    with pytest.raises(LaunchError) as caught:
        await bench.runtime.start(pod(sh("sleep 60"), replace(sh("sleep 60"), name="side")))
    assert caught.value.field == "runtime"
    assert bench.runtime.containers() == ()


async def test_a_process_is_asked_to_end_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    (started,) = await bench.runtime.start(pod(sh("sleep 60")))
    asked: list[int] = []
    send = pod_runtime._send

    def remember(how: Callable[[int, int], None], target: int, number: signal.Signals) -> None:
        asked.append(target)
        send(how, target, number)

    monkeypatch.setattr(pod_runtime, "_send", remember)
    pid = started.pid or 0
    await bench.runtime.stop("uid-1", 10_000, pids=lambda: [pid])
    assert asked == [pid]
