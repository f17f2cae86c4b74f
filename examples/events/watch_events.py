"""Prints what happens in a running stack, as it happens. Needs nats-py and msgpack, and nothing of Cotenant."""

import asyncio
import json
import os
import sys
from pathlib import Path

import msgpack
import nats


async def main(home: Path) -> None:
    url = json.loads((home / "stack.json").read_text())["nats_url"]
    connection = await nats.connect(url, token=(home / "nats-token").read_text().strip())
    async for message in (await connection.subscribe("cotenant.v1.evt.>")).messages:
        kind, event = (message.headers or {}).get("ce-type"), msgpack.unpackb(message.data)
        print(kind, event["object"], event.get("reason") or "", event.get("message", ""), flush=True)


if __name__ == "__main__":
    default = os.environ.get("COTENANT_HOME") or "~/.local/state/cotenant"
    try:
        asyncio.run(main(Path(sys.argv[1] if len(sys.argv) > 1 else default).expanduser()))
    except FileNotFoundError as missing:
        sys.exit(f"no stack runs here: {missing}")
    except KeyboardInterrupt:
        sys.exit(130)
