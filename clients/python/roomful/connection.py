"""A websocket of the client."""

import asyncio
from collections.abc import Sequence
from math import inf
from typing import Any, Protocol

import websockets

from .codec import Codec, Message

LOST = OSError, websockets.WebSocketException


class Socket(Protocol):
    """The part of a websocket that the client uses."""

    @property
    def close_code(self) -> int | None: ...
    @property
    def close_reason(self) -> str | None: ...
    async def recv(self) -> str | bytes: ...
    async def send(self, message: Any) -> None: ...
    async def close(self) -> None: ...


async def open_websocket(url: str, subprotocols: Sequence[Any]) -> Socket:
    """Opens a websocket within 10 seconds. Raises one of LOST."""
    socket: Socket = await websockets.connect(
        url,
        subprotocols=subprotocols,
        compression=None,
        max_size=None,
        ping_interval=None,
        close_timeout=1,
    )
    return socket


class Taker(Protocol):
    """The part of a client that a connection calls."""

    def take(self, connection: "Connection", message: Message) -> asyncio.Future[None] | None: ...
    def ended(self, connection: "Connection") -> None: ...


class Connection:
    """One websocket, after which the session was on `previous`."""

    def __init__(
        self, taker: Taker, socket: Socket, codec: Codec, previous: "Connection | None"
    ) -> None:
        self.socket, self._taker, self.codec, self.previous = socket, taker, codec, previous
        self.outgoing, self.ready = asyncio.Queue[Message](), False
        self.moves, self.leaves = False, False  # R33, R34
        self.moved: asyncio.Future[None] = asyncio.get_running_loop().create_future()  # R34
        self.patience, self.welcomed_at = 10.0, inf  # R3
        self.reader = asyncio.create_task(self._run())

    async def _run(self) -> None:
        """Reads until the connection ends. `tasks` end with it."""
        try:
            async with asyncio.TaskGroup() as self.tasks:
                self.tasks.create_task(self._write())
                while True:
                    async with asyncio.timeout(self.patience):
                        frame = await self.socket.recv()
                    if handover := self._taker.take(self, self.codec.decode(frame)):
                        await handover
        except* LOST:
            pass  # R4 tells what to do.
        finally:
            if self.previous:  # There was no welcome (R34).
                self.previous.reader.cancel()
            self._taker.ended(self)
            await self.socket.close()

    async def _write(self) -> None:
        while True:
            await self.socket.send(self.codec.encode(await self.outgoing.get()))
