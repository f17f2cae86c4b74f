#!/usr/bin/env python3
"""HEALTHCHECK of the images: /healthz and /readyz of this container must answer 200. Prints the answer that does not.

A bare socket: an HTTP client would be ten times the cost of the question, every ten seconds, in every container.
"""

import os
import socket
import sys


def ask(path: str, port: int) -> tuple[int, str]:
    with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
        connection.sendall(f"GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n".encode())
        answer = b"".join(iter(lambda: connection.recv(65536), b"")).decode("utf-8", "replace")
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split(" ", 2)[1]), body.strip()


def main() -> int:
    port = int(os.environ.get("COTENANT_HTTP_PORT", "9100"))
    for path in ("/healthz", "/readyz"):
        try:
            status, body = ask(path, port)
        except (OSError, IndexError, ValueError) as error:
            print(f"{path}: no answer on port {port}: {error}")
            return 1
        if status != 200:
            print(f"{path}: {status} {body}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
