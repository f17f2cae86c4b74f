"""`python3 deploy/compose/stack.py up|down|check`: the stack of docker-compose.yml, from first to last container.

`down` ends the pods before the volumes go; `check` brings a stack of its own up, runs the example workload, kills every
container once and says what it saw. Needs Python, a Docker engine and compose, nothing of this repository's packages.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).parent))
import slices

ROOT = Path(__file__).parents[2]
NODES = ("node-a", "node-b")
SERVICES = ("gateway", "scheduler", "quota", "profiler", "descheduler", *NODES)
LEAVE = ("-m", "cotenant_agent.leave")
HEALTH = ("python3", "-I", "-S", "/opt/cotenant/healthcheck.py")
NATS_HEALTH = ("wget", "-q", "-O", "/dev/null", "http://127.0.0.1:8222/healthz")
TIMEOUT_S = 60.0
UNITS = 12
OBSERVER = ("python", "/example/subscribe.py", "nats://nats:4222", "siem", "/run/cotenant/login/observer-siem.secret")
PROJECT = "cotenant-test"


class CheckError(Exception):
    """The stack is not what it should be."""


def compose_command() -> list[str]:
    """$COMPOSE, `docker compose`, or `docker-compose` of version 2."""
    if named := os.environ.get("COMPOSE"):
        return shlex.split(named)
    probe = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
    if probe.returncode == 0:
        return ["docker", "compose"]
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    sys.exit("compose: neither `docker compose` nor docker-compose is here; install compose or set COMPOSE")


class Stack:
    """One compose project; ``project`` None is the one that docker-compose.yml names."""

    def __init__(self, project: str | None = None, environment: dict[str, str] | None = None) -> None:
        self.command = [*compose_command(), *(["--project-name", project] if project else [])]
        self.environment = {**os.environ, **(environment or {})}

    def compose(self, *arguments: str, check: bool = True, quiet: bool = True) -> str:
        done = subprocess.run(
            [*self.command, *arguments], cwd=ROOT, env=self.environment, check=False, text=True,
            stdout=subprocess.PIPE if quiet else None, stderr=subprocess.PIPE if quiet else None,
        )  # fmt: skip
        if check and done.returncode:
            raise CheckError(f"{' '.join(arguments)}: status {done.returncode}: {(done.stderr or '').strip()[-1500:]}")
        return done.stdout or ""

    def pipe(self, data: bytes, *arguments: str) -> bytes:
        """Bytes in, bytes out. Raise CheckError."""
        done = subprocess.run(
            [*self.command, *arguments], cwd=ROOT, env=self.environment, check=False, input=data, capture_output=True
        )
        if done.returncode:
            raise CheckError(f"{' '.join(arguments)}: status {done.returncode}: {done.stderr.decode()[-1500:]}")
        return done.stdout

    def up(self) -> None:
        self.compose("up", "-d", "--wait", "--wait-timeout", "120", quiet=False)

    def build(self) -> None:
        self.compose("--profile", "tools", "build", quiet=False)

    def down(self, *, volumes: bool) -> list[str]:
        """What each node said when it left. Without ``volumes``, what the stack knows stays in them."""
        self.compose("stop", *NODES)
        said = [
            self.compose("run", "--rm", "--no-deps", "--entrypoint", "python", node, *LEAVE).strip() for node in NODES
        ]
        self.compose("--profile", "*", "down", "--remove-orphans", *(["--volumes"] if volumes else []), quiet=False)
        return said

    def cli(self, *arguments: str) -> str:
        return self.compose("run", "--rm", "--no-deps", "cli", *arguments)

    def query(self, *arguments: str) -> Any:
        return json.loads(self.cli(*arguments, "-o", "json"))

    def inspect(self, service: str, form: str) -> str:
        (container,) = self.compose("ps", "-q", service).split()
        return subprocess.run(
            ["docker", "inspect", "-f", form, container], check=True, capture_output=True, text=True
        ).stdout.strip()

    def healthy(self, service: str) -> bool:
        question = NATS_HEALTH if service == "nats" else HEALTH
        done = subprocess.run(
            [*self.command, "exec", "-T", service, *question],
            cwd=ROOT, env=self.environment, check=False, capture_output=True,
        )  # fmt: skip
        return done.returncode == 0

    def on_host(self, script: str) -> str:
        """A shell among the host's processes: the agents share their numbers with the host."""
        return self.compose("exec", "-T", "node-a", "sh", "-c", script)


def wait(what: str, check: Callable[[], bool], timeout_s: float = TIMEOUT_S) -> float:
    """Seconds until it holds. Raise CheckError."""
    began = time.monotonic()
    while not check():
        if time.monotonic() - began > timeout_s:
            raise CheckError(f"{what}: not within {timeout_s:g} s")
        time.sleep(0.2)
    return time.monotonic() - began


def say(text: str) -> None:
    print(f"compose-test: {text}", flush=True)


def expect(holds: bool, text: str) -> None:
    if not holds:
        raise CheckError(f"expected that {text}")
    say(f"ok: {text}")


def service_pods(stack: Stack) -> list[dict[str, Any]]:
    return [pod for pod in stack.query("get", "pods") if pod["name"].startswith("http-service-")]


def processes_of(stack: Stack, uid: str) -> list[str]:
    """Pids on the host in the pod's cgroup, whichever node and cgroup version."""
    files = f"find /sys/fs/cgroup -path '*pod{uid}*' -name cgroup.procs"
    return stack.on_host(f"cat $({files}) 2>/dev/null | sort -un").split()


def check_slices(stack: Stack) -> None:
    nodes = stack.query("get", "nodes")
    expect(sorted(node["name"] for node in nodes) == list(NODES), "both nodes are registered")
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cpu = sum(node["allocatable"]["cpu"] for node in nodes)
    expect(cpu <= 1000 * cores, f"allocatable cpu {cpu}m is at most the machine's {1000 * cores}m")
    sold = sum(node["allocatable"]["memory"] for node in nodes)
    expect(sold <= memory, f"allocatable memory {sold >> 20} MiB is at most the machine's {memory >> 20} MiB")


def check_logins(stack: Stack) -> None:
    """Each container has one login, only its own user reads it, and the server knows each connection by another."""
    seen = set()
    for service in SERVICES:
        files = stack.compose(
            "exec", "-T", service, "sh", "-c", "cd /run/cotenant/login && stat -c '%n %a %u' *"
        ).split("\n")
        user = "0" if service in NODES else "10001"
        wanted = ["nkey", *(["api-token"] if service == "gateway" else [])]
        expect(
            sorted(filter(None, files)) == sorted(f"{name} 400 {user}" for name in wanted),
            f"{service} sees {' and '.join(wanted)} of its own and no other secret",
        )
        seen.add(stack.compose("exec", "-T", service, "cat", "/run/cotenant/login/nkey"))
    expect(len(seen) == len(SERVICES), "no two of them have the same login")
    known = users(stack)
    expect(None not in known and len(known) == len(SERVICES), f"nats-server tells {len(known)} users apart")


def users(stack: Stack) -> set[str | None]:
    """Public keys of those who are connected; None for somebody without a login."""
    asked = ("wget", "-q", "-O", "-", "http://127.0.0.1:8222/connz?auth=true")
    connections = json.loads(stack.compose("exec", "-T", "nats", *asked))["connections"]
    return {each.get("authorized_user") for each in connections}


def check_observer(stack: Stack) -> None:
    """A tool that may read events, and only that. It would read for ever, so it is ended after some seconds."""
    tool = stack.compose(
        "run", "--rm", "--no-deps", "-T", "--entrypoint", "timeout", "observer", "10", *OBSERVER, check=False
    )
    expect("pod.bound" in tool, f"the observer read {len(tool.splitlines())} events")


def check_rotation(stack: Stack) -> None:
    """New secrets for all while pods run: the server is told, connections end, services come back with the new ones."""
    (pod,) = service_pods(stack)
    processes = processes_of(stack, pod["uid"])
    before = users(stack)
    stack.compose("run", "--rm", "--no-deps", "setup", "--rotate")
    stack.compose("kill", "-s", "HUP", "nats")

    def rotated() -> bool:
        now = users(stack)
        return len(now) == len(SERVICES) and not now & before and all(stack.healthy(each) for each in SERVICES)

    took = wait("everything is back with new logins", rotated, 2 * TIMEOUT_S)
    (after,) = service_pods(stack)
    expect(
        (after["uid"], after["restarts"]) == (pod["uid"], 0) and processes_of(stack, pod["uid"]) == processes,
        f"all logins were replaced in {took:.0f} s, the pod's processes are the same",
    )


def check_privileges(stack: Stack) -> None:
    for service in SERVICES:
        user = stack.compose("exec", "-T", service, "id", "-u").strip()
        privileged = stack.inspect(service, "{{.HostConfig.Privileged}}")
        wanted = "0" if service in NODES else "10001"
        expect(user == wanted and privileged == "false", f"{service} runs as {wanted}, not privileged")


def run_examples(stack: Stack) -> None:
    stack.cli("apply", "-f", "examples/http-service/http-service.yaml", "-f", "examples/batch-job/batch-job.yaml")
    wait("the service is ready", lambda: any(pod["ready"] for pod in service_pods(stack)))
    say("ok: the example service is ready")

    began = time.monotonic()
    while True:
        done, waiting = units(stack)
        # Batch gets what the machine has left: on a busy one the units wait, and each says for what.
        if done == UNITS or (time.monotonic() - began > TIMEOUT_S and (done or busy())):
            break
        if time.monotonic() - began > 3 * TIMEOUT_S:
            raise CheckError(f"{done} of {UNITS} units finished; the first one waiting says: {waiting[:1]}")
        time.sleep(1)
    expect(all("batch-cpu" in reason for reason in waiting), f"{done} of {UNITS} units of the example job are done")
    if waiting:
        say(f"the others wait for idle cpu: {waiting[0]}")


def busy() -> bool:
    """True when other work wants all of this machine, so that nothing is left to lend to batch."""
    return os.getloadavg()[0] > len(os.sched_getaffinity(0))


def units(stack: Stack) -> tuple[int, list[str]]:
    """How many units of the example job are done, and what those that run nowhere wait for."""
    pods = [pod for pod in stack.query("get", "pods") if pod["owner"] == "Job/default/digest"]
    waiting = [str(pod["message"]) for pod in pods if pod["phase"] == "Pending" and pod["node"] is None]
    return sum(pod["phase"] == "Succeeded" for pod in pods), waiting


def kill(stack: Stack, service: str) -> float:
    """``kill -9`` of the container's first process; seconds until it serves again."""
    before = int(stack.inspect(service, "{{.RestartCount}}"))
    pid = stack.inspect(service, "{{.State.Pid}}")
    # Not `docker kill`: the engine takes that for a wish and does not start the container again.
    helper = "node-b" if service == "node-a" else "node-a"
    stack.compose("exec", "-T", helper, "sh", "-c", f"kill -9 {pid}")
    wait(f"{service} is started again", lambda: int(stack.inspect(service, "{{.RestartCount}}")) > before)
    return wait(f"{service} is ready again", lambda: stack.healthy(service))


def check_kills(stack: Stack) -> None:
    (pod,) = service_pods(stack)
    processes = processes_of(stack, pod["uid"])
    expect(len(processes) >= 1, f"the service's processes are in its own group ({' '.join(processes)})")
    for service in (*SERVICES, "nats"):
        took = kill(stack, service)
        wait("everything is ready", lambda: all(stack.healthy(each) for each in SERVICES))
        (after,) = service_pods(stack)
        same = (after["uid"], after["restarts"], after["phase"]) == (pod["uid"], 0, "Running")
        expect(
            same and processes_of(stack, pod["uid"]) == processes,
            f"{service} killed, ready again after {took:.1f} s, the pod's processes are the same",
        )
    stack.cli(
        "run",
        "--priority",
        "free",
        "--name",
        "after-kills",
        "--workdir",
        "/tmp",
        "--wait",
        "--",
        "python3",
        "-c",
        "print('ran')",
    )
    expect("ran" in stack.cli("logs", "after-kills"), "a new pod runs, and its output can be read")
    nodes = stack.query("get", "nodes")
    expect(all(node["ready"] for node in nodes), "both nodes are ready")


def check_replace(stack: Stack) -> None:
    """An upgrade: each container is removed and made again, the agents' too."""
    (pod,) = service_pods(stack)
    processes = processes_of(stack, pod["uid"])
    for service in SERVICES:
        stack.compose("up", "-d", "--no-deps", "--force-recreate", "--wait", service)
    (after,) = service_pods(stack)
    expect(
        (after["uid"], after["restarts"]) == (pod["uid"], 0) and processes_of(stack, pod["uid"]) == processes,
        "every service was replaced by a new container, the pod's processes are the same",
    )


def check_restore(stack: Stack) -> None:
    """The store is lost while the pods run; a backup brings everything back to them."""
    (pod,) = service_pods(stack)
    processes = processes_of(stack, pod["uid"])
    backup = stack.pipe(b"", "run", "--rm", "-T", "--no-deps", "cli", "backup", "-")
    stack.compose("stop", *SERVICES, "nats")
    stack.compose("rm", "-f", "nats", "setup")
    subprocess.run(["docker", "volume", "rm", f"{PROJECT}_nats-data"], check=True, capture_output=True)
    stack.compose("up", "-d", "--wait", "nats")
    stack.pipe(backup, "run", "--rm", "-T", "--no-deps", "cli", "restore", "-", "--yes")
    stack.up()
    wait("the pod is known again", lambda: [each["phase"] for each in service_pods(stack)] == ["Running"])
    (after,) = service_pods(stack)
    expect(
        (after["uid"], after["restarts"]) == (pod["uid"], 0) and processes_of(stack, pod["uid"]) == processes,
        f"the store was lost and restored ({len(backup) >> 10} KiB), the pod's processes are the same",
    )


def check_gone(uid_marks: Sequence[str]) -> None:
    left = [str(path) for mark in uid_marks for path in Path("/sys/fs/cgroup").glob(f"*/{mark}*")]
    expect(not left, f"no cgroup of the nodes is left {left or ''}".strip())


PARTS = (
    check_slices,
    check_privileges,
    check_logins,
    run_examples,
    check_observer,
    check_kills,
    check_replace,
    check_rotation,
    check_restore,
)


def check() -> int:
    stack = Stack(PROJECT, {**slices.of_this_machine(), "COTENANT_PORT": os.environ.get("COTENANT_PORT", "17070")})
    began = time.monotonic()
    try:
        stack.build()
        stack.up()
        say(f"ok: up and healthy after {time.monotonic() - began:.0f} s")
        for part in PARTS:
            part(stack)
    except CheckError as error:
        say(f"FAILED: {error}")
        print(stack.compose("logs", "--tail", "20", check=False))
        return 1
    finally:
        for line in stack.down(volumes=True):
            say(line)
    check_gone([f"cotenant-{node}" for node in NODES])
    say(f"passed in {time.monotonic() - began:.0f} s")
    return 0


def usage() -> NoReturn:
    sys.exit(__doc__)


def main(arguments: list[str]) -> int:
    match arguments:
        case ["up"]:
            if slices.keep(ROOT / ".env"):
                print(f"the nodes' slices of this machine are in {ROOT / '.env'}")
            stack = Stack()
            stack.build()
            stack.up()
        case ["down"]:
            print("\n".join(Stack().down(volumes=False)))
        case ["down", "--volumes"]:
            print("\n".join(Stack().down(volumes=True)))
        case ["check"]:
            return check()
        case _:
            usage()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except CheckError as error:
        sys.exit(f"compose: {error}")
