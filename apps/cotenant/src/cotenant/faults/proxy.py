"""A cable between one process and nats-server that can be pulled and plugged in again."""

import asyncio
from contextlib import suppress

from cotenant.stack.ports import LOOPBACK

_CHUNK = 65_536


class Cable:
    """Listens on a port of its own and passes bytes both ways."""

    def __init__(self, port: int, target_port: int) -> None:
        self.port = port
        self._target_port = target_port
        self._plugged = True
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.StreamWriter, None] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, LOOPBACK, self.port)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        self.pull()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def pull(self) -> None:
        """Every connection breaks, and none can be made."""
        self._plugged = False
        for writer in tuple(self._open):
            writer.transport.abort()

    def plug_in(self) -> None:
        self._plugged = True

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._plugged:
            writer.transport.abort()
            return
        try:
            to_reader, to_writer = await asyncio.open_connection(LOOPBACK, self._target_port)
        except OSError:
            writer.transport.abort()
            return
        for one in (writer, to_writer):
            self._open[one] = None
        for source, sink in ((reader, to_writer), (to_reader, writer)):
            task = asyncio.create_task(self._pass_on(source, sink))
            self._tasks[task] = None
            task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def _pass_on(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.CancelledError):
            while data := await source.read(_CHUNK):
                sink.write(data)
                await sink.drain()
        self._open.pop(sink, None)
        sink.transport.abort()
