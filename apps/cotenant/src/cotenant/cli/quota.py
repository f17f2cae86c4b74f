"""quota tree, hold, drain, resume: who may use how much now, and whether a queue takes work."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotenant.cli import quota_views
from cotenant.cli.objects import DryRun, Namespace
from cotenant.cli.output import Format, Output, show, show_data
from cotenant.cli.session import with_client
from cotenant.cli.views import resource_text
from cotenant.errors import ExitStatus
from cotenant_common.model import labels

if TYPE_CHECKING:
    from cotenant.client import CotenantClient

QuotaName = Annotated[str, typer.Argument(metavar="QUOTA")]


def register(app: typer.Typer) -> None:
    quota_app = typer.Typer(help="Elastic quotas.", no_args_is_help=True, rich_markup_mode=None)
    quota_app.command()(tree)
    quota_app.command()(hold)
    quota_app.command()(drain)
    quota_app.command()(resume)
    app.add_typer(quota_app, name="quota")


def tree(
    tree_: Annotated[str | None, typer.Argument(metavar="TREE")] = None,
    output: Output = Format.TABLE,
) -> int:
    """Every quota with what it is promised, uses, lends and borrows."""

    async def fetch(client: "CotenantClient") -> list[dict[str, Any]]:
        return await client.quota_tree(tree_)

    trees = with_client(fetch)
    if output in (Format.JSON, Format.YAML):
        show_data(trees, output)
    else:
        for entry in trees:
            print(f"tree {entry.get('tree') or 'default'} (total {resource_text(entry.get('total'))})")
            show(quota_views.tree_rows(entry), quota_views.TREE_COLUMNS, output, empty="no quotas")
            for line in quota_views.loan_lines(entry):
                print(line)
    return int(ExitStatus.DONE)


def hold(name: QuotaName, namespace: Namespace = "default", dry_run: DryRun = False) -> int:
    """Admit nothing new into a quota and those below it; what runs goes on."""
    return _set_policy(name, namespace, "Hold", "held", dry_run=dry_run)


def drain(name: QuotaName, namespace: Namespace = "default", dry_run: DryRun = False) -> int:
    """Hold a quota and evict what runs in it, within disruption budgets; it waits until the quota is resumed."""
    return _set_policy(name, namespace, "HoldAndDrain", "held and drained", dry_run=dry_run)


def resume(name: QuotaName, namespace: Namespace = "default", dry_run: DryRun = False) -> int:
    """Admit into a quota again."""
    return _set_policy(name, namespace, None, "resumed", dry_run=dry_run)


def _set_policy(name: str, namespace: str, policy: str | None, word: str, *, dry_run: bool) -> int:
    async def change(client: "CotenantClient") -> list[dict[str, Any]]:
        found = await client.get("ElasticQuota", name, namespace)
        return await client.apply([with_policy(found, policy)], dry_run=dry_run)

    results = with_client(change)
    unchanged = all(result.get("action") == "unchanged" for result in results)
    done = f"would be {word}" if dry_run else word
    print(f"elasticquota/{name} {'unchanged' if unchanged else done}")
    return int(ExitStatus.DONE)


def with_policy(manifest: dict[str, Any], policy: str | None) -> dict[str, Any]:
    """The same quota with another stop policy; nothing of what the system adds to a manifest."""
    metadata = manifest.get("metadata") or {}
    annotations = {
        key: value for key, value in (metadata.get("annotations") or {}).items() if key != labels.QUOTA_STOP_POLICY
    }
    if policy is not None:
        annotations[labels.QUOTA_STOP_POLICY] = policy
    kept: dict[str, Any] = {key: metadata[key] for key in ("name", "namespace", "labels") if metadata.get(key)}
    rest: dict[str, Any] = {key: manifest[key] for key in ("apiVersion", "kind", "spec") if key in manifest}
    return {**rest, "metadata": {**kept, "annotations": annotations}}
