"""A websocket of the client."""

import asyncio
from functools import partial
from math import inf

import websockets

from .room import settle

OPTIONS = {"compression": None, "max_size": None, "ping_interval": None, "close_timeout": 1}
open_websocket = partial(websockets.connect, **OPTIONS)
LOST = OSError, websockets.WebSocketException


class Connection:
    """One websocket, after which the session was on `previous`."""

    def __init__(self, client, socket, codec, previous):
        self.socket, self._client, self.codec, self.previous = socket, client, codec, previous
        self.over = set()  # The rooms that have begun another flush after a move (R38).
        self.outgoing, self.ready, self.patience = asyncio.Queue(), False, 10  # R3
        self.welcomed_at = inf

    async def run(self):
        """Reads until the connection ends. `tasks` end with it."""
        try:
            async with asyncio.TaskGroup() as self.tasks:
                self.tasks.create_task(self._write())
                while True:
                    frame = await asyncio.wait_for(self.socket.recv(), self.patience)
                    self._client.take(self, self.codec.decode(frame))
        except* LOST:
            pass  # R4 tells what to do.
        finally:
            if self.previous:  # There was no welcome (R39).
                self.previous.reader.cancel()
            if self is self._client.connection:
                settle(self._client.ended, self)
            self._closing = asyncio.create_task(self.socket.close())

    async def _write(self):
        while True:
            await self.socket.send(self.codec.encode(await self.outgoing.get()))
