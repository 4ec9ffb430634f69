"""A session: it connects, resumes and moves."""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from itertools import count
from math import inf
from random import random
from typing import Any, Literal, Self, TypeVar
from urllib.parse import urlsplit

from .codec import LISTED, Codec, Message, MsgPack
from .connection import LOST, Connection, Socket, open_websocket
from .errors import RoomfulError, call, settle
from .finding import ListedRoom, Requests
from .room import Room
from .tokens import GetToken, dev_token, fetch, project_of

log = logging.getLogger("roomful")
T = TypeVar("T")
Status = Literal["connecting", "online", "reconnecting", "closed"]
FIND_SECONDS = 10
ELSEWHERE = "room_full", "banned", "already_joined"  # R36


def party_code(size: int) -> str:
    """Returns a code with which so many players queue together."""
    return f"{size}-{secrets.token_hex(16)}"


class Client:
    """A session of one player: `async with Client(url, get_token=…) as client`.

    `get_token` returns a token of the player from your backend. A coroutine function is best;
    any other function runs in a thread. `dev`: a name for the player, or its `sub` and `data`, with
    `roomful dev` only. `project_id` is for tokens that name no project. `codec` is MsgPack or Json.
    The server may move the client to the host of `url` and to `move_hosts`. `timeout`: seconds for
    each answer of the server, and for `connect`.

    Set `on_status(status, error)`. It is called after each change of `status`, and with the error
    of each failed attempt to connect. The default logs the errors."""

    limits: dict[str, Any]

    def __init__(
        self,
        url: str = "ws://localhost:4000",
        *,
        get_token: GetToken | None = None,
        dev: str | dict[str, Any] | None = None,
        project_id: str | None = None,
        codec: Callable[[], Codec] = MsgPack,
        move_hosts: tuple[str, ...] = (),
        timeout: float = 10,
        open_socket: Callable[..., Awaitable[Socket]] = open_websocket,
        random: Callable[[], float] = random,
    ) -> None:
        if not url.startswith(("ws://", "wss://")):
            raise ValueError(f"url is {url!r}: use an address with ws:// or wss://")
        if (get_token is None) == (dev is None):
            raise ValueError("pass get_token, or dev with the name of a player")
        self.on_status: Callable[[Status, RoomfulError | None], object] = self._log_status
        self._logged = ""
        self.status: Status = "connecting"
        self.seats: list[Room[Any]] = []
        self.frames = 0
        self.codec = codec
        self._url, self._move_hosts = url, {urlsplit(url).hostname, *move_hosts}
        self._get_token = get_token or (lambda: dev_token(url, dev or ""))
        self._project_id, self._timeout = project_id, timeout
        self._open_socket, self._random = open_socket, random
        self._requests, self._request_ids = Requests(self), count(1)
        self.connection: Connection | None = None
        self._session: Message = {}
        self._seen: dict[str, str] = {}  # The last match of each queue.
        self._token: str | None = None
        self._renewal: asyncio.Task[None] | None = None
        self._budget, self._paid_at = inf, 0.0
        self._failure: RoomfulError | None = None
        self._main: asyncio.Task[None] | None = None

    async def connect(self) -> Self:
        """Connects. Raises RoomfulError if that fails, or takes more than `timeout` seconds."""
        self._now = asyncio.get_running_loop().time
        self._online: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._main = asyncio.create_task(self._run())
        try:
            async with asyncio.timeout(self._timeout):
                await self._online
        except TimeoutError:
            why = self._failure or "no answer"
            text = f"{self._url} is not available within {self._timeout} s: {why}"
            raise RoomfulError("connection_failed", text, True) from None
        finally:
            if self.status != "online":
                await self.close()
        return self

    async def __aenter__(self) -> Self:
        return await self.connect()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def join(
        self,
        room_type: str,
        *,
        key: str = "default",
        options: dict[str, Any] | None = None,
        watch: bool = False,
        create: bool = True,
    ) -> Room[Any]:
        """Joins a room, to play or to watch. Returns the Room when its state has arrived: callbacks
        that you set directly after the `await` miss nothing. Without `create`, the room must exist.
        Raises RoomfulError."""
        self._check_open()
        options = {"key": key} | (options or {})
        join = {"t": "join", "room_type": room_type, "options": options}
        room = Room[Any](self, join | {"watch": watch, "create": create})
        self.seats.append(room)
        try:
            await self._answer(asyncio.shield(room.answer))
        finally:
            room.handed_over()
        return room

    async def create(self, room_type: str, *, options: dict[str, Any] | None = None) -> Room[Any]:
        """Creates a room with a random key, and joins it. Its `code` is for `join_by_code`."""
        return await self.join(room_type, key=secrets.token_hex(16), options=options)

    async def join_by_code(
        self, code: str, *, options: dict[str, Any] | None = None, watch: bool = False
    ) -> Room[Any]:
        """Joins the room with a code. Capitals, spaces and dashes in the code do not matter."""
        found = await self._find({"code": code.strip()})
        return await self.join(**found, options=options, watch=watch)

    async def join_or_create(
        self,
        room_type: str,
        *,
        options: dict[str, Any] | None = None,
        query: dict[str, Any] | None = None,
    ) -> Room[Any]:
        """Joins a room that has a free seat and matches the query, or creates one."""
        until = self._now() + FIND_SECONDS
        room: Message = {"room_type": room_type}
        room |= {k: v for k, v in (("query", query), ("options", options)) if v}
        while True:
            found = await self._find({"room": room})
            try:
                return await self.join(**found, options=options)
            except RoomfulError as error:
                if error.code not in ELSEWHERE or self._now() >= until:
                    raise

    async def rooms(self, room_type: str, query: dict[str, Any] | None = None) -> list[ListedRoom]:
        """Returns the rooms of a type with `listing`. `query`: `where`, `order`, `limit`, `full`."""
        self._check_open()
        list_ = {"t": "rooms", "room_type": room_type} | ({"query": query} if query else {})
        rows: list[ListedRoom] = (await self._answer(self._requests.ask(list_)))["rooms"]
        return rows

    def watch_rooms(
        self,
        room_type: str,
        query: dict[str, Any] | None,
        on_rooms: Callable[[list[ListedRoom]], object],
        on_error: Callable[[RoomfulError], object] = lambda error: log.warning("%s", error),
    ) -> Callable[[], None]:
        """Calls `on_rooms` with the rooms of a type, and again after each change. Returns a function
        that ends this. `on_error`: the server has refused the query, or the client has ended."""
        self._check_open()
        list_ = {"t": "rooms", "room_type": room_type} | ({"query": query} if query else {})
        return self._requests.watch(list_, on_rooms, on_error)

    async def queue(
        self,
        queue: str,
        ticket: Any,
        *,
        party: str | None = None,
        on_waiting: Callable[[int], object] = lambda waiting: None,
    ) -> Room[Any]:
        """Puts the player into a queue. Returns the room of the match, when the client has joined
        it. Cancel the call to leave the queue. `party`: from `party_code`, for friends who want the
        same match. `on_waiting` gets the number of tickets in the queue after each change."""
        while True:
            options = {"ticket": ticket, "party": party, "seen": self._seen.get(queue)}
            options = {name: value for name, value in options.items() if value is not None}
            match = await self._match(queue, options, on_waiting)
            room_type, _, key = match["room_id"].partition(":")
            try:
                return await self.join(room_type, key=key, options=match["options"], create=False)
            except RoomfulError as error:
                if error.code != "room_not_found":  # An earlier match, which has ended.
                    raise

    async def _match(
        self, queue: str, options: Message, on_waiting: Callable[[int], object]
    ) -> Message:
        """Returns the match of a ticket."""
        matched: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

        def ended(error: RoomfulError) -> None:
            if error.match:
                self._seen[queue] = error.match["room_id"]
            settle(matched, error.match, None if error.match else error)

        try:
            room = await self.join(queue, options=options)
        except RoomfulError as error:
            ended(error)
            return await matched
        room.on_left = ended
        room.on_change = lambda: on_waiting(room.state["waiting"])
        call(room.on_change)
        try:
            return await matched
        finally:
            room.leave_soon()

    async def close(self) -> None:
        """Ends the session: its members leave immediately."""
        if not self._main:
            return
        self._main.cancel()
        await asyncio.sleep(0)  # A reader that is cancelled before its first step closes no socket.
        if self.send({"t": "goodbye"}) and self.connection:
            await asyncio.wait({self.connection.reader}, timeout=2)
        if self.connection:
            self.connection.reader.cancel()
            await asyncio.wait({self.connection.reader}, timeout=2)
        self._end(RoomfulError("client_closed", "the client was closed"))

    def _check_open(self) -> None:
        if not self._main:
            raise RuntimeError(
                "connect first, with `async with client` or `await client.connect()`"
            )
        if self.status == "closed":
            raise RoomfulError("client_closed", "the client has ended: make another one")

    async def _answer(self, future: asyncio.Future[T]) -> T:
        try:
            async with asyncio.timeout(self._timeout):
                return await future
        except TimeoutError:
            text = f"the server has not answered within {self._timeout} s"
            raise RoomfulError("no_answer", text, True) from None

    async def _find(self, by: Message) -> Message:
        """Returns what a join of the room needs (R36)."""
        self._check_open()
        found = await self._answer(self._requests.ask({"t": "find"} | by))
        return {name: found[name] for name in ("room_type", "key", "create") if name in found}

    def _end(self, why: RoomfulError) -> None:
        if self.status == "closed":
            return
        if self._renewal:
            self._renewal.cancel()
        for room in self.seats.copy():
            room.lose(why)
        self._requests.end(why)
        settle(self._online, error=why)
        self._set_status("closed", why)

    def _set_status(self, status: Status, error: RoomfulError | None = None) -> None:
        self.status, self._failure = status, error
        call(self.on_status, status, error)

    def _log_status(self, status: Status, error: RoomfulError | None) -> None:
        """Logs an error, but not again for each attempt that fails as the one before."""
        text = str(error) if error and error.code != "client_closed" else ""
        if text and text != self._logged:
            log.warning("client %s: %s", status, text)
        self._logged = text

    def next_request_id(self) -> int:
        return next(self._request_ids)

    def send(self, message: Message) -> bool:
        """Sends a message if the session is connected. Returns whether it is."""
        if not self.connection or not self.connection.ready:
            return False
        self.connection.outgoing.put_nowait(message)
        self._budget -= 1
        return True

    def budget(self) -> float:
        """Returns how many messages the rate permits now (R16)."""
        earned = (self._now() - self._paid_at) * self.limits["messages_per_second"]
        self._budget = min(self._budget + earned, self.limits["message_burst"])
        self._paid_at = self._now()
        return self._budget

    async def _run(self) -> None:
        """Opens a connection whenever there is none (R4)."""
        attempt = 0
        while True:
            code, reason, failure = 0, "", None
            self._ended: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
            try:
                await self._connect(self._url, attempt)
                connection = await self._ended
                moves = connection.leaves or connection.previous  # R34
                code = 0 if moves else connection.socket.close_code or 0
                reason = connection.socket.close_reason or ""
                failure = RoomfulError("connection_lost", f"{code} {reason}".strip(), True)
                attempt = attempt if self._now() - connection.welcomed_at < 5 else 0
            except RoomfulError as error:
                if not error.retryable:
                    return self._end(error)
                failure = error
            except LOST as error:
                text = f"{type(error).__name__}: {error}"
                failure = RoomfulError("connection_lost", text, True)
            self.connection = None
            if code // 100 == 40:
                return self._end(RoomfulError(str(code), reason))
            if code // 100 == 43:
                self._session = {}
                for room in [room for room in self.seats if room.has_snapshot]:
                    room.lose(RoomfulError("session_ended"))
            self._set_status(
                "connecting" if self.status == "connecting" else "reconnecting", failure
            )
            attempt += 1

    async def _connect(self, url: str, attempt: int) -> None:
        """Waits after a failure (R5), and starts or continues the session (R6, R18, R34)."""
        if attempt:
            await asyncio.sleep(self._random() * min(10, 0.125 * 2 ** min(attempt, 9)))
        token = None if self._session else await self._fetch()
        codec, began = self.codec(), self._now()
        async with asyncio.timeout(5 if self.connection else None):  # R33
            socket = await self._open_socket(url, subprotocols=[codec.subprotocol])
        connection = Connection(self, socket, codec, self.connection)
        connection.patience -= self._now() - began  # R3
        if self.connection:
            await self._leave(self.connection, connection)
        seats = [room for room in self.seats if room.has_snapshot]
        listed = [{name: getattr(room, name) for name in LISTED} for room in seats]
        resume = {"resume": self._session | {"rooms": listed}}
        self.connection = connection
        hello = {"t": "hello", "project_id": self._project_id, "features": ["layers"]}
        connection.outgoing.put_nowait(hello | ({"token": token} if token else resume))

    async def _fetch(self) -> str:
        token = await fetch(self._get_token, self._timeout / 2)
        self._project_id = self._project_id or project_of(token)
        return token

    def ended(self, connection: Connection) -> None:
        """A connection has ended."""
        if connection is self.connection:
            settle(self._ended, connection)

    def take(self, connection: Connection, message: Message) -> asyncio.Future[None] | None:
        """Takes a message of the server. Returns what the next one must wait for."""
        self.frames += 1
        t, room_id, request_id = message["t"], message.get("room_id"), message.get("request_id")
        if t == "welcome":
            self._continue(connection, message)
        elif t == "token":
            self._renewal = self._renewal or asyncio.create_task(self._renew())
        elif t == "move":
            connection.tasks.create_task(self._move(connection, message))
        elif t == "moved":
            settle(connection.moved)
        else:
            if request_id:
                self._requests.take(message)
            for room in self.seats.copy():
                if room.request_id == request_id if request_id else room.room_id == room_id:
                    return room.take(message)
        return None

    def _continue(self, connection: Connection, welcome: Message) -> None:
        """Sends what a new connection needs (R10, R22), before any other frame is taken."""
        self._session = {name: welcome[name] for name in ("session_id", "resume_token")}
        self.limits, heartbeat = welcome["limits"], welcome["heartbeat_seconds"]
        connection.ready, connection.patience, connection.previous = True, 2 * heartbeat, None
        connection.welcomed_at = self._now()
        self.budget()  # Begins to count.
        self._beat(connection, heartbeat)
        self._send_token()
        for room in self.seats:
            room.send_again()
        self._requests.send_again()
        settle(self._online)
        if self.status != "online":
            self._set_status("online")

    def _beat(self, connection: Connection, seconds: float) -> None:
        if connection is self.connection:
            self.send({"t": "ping", "at": 0})
            asyncio.get_running_loop().call_later(seconds, self._beat, connection, seconds)

    async def _renew(self) -> None:
        """Fetches a fresh token, which answers all questions that arrive until then (R20)."""
        try:
            self._token = await self._fetch()
        except RoomfulError as error:  # The server asks again.
            call(self.on_status, self.status, error)
        self._renewal = None
        self._send_token()

    def _send_token(self) -> None:
        """Sends the fresh token, if there is one and a connection."""
        if self._token and self.send({"t": "token", "token": self._token}):
            self._token = None

    async def _move(self, connection: Connection, move: Message) -> None:
        """Resumes on a second connection. Until it is open, the first goes on (R33)."""
        url = move.get("url") or self._url
        to, insecure = urlsplit(url), self._url.startswith("ws:")
        if to.hostname not in self._move_hosts or to.scheme == "ws" and not insecure:
            return
        if connection.moves:
            return
        connection.moves = True
        await asyncio.sleep(move["in_ms"] / 1000)
        for attempt in count():
            try:
                return await self._connect(url, attempt)
            except LOST as error:
                log.info("move failed: %r", error)
            if url != self._url:
                break
        connection.moves = False

    async def _leave(self, connection: Connection, following: Connection) -> None:
        """Waits for the last message of a connection (R34)."""
        self.send({"t": "move"})
        connection.ready = False
        connection.leaves = True
        try:
            await connection.moved
        except asyncio.CancelledError:
            following.reader.cancel()
            raise
