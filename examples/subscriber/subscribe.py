"""Prints events, each once, and goes on after a stop where it was.

Needs nats-py (`nats-py[nkeys]` where logins are nkeys) and msgpack, and nothing of Cotenant.

    python subscribe.py nats://127.0.0.1:4222 siem /etc/cotenant/bus/observer-siem.secret

The last argument is what `cotenant contracts nats-conf --observers siem` wrote; leave it out where the bus asks nobody.
"""

import asyncio
import sys
from pathlib import Path

import msgpack
import nats
from nats.errors import TimeoutError as NothingNewError

STREAM, EVENTS = "COTENANT_EVENTS", "cotenant.v1.evt.>"


def proof(user: str, secret: str) -> dict[str, str]:
    """The seed of an nkey signs what the server asks and stays here; a password is sent."""
    return {"nkeys_seed_str": secret} if secret.startswith("SU") else {"user": user, "password": secret}


async def main(url: str, tool: str, secret: Path | None) -> None:
    # One name for the login, the inbox and the durable consumer: the server lets this user have no other.
    name = f"observer-{tool}"
    login = {} if secret is None else proof(name, secret.read_text().strip())
    connection = await nats.connect(url, name=name, inbox_prefix=f"_INBOX.{name}", **login)
    events = await connection.jetstream().pull_subscribe(EVENTS, durable=name, stream=STREAM)
    while True:
        try:
            messages = await events.fetch(100, timeout=30)
        except NothingNewError:
            continue
        for message in messages:
            kind, event = (message.headers or {}).get("ce-type"), msgpack.unpackb(message.data)
            print(message.metadata.sequence.stream, kind, event["object"], event.get("message", ""), flush=True)
            # After the print: what was not acknowledged comes again, so a crash repeats a line and loses none.
            await message.ack()


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit("usage: subscribe.py URL TOOL [SECRET_FILE]")
    try:
        asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3]) if len(sys.argv) == 4 else None))
    except KeyboardInterrupt:
        sys.exit(130)
