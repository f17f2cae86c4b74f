"""``cotenant``: parse, run one command, turn what went wrong into one line and an exit status."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from cotenant.cli import (
    brakes,
    control,
    develop,
    hollow,
    insight,
    install,
    lifecycle,
    objects,
    operations,
    plan,
    quota,
    replay,
    scenarios,
    session,
    work,
)
from cotenant.errors import CotenantError, ExitStatus

app = typer.Typer(
    help="Run batch work on the machines that latency-critical services already occupy, and keep those services fast.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_MODULES = (
    lifecycle, objects, work, insight, quota, control, brakes, operations, install, plan, scenarios, replay, hollow,
    develop,
)  # fmt: skip
for module in _MODULES:
    module.register(app)


@app.callback()
def common(
    home: Annotated[Path | None, typer.Option(help="State directory of the stack; default $COTENANT_HOME.")] = None,
    url: Annotated[str | None, typer.Option(help="Gateway to talk to instead of the local stack's.")] = None,
    token_file: Annotated[Path | None, typer.Option(help="File that holds the gateway's token.")] = None,
) -> None:
    session.choose_target(home, url, token_file)


def main(arguments: list[str] | None = None) -> int:
    """The entry point: never a traceback for what a user did."""
    try:
        status = app(arguments, standalone_mode=False)
    except CotenantError as error:
        complain(str(error))
        return int(error.exit_status)
    except typer.TyperException as error:
        return _usage(error)
    except typer.Abort:
        return int(ExitStatus.INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output has seen enough; what is left must not fail at interpreter exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return int(status) if isinstance(status, int) else 0


def _usage(error: typer.TyperException) -> int:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "cotenant"
    text = error.format_message()
    if context is not None and len(text) > 200:  # the help text that a bare `cotenant` asks for
        print(text)
        return int(ExitStatus.BAD_INPUT)
    complain(f"{text or 'bad usage'} (`{command} --help` shows the options)")
    return int(ExitStatus.BAD_INPUT)


def complain(text: str) -> None:
    print(f"cotenant: {text}", file=sys.stderr)
