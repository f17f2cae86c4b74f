"""Pages of ``docs/`` that are generated: ``python -m cotenant_gateway.docs DIR`` writes them."""

import sys
from pathlib import Path
from typing import Final

from cotenant_gateway.adapters.http.routes import ROUTES, Route
from cotenant_gateway.core.slo_config import defaults_markdown
from cotenant_gateway.core.validate.table import fields_markdown

_API_HEAD: Final = """# The HTTP API

Generated from the gateway's route table; `GET /v1/openapi.json` says the same to machines.

The gateway listens on loopback. With a token file, every request but `/healthz` needs `Authorization: Bearer <token>`;
an address that other machines can reach is refused without one. A browser may ask only from a page of this machine, or
of a name in `allowed_origins`. Bodies need `Content-Type: application/yaml` or `application/json`.

| method and path | what | query |
|---|---|---|
"""
_API_TAIL: Final = """
## Answers

CPU is in milli-cores, memory in bytes, times in milliseconds since the epoch; `null` is *unknown* or *unset*, never 0.

An error is `{"error": {"reason", "message", "field"?, …}, "message"}` with one sentence:

| status | when |
|---|---|
| 400 | the input is wrong; `field` says where, `errors` lists all of them for `apply` |
| 401, 403 | no or a wrong token; a browser from elsewhere, or a host name that is not ours |
| 404 | no such path, kind, object or node |
| 409 | refused: the eviction gate, an object in use, or a pod that has not started |
| 413, 415 | the body is too large, or of a type that is not taken |
| 503 | the bus, the scheduler or an agent does not answer, or this gateway only reads; try again |

`POST /v1/apply` takes YAML with many documents, a `kind: List` or a JSON array, and changes all or nothing.

```sh
curl -H 'Content-Type: application/yaml' --data-binary @pod.yaml "$URL/v1/apply?dry_run=true"
```

`POST /v1/evict` takes `{"namespace", "name"}` or `{"victims": [{"namespace", "name", "uid"?}]}`, and optionally `kind`
(`drain` unless said: `move` needs `landing_node`; `preempt` and `reclaim` need `beneficiary`), `id`, `reason`,
`message`, `grace_s` and `deadline_ms`. The same `id` again is the same answer and changes nothing.

## Events

```sh
curl -N "$URL/v1/events?since=10m&type=pod.*"
```

Each event has the stream's sequence as its id. After a break, send the last one in `Last-Event-ID` (browsers do so by
themselves): nothing is missing and nothing comes twice. A comment every 15 s shows that the connection lives. With
`Accept: application/x-ndjson` or `format=ndjson` there is one JSON object per line instead; empty lines are signs of
life.

## Watching objects

`GET /v1/watch?kind=Pod` sends one JSON object per line: `ADDED` for what there is, `SYNCED`, then `ADDED`, `MODIFIED`
and `DELETED`. A reader that is too slow gets `ERROR` and begins again.
"""


def api_markdown() -> str:
    return _API_HEAD + "\n".join(_row(route) for route in ROUTES) + "\n" + _API_TAIL


def _row(route: Route) -> str:
    query = "; ".join(f"`{name}` {text}" for name, text in route.query) or "–"
    return f"| `{route.method} {route.path}` | {route.summary} | {query} |"


def documents() -> dict[str, str]:
    """File name → text."""
    return {"api.md": api_markdown(), "fields.md": fields_markdown(), "policy-defaults.md": defaults_markdown()}


def main() -> int:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "docs")
    for name, text in documents().items():
        (folder / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
