"""run, wait, logs: commands as batch work."""

import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotenant.cli.objects import DryRun, Namespace
from cotenant.cli.output import Format, Output, progress, show_data
from cotenant.cli.session import with_client
from cotenant.cli.values import duration_s, kind_and_name, namespace_for
from cotenant.errors import BadInputError, CotenantError, DoesNotFitError, ExitStatus, NotFoundError

if TYPE_CHECKING:
    from cotenant.client import CotenantClient


def register(app: typer.Typer) -> None:
    app.command(context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False})(run)
    app.command()(wait)
    app.command()(logs)


def run(  # noqa: PLR0913, PLR0917 - one parameter per option
    command: Annotated[list[str], typer.Argument(metavar="-- CMD [ARG...]", help="What to run.")],
    qos: Annotated[str, typer.Option(help="QoS class: BE, LS, LSR or LSE.")] = "BE",
    priority: Annotated[str | None, typer.Option(help="Priority class: prod, mid, batch or free.")] = None,
    cpu: Annotated[str, typer.Option(help="CPU to ask for, for example 500m or 2.")] = "250m",
    memory: Annotated[str, typer.Option(help="Memory to ask for; also the limit.")] = "256Mi",
    name: Annotated[str | None, typer.Option(help="Name; default from the command.")] = None,
    namespace: Namespace = "default",
    units: Annotated[int | None, typer.Option(min=1, help="Run it N times as a Job.")] = None,
    parallelism: Annotated[int | None, typer.Option(min=1, help="Units at one time.")] = None,
    env: Annotated[list[str] | None, typer.Option("--env", "-e", help="NAME=VALUE; repeatable.")] = None,
    workdir: Annotated[Path | None, typer.Option(help="Working directory; default the present one.")] = None,
    user: Annotated[
        int | None, typer.Option(envvar="COTENANT_RUN_USER", help="User id to run as; default the invoking user.")
    ] = None,
    quota: Annotated[str | None, typer.Option(help="Elastic quota to charge.")] = None,
    wait_: Annotated[bool, typer.Option("--wait", help="Show the output; return when the command ends.")] = False,
    rm: Annotated[bool, typer.Option("--rm", help="Delete it when it has ended; implies --wait.")] = False,
    timeout: Annotated[str | None, typer.Option(help="With --wait: give up after this time.")] = None,
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> int:
    """Run a command as batch work of this machine, beside what runs already."""
    from cotenant import workload  # noqa: PLC0415

    qos_class = workload.parse_qos(qos)
    user_id, group_id = _identity(user)
    spec = workload.CommandSpec(
        command=command,
        name=name or workload.generated_name(command, secrets.token_hex(3)[:5]),
        namespace=namespace,
        qos=qos_class,
        band=workload.parse_band(priority, qos_class),
        cpu_milli=workload.parse_amount("cpu", cpu),
        memory_bytes=workload.parse_amount("memory", memory),
        working_dir=str((workdir or Path.cwd()).absolute()),
        user_id=user_id,
        group_id=group_id,
        environment=_environment(env or []),
        units=units,
        parallelism=parallelism,
        quota=quota,
    )
    wanted = workload.manifest(spec)
    timeout_s = duration_s(timeout) if timeout else None

    async def submit(client: "CotenantClient") -> int:
        (result,) = await client.apply(wanted, dry_run=dry_run)
        _tell_submitted(result, output, dry_run=dry_run, aside=wait_ or rm)
        if dry_run or not (wait_ or rm):
            return int(ExitStatus.DONE)
        try:
            return await _see_through(client, wanted["kind"], spec.name, namespace, timeout_s)
        finally:
            if rm:
                await client.delete(wanted["kind"], spec.name, namespace)

    return with_client(submit)


def _identity(user: int | None) -> tuple[int, int]:
    """Who the command runs as. Under sudo that is the person behind it, not root."""
    if user is not None:
        import pwd  # noqa: PLC0415

        try:
            return user, pwd.getpwuid(user).pw_gid
        except KeyError:
            return user, user
    if os.getuid() == 0 and os.environ.get("SUDO_UID", "").isdigit():
        return int(os.environ["SUDO_UID"]), int(os.environ.get("SUDO_GID", os.environ["SUDO_UID"]))
    return os.getuid(), os.getgid()


def _environment(pairs: Sequence[str]) -> dict[str, str]:
    # PATH comes along so that the command that was found here is found there.
    found = {"PATH": os.environ.get("PATH", os.defpath)}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise BadInputError(f"expected --env NAME=VALUE, got {pair!r}")
        found[name] = value
    return found


def _tell_submitted(result: dict[str, Any], output: Format, *, dry_run: bool, aside: bool) -> None:
    """``aside``: standard output belongs to the command's own output."""
    for warning in result.get("warnings") or ():
        print(f"cotenant: warning: {warning}", file=sys.stderr)
    if output in (Format.JSON, Format.YAML):
        show_data(result, output)
    else:
        text = f"{result['kind'].lower()}/{result['name']} {result['action']}{' (dry run)' if dry_run else ''}"
        print(text, file=sys.stderr if aside else sys.stdout)


async def _see_through(
    client: "CotenantClient", kind_name: str, name: str, namespace: str, timeout_s: float | None
) -> int:
    """Follow one command to its end: its output on stdout, its failure as exit status 1."""
    if kind_name == "Job":
        await _wait_job(client, name, namespace, timeout_s or 1e9)
        return int(ExitStatus.DONE)
    started = ("Running", "Succeeded", "Failed")
    await _wait_pod(client, name, namespace, started, timeout_s or 1e9)
    try:
        async for piece in client.logs(name, namespace, follow=True):
            sys.stdout.write(piece)
            sys.stdout.flush()
    except NotFoundError:
        # A command that was not found wrote nothing; the pod says why, and a pod that is gone says that.
        pass
    pod = await _wait_pod(client, name, namespace, ("Succeeded", "Failed"), timeout_s or 60.0)
    if pod["phase"] == "Failed":
        raise CotenantError(f"pod/{name} failed: {pod.get('message') or pod.get('reason') or 'no reason given'}")
    return int(ExitStatus.DONE)


async def _wait_pod(
    client: "CotenantClient", name: str, namespace: str, phases: Sequence[str], timeout_s: float
) -> dict[str, Any]:
    """Raise DoesNotFitError when time runs out and the scheduler found no place."""
    last: dict[str, Any] = {}
    with progress(f"pod/{name}: waiting") as shown:

        async def reached() -> dict[str, Any] | None:
            nonlocal last
            last = await client.pod(name, namespace) or {}
            if not last:
                raise NotFoundError(f"no pod {name!r} in namespace {namespace}")
            shown.say(f"pod/{name}: {last['phase']}" + (f": {last['message']}" if last.get("message") else ""))
            if last["phase"] in phases:
                return last
            _refuse_other_end(last, phases)
            return None

        try:
            return dict(await client.wait_for(reached, timeout_s=timeout_s, every_s=0.2))
        except TimeoutError:
            text = f"pod/{name} is {last.get('phase')} after {timeout_s:g} s, not {' or '.join(phases)}"
            if last.get("phase") == "Pending":
                raise DoesNotFitError(
                    f"{text}: {last.get('message') or last.get('reason') or 'no reason yet'}"
                ) from None
            raise CotenantError(text) from None


def _refuse_other_end(pod: dict[str, Any], phases: Sequence[str]) -> None:
    if pod["phase"] in ("Succeeded", "Failed"):
        why = pod.get("message") or pod.get("reason") or "no reason given"
        raise CotenantError(f"pod/{pod['name']} is {pod['phase']}, not {' or '.join(phases)}: {why}")


async def _wait_job(client: "CotenantClient", name: str, namespace: str, timeout_s: float) -> None:
    with progress(f"job/{name}: waiting") as shown:

        async def complete() -> bool:
            status = (await client.get("Job", name, namespace)).get("status") or {}
            shown.say(
                f"job/{name}: {status.get('succeeded') or 0} succeeded, {status.get('active') or 0} active, "
                f"{status.get('failed') or 0} failed"
            )
            if status.get("phase") == "Failed":
                conditions = status.get("conditions") or [{}]
                raise CotenantError(f"job/{name} failed: {conditions[0].get('message') or 'no reason given'}")
            return status.get("phase") == "Complete"

        try:
            await client.wait_for(complete, timeout_s=timeout_s, every_s=0.3)
        except TimeoutError:
            raise CotenantError(f"job/{name} is not complete after {timeout_s:g} s") from None


_POD_GOALS = {
    "running": ("Running",),
    "started": ("Running", "Succeeded", "Failed"),
    "succeeded": ("Succeeded",),
    "failed": ("Failed",),
    "finished": ("Succeeded", "Failed"),
}


def wait(
    target: Annotated[list[str], typer.Argument(metavar="NAME|KIND/NAME...", help="A pod, or job/NAME.")],
    goal: Annotated[
        str | None,
        typer.Option("--for", help="running, ready, succeeded, failed, finished, complete or deleted."),
    ] = None,
    timeout: Annotated[str, typer.Option(help="Give up after this time.")] = "5m",
    namespace: Namespace = "default",
) -> int:
    """Wait until pods or jobs are where they should be; status 1 when they are not, 2 when they find no place."""
    timeout_s = duration_s(timeout)
    targets = [kind_and_name(word) for word in target]

    async def all_of_them(client: "CotenantClient") -> None:
        for kind_name, name in targets:
            await _wait_one(client, kind_name, name, namespace, goal, timeout_s)

    with_client(all_of_them)
    return int(ExitStatus.DONE)


async def _wait_one(
    client: "CotenantClient", kind_name: str, name: str, namespace: str, goal: str | None, timeout_s: float
) -> None:
    wanted = (goal or ("complete" if kind_name == "Job" else "finished" if kind_name == "Pod" else "")).lower()
    wanted = wanted.removeprefix("condition=")
    if wanted in ("deleted", "delete"):
        with progress(f"waiting for {kind_name.lower()}/{name} to go"):
            await client.wait_gone(kind_name, name, namespace_for(kind_name, namespace), timeout_s=timeout_s)
    elif kind_name == "Job" and wanted == "complete":
        await _wait_job(client, name, namespace, timeout_s)
    elif kind_name == "Pod" and wanted in _POD_GOALS:
        await _wait_pod(client, name, namespace, _POD_GOALS[wanted], timeout_s)
    elif kind_name == "Pod" and wanted == "ready":
        await _wait_ready(client, name, namespace, timeout_s)
    else:
        raise BadInputError(f"cannot wait for {kind_name.lower()} to be {goal!r}")
    print(f"{kind_name.lower()}/{name} {wanted}")


async def _wait_ready(client: "CotenantClient", name: str, namespace: str, timeout_s: float) -> None:
    await _wait_pod(client, name, namespace, ("Running",), timeout_s)

    async def ready() -> bool:
        pod = await client.pod(name, namespace) or {}
        _refuse_other_end({"name": name, "phase": pod.get("phase"), **pod}, ("Ready",))
        return bool(pod.get("ready"))

    try:
        await client.wait_for(ready, timeout_s=timeout_s)
    except TimeoutError:
        raise CotenantError(f"pod/{name} runs but is not ready after {timeout_s:g} s") from None


def logs(
    pod: Annotated[str, typer.Argument(metavar="POD")],
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until the pod ends.")] = False,
    tail: Annotated[int | None, typer.Option(min=0, help="Only the last N lines.")] = None,
    namespace: Namespace = "default",
) -> int:
    """Print what a pod wrote."""
    _, name = kind_and_name(pod)

    async def copy(client: "CotenantClient") -> None:
        async for piece in client.logs(name, namespace, tail=tail, follow=follow):
            sys.stdout.write(piece)
            sys.stdout.flush()

    with_client(copy)
    return int(ExitStatus.DONE)
