"""A session: it connects, resumes and moves."""

import asyncio
import logging
from itertools import count
from math import inf
from random import random
from urllib.parse import urlsplit

from .codec import LISTED, STATE_FRAMES, MsgPack
from .connection import LOST, Connection, open_websocket
from .errors import RoomfulError
from .room import Room

log = logging.getLogger("roomful")


class Client:
    """A session. It starts immediately, so you can join rooms.

    `get_token` is a coroutine function that returns a fresh token; `codec` is Json or MsgPack.
    The server may move the client to the host of `url` and to `move_hosts`. `status` is
    `connecting`, `connected`, `reconnecting` or `closed`."""

    def __init__(
        self,
        url,
        *,
        project_id,
        get_token,
        codec=MsgPack,
        move_hosts=(),
        open_socket=open_websocket,
        random=random,
    ):
        self.status, self.rooms, self.request_ids = "connecting", [], count(1)
        self._url, self._move_hosts = url, {urlsplit(url).hostname, *move_hosts}
        self._get_token, self.codec = get_token, codec
        self._open_socket, self._random = open_socket, random
        self._hello = {"t": "hello", "project_id": project_id, "features": ["layers"]}
        self.connection, self._session = None, {}
        self._token = self._renewal = None
        self._now, self._budget, self._paid_at = asyncio.get_running_loop().time, inf, 0
        self._main = asyncio.create_task(self._run())

    async def join(self, room_type, *, key="default", options=None, watch=False):
        """Joins a room, to play or to watch. Returns the Room when its state has arrived. Raises
        RoomfulError."""
        if self.status == "closed":
            raise RoomfulError("closed", "the client has ended: make another one")
        join = {"t": "join", "room_type": room_type, "watch": watch}
        join["options"] = {"key": key} | (options or {})
        self.rooms.append(room := Room(self, join))
        return await asyncio.shield(room.request(join))

    async def close(self):
        """Ends the session: its members leave immediately."""
        self._main.cancel()
        if self.send({"t": "goodbye"}):
            await asyncio.wait({self.connection.reader}, timeout=2)
        if self.connection:
            self.connection.reader.cancel()
        self._end(RoomfulError("closed", "the client was closed"))

    def _end(self, why):
        self.status = "closed"
        if self._renewal:
            self._renewal.cancel()
        for room in list(self.rooms):
            room.lose(why)

    def send(self, message):
        """Sends a message if the session is connected. Returns whether it is."""
        if ready := bool(self.connection and self.connection.ready):
            self.connection.outgoing.put_nowait(message)
            self._budget -= 1
        return ready

    def budget(self):
        """Returns how many messages the rate permits now (R17)."""
        earned = (self._now() - self._paid_at) * self.limits["messages_per_second"]
        self._budget = min(self._budget + earned, self.limits["message_burst"])
        self._paid_at = self._now()
        return self._budget

    async def _run(self):
        """Opens a connection whenever there is none (R4)."""
        attempt = 0
        while True:
            code, self.ended = 0, asyncio.Future()
            try:
                await self._connect(self._url, attempt)
                connection = await self.ended
                code = 0 if connection.previous else connection.socket.close_code or 0
                attempt = attempt if self._now() - connection.welcomed_at < 5 else 0
            except Exception as error:
                log.warning("connection failed: %r", error)
            self.connection = None
            if code // 100 == 40:
                return self._end(RoomfulError(str(code), connection.socket.close_reason))
            if code // 100 == 43:
                self._session = {}
                for room in [room for room in self.rooms if room.has_snapshot]:
                    room.lose(RoomfulError("session_ended"))
            self.status = "reconnecting"
            attempt += 1

    async def _connect(self, url, attempt):
        """Waits after a failure (R5), and starts or continues the session (R6, R19, R38)."""
        if attempt:
            await asyncio.sleep(self._random() * min(10, 0.125 * 2 ** min(attempt, 9)))
        token, codec = None if self._session else await self._get_token(), self.codec()
        socket = await self._open_socket(url, subprotocols=[codec.subprotocol])
        seats = [room for room in self.rooms if room.has_snapshot]
        listed = [{name: getattr(room, name) for name in LISTED} for room in seats]
        resume = {"resume": self._session | {"rooms": listed}}
        self.connection = connection = Connection(self, socket, codec, self.connection)
        for room in self.rooms:
            room.end_wait()
        connection.outgoing.put_nowait(self._hello | ({"token": token} if token else resume))
        connection.reader = asyncio.create_task(connection.run())

    def take(self, connection, message):
        t, room_id, request_id = message["t"], message.get("room_id"), message.get("request_id")
        if connection is not self.connection and t != "left":  # R38
            if t in STATE_FRAMES:
                connection.over.add(room_id)
            if t not in ("event", "member") or room_id in connection.over:
                return
        if t == "welcome":
            self._continue(connection, message)
        elif t == "token":
            self._renewal = self._renewal or asyncio.create_task(self._renew())
        elif t == "move":
            self._latest_move = message
            connection.tasks.create_task(self._move(message, message.get("url") or self._url))
        else:
            for room in list(self.rooms):
                if room.request_id == request_id if request_id else room.room_id == room_id:
                    room.take(message)

    def _continue(self, connection, welcome):
        """Sends what a new connection needs (R21), before any other frame is taken."""
        self._session = {name: welcome[name] for name in ("session_id", "resume_token")}
        self.limits, heartbeat = welcome["limits"], welcome["heartbeat_seconds"]
        connection.ready, connection.patience, connection.previous = True, 2 * heartbeat, None
        connection.welcomed_at = self._now()
        self.budget()  # Begins to count.
        self.status = "connected"
        self._beat(connection, heartbeat)
        self._send_token()
        for room in self.rooms:
            room.send_again()

    def _beat(self, connection, seconds):
        if connection is self.connection:
            self.send({"t": "ping", "at": 0})
            asyncio.get_running_loop().call_later(seconds, self._beat, connection, seconds)

    async def _renew(self):
        """Fetches a fresh token, which answers all questions that arrive until then (R22)."""
        try:
            self._token = await self._get_token()
        except Exception as error:  # The server asks again.
            log.warning("token failed: %r", error)
        self._renewal = None
        self._send_token()

    def _send_token(self):
        """Sends the fresh token, if there is one and a connection."""
        if self._token and self.send({"t": "token", "token": self._token}):
            self._token = None

    async def _move(self, move, url):
        """Resumes on a second connection, while the first goes on (R37, R38)."""
        to, insecure = urlsplit(url), self._url.startswith("ws:")
        if to.hostname not in self._move_hosts or to.scheme == "ws" and not insecure:
            return
        await asyncio.sleep(move["in_ms"] / 1000)
        for attempt in count():
            if move is not self._latest_move:
                return
            try:
                return await self._connect(url, attempt)
            except LOST as error:
                log.warning("move failed: %r", error)
            if url != self._url:
                return
