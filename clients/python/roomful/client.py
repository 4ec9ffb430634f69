"""Connections, sessions and seats: levels 1, 2 and 5 of docs/protocol.md."""

import asyncio
import json
import logging
from collections import defaultdict
from inspect import isawaitable
from itertools import count
from random import random
from urllib.parse import urlsplit

import websockets

from .codec import Json, MsgPack
from .state import Replica

log = logging.getLogger("roomful")


class RoomfulError(Exception):
    """What the server refused, or what ended a seat or the client. `code`: an error code, a
    reason of `left`, a close code as text, `seat_lost` (the outcome is unknown), or `closed`."""

    def __init__(self, code, message="", retryable=False):
        super().__init__(f"{code}: {message}")
        self.code, self.retryable = code, retryable


def _checked(data, depth=64):
    """Returns a copy of data that may be sent (R19). Otherwise, raises ValueError or TypeError."""
    if isinstance(data, (dict, list, tuple)) and not depth:
        raise ValueError("data is nested more than 64 deep: flatten it")
    if isinstance(data, dict):
        if "__proto__" in data or not all(isinstance(key, str) for key in data):
            raise ValueError("a key is __proto__, or is not a string: use other keys")
        return {_checked(key): _checked(item, depth - 1) for key, item in data.items()}
    if isinstance(data, (list, tuple)):
        return [_checked(item, depth - 1) for item in data]
    if isinstance(data, int) and abs(data) >= 1 << 53:
        raise ValueError(f"{data} is beyond 2^53 - 1: send it as a string")
    json.dumps(data, ensure_ascii=False, allow_nan=False).encode()  # Raises for half surrogates.
    return data


def _resolve(future, result=None, error=None):
    if future and not future.done():
        future.set_exception(error) if error else future.set_result(result)


def _call(listener, *args):
    try:
        listener(*args)
    except Exception:
        log.exception("listener failed")


class _Tasks:
    """Tasks that end together."""

    def __init__(self):
        self._tasks = set()

    def spawn(self, coroutine):
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def stop(self):
        for task in self._tasks:
            task.cancel()


class Room(Replica):
    """A seat in a room, from `Client.join`: `room_id`, `member_id`, `state`, `members`.

    `on_change()` is called after each change of the state or the members, and
    `on_left(reason, message)` when the seat is gone for good. Set them as you need.
    """

    def __init__(self, client, join):
        super().__init__()
        self.room_id = self.member_id = None
        self.on_change = self.on_left = lambda *args: None
        self._client, self._join, self._gone = client, join, False
        self._listeners, self._asking = defaultdict(list), asyncio.Future()
        self._kept, self._replies, self._last_ref = {}, {}, 0

    def on(self, event, listener):
        """Calls `listener(data)` for each event of this name."""
        self._listeners[event].append(listener)

    def send(self, type, data=None):
        """Sends a message that is applied exactly once. Returns a future, which is done when the
        message is acknowledged. Its result is the reply, or None. It raises RoomfulError."""
        if self._gone:
            raise RoomfulError("not_in_room", "the seat is gone: join the room again")
        message = self._message(type, data, ref=self._last_ref + 1, settled=self._last_ref)
        self._last_ref += 1
        self._kept[self._last_ref] = message, asyncio.Future()
        self.send_kept(self._last_ref)
        return self._kept[self._last_ref][1]

    def send_unreliable(self, type, data=None):
        """Sends a message that may be lost. Returns False if there is no connection."""
        return self.has_snapshot and self._client.send(self._message(type, data))

    async def leave(self):
        """Gives up the seat."""
        await self._client.request(self, {"t": "leave", "room_id": self.room_id})

    def _message(self, type, data, **ref):
        fields = {"room_id": self.room_id, "type": type, "data": _checked(data)}
        return self._client.sized({"t": "message"} | fields | ref)

    def send_kept(self, first=0):
        for message, _ in self._kept.values() if self.has_snapshot else ():
            if message["ref"] >= first:
                self._client.send(message | {"settled": self.settled})

    @property
    def settled(self):
        return next(iter(self._kept), self._last_ref + 1) - 1

    def changed(self):
        _call(self.on_change)

    def ask(self, reason):
        """Asks for the whole state, and again after 2 seconds (R17)."""
        self._asking.cancel()
        if self.waits:
            ask = {"t": "state.resync", "room_id": self.room_id, "reason": reason}
            self._client.send(ask)
            self._asking = asyncio.get_running_loop().call_later(2, self.ask, reason)

    def take(self, frame):
        t, ref, joining = frame["t"], frame.get("ref"), not self.has_snapshot
        if t == "ack":
            for acknowledged in [kept for kept in self._kept if kept <= ref]:
                self.settle(acknowledged)
        elif t == "reply" and ref in self._kept:
            self._replies[ref] = frame.get("data")
        elif t == "member" and (frame["member_id"], frame["status"]) == (self.member_id, "left"):
            self.lose(frame["reason"], frame.get("message", ""))
        elif "epoch" in frame and self.take_frame(frame):
            if joining and self.has_snapshot:
                self._client.answer(self)
                self.send_kept()
            for listener in self._listeners[frame["name"]] if t == "event" else ():
                _call(listener, frame.get("data"))

    def settle(self, ref, error=None):
        _, outcome = self._kept.pop(ref, (None, None))
        _resolve(outcome, self._replies.pop(ref, None), error)

    def lose(self, reason, message=""):
        """The seat is gone (R10, R30). After the end of the session, joins again."""
        for ref in list(self._kept):
            self.settle(ref, RoomfulError("seat_lost", "the outcome is unknown"))
        self._last_ref = 0
        Replica.__init__(self)
        self._client.rooms.pop(self.room_id, None)
        leaves = self._client.answer(self, RoomfulError(reason, message))
        if reason == "session_ended" and not leaves:
            self._client.spawn(self._rejoin())
        else:
            self._end(reason, message)

    async def _rejoin(self):
        try:
            await self._client.request(self, self._join | {"rejoin": True})
        except RoomfulError as error:
            self._end(error.code, str(error))

    def _end(self, reason, message):
        self._gone = True
        _call(self.on_left, reason, message)


class _Connection(_Tasks):
    """One websocket. `positions`: the seq of each room in the hello of the next connection."""

    def __init__(self, client, socket, codec):
        super().__init__()
        self.ready, self.previous, self.positions, self.socket = False, None, {}, socket
        self._client, self._codec, self._outgoing = client, codec, asyncio.Queue()
        self._silence, self._patience = asyncio.Future(), 10
        self.reader = asyncio.create_task(self._read())
        self.spawn(self._write())

    def send(self, message):
        self._outgoing.put_nowait(self._codec.encode(message))

    def watch(self, patience):
        """Gives up the connection when no frame arrives for so many seconds (R2, R3)."""
        self._silence.cancel()
        self._silence = asyncio.get_running_loop().call_later(patience, self.reader.cancel)
        self._patience = patience

    async def _write(self):
        while True:
            await self.socket.send(await self._outgoing.get())

    async def _read(self):
        try:
            while True:
                message = self._codec.decode(await self.socket.recv())
                self.watch(self._patience)
                if message:
                    self._client.take(self, message)
        except (websockets.ConnectionClosed, OSError) as error:
            log.info("connection ended: %r", error)
        finally:
            self._silence.cancel()
            self.close()
            self._client.connection_ended(self)

    def close(self):
        """Closes the socket. What the server has sent before is still read."""
        self.stop()
        self._client.spawn(self.socket.close())


class Client(_Tasks):
    """A session, from `connect`. Set `on_status(status)`, for `connected`, `reconnecting` and
    `closed`, and `on_error(error)`, for errors about messages that are not acknowledged."""

    def __init__(self, url, project_id, get_token, codec, move_hosts, open_socket, random):
        super().__init__()
        self.on_status, self.on_error = lambda status: None, lambda error: None
        self.rooms, self.status, self.limits = {}, "connecting", {}
        self._url, self._move_hosts = url, {urlsplit(url).hostname, *move_hosts}
        self._get_token, self._open_socket, self._random = get_token, open_socket, random
        self._codec = {"json": Json, "msgpack": MsgPack}[codec]
        self._hello = {"t": "hello", "project_id": project_id, "features": ["layers"]}
        self._connection = self._session = self._token = None
        self._stale = self._closing = False
        self._epochs, self._requests, self._last_request = {}, {}, 0
        self.welcomed = asyncio.Future()
        self.spawn(self._run())

    async def join(self, room_type, *, key="default", options=None, rejoin=False):
        """Joins a room. Returns the Room when its state has arrived. Raises RoomfulError."""
        options = _checked({"key": key} | (options or {}))
        join = {"t": "join", "room_type": room_type, "options": options}
        return await self.request(Room(self, join), join | ({"rejoin": True} if rejoin else {}))

    async def close(self):
        """Ends the session: its members leave immediately."""
        self._closing = True
        if self.send({"t": "goodbye"}):
            await asyncio.wait({self._connection.reader}, timeout=2)
        self._end(RoomfulError("closed", "the client was closed"))

    def _end(self, error):
        self._closing = True
        self._connection and self._connection.reader.cancel()
        for room in list(self.rooms.values()):
            room.lose("closed", str(error))
        for room, *_ in list(self._requests.values()):
            self.answer(room, error)
        self._set_status("closed")
        _resolve(self.welcomed, error=error)

    # Sending

    def send(self, message):
        ready = bool(self._connection and self._connection.ready)
        if ready:
            self._connection.send(message)
        return ready

    def sized(self, message):
        frame, limit = self._codec.encode(message), self.limits["max_message_bytes"]
        size = len(frame.encode() if isinstance(frame, str) else frame)
        if size > limit:
            raise RoomfulError("payload_too_large", f"{size} bytes; the limit is {limit}")
        return message

    def request(self, room, message, future=None):
        """Sends a join or leave. Returns a future of the room."""
        self._last_request += 1
        request = message | {"request_id": self._last_request}
        self._requests[self._last_request] = room, request, future or asyncio.Future()
        self.send(request)
        return self._requests[self._last_request][2]

    def answer(self, room, error=None):
        """Resolves the requests of a room: its snapshot has arrived, or its seat is gone. Returns
        True if one of them was a leave."""
        answered = {id: request for id, request in self._requests.items() if request[0] is room}
        for request_id, (_, message, future) in answered.items():
            del self._requests[request_id]
            _resolve(future, room, error if message["t"] == "join" else None)
        return any(message["t"] == "leave" for _, message, _ in answered.values())

    # Connections

    async def _run(self):
        attempt, now = 0, asyncio.get_running_loop().time
        while not self._closing:
            code, opened = None, now()
            try:
                if not self._token and (self._stale or not self._session):
                    self._token, self._stale = await self._fetch_token(), False
                connection, opened = await self._open(self._url), now()
                self._ended = asyncio.Future()
                self._say_hello(connection)
                code = await self._ended or 1006
                attempt = attempt if now() - opened < 5 else 0
            except Exception as error:
                log.warning("connection failed: %r", error)
            kind = (code or 1006) // 100
            if kind == 40:
                self._end(RoomfulError(str(code), "the server ended the session"))
            elif kind in (42, 43):
                self._token, self._stale = None, True
            if kind == 43:
                self._session_over()
            if not self._closing:
                self._set_status("reconnecting")
                await self._backoff(attempt)
            attempt += 1

    def _set_status(self, status):
        if status != self.status:
            self.status = status
            _call(self.on_status, status)

    def _backoff(self, attempt):
        return asyncio.sleep(self._random() * min(10, 0.25 * 2 ** min(attempt, 9)))

    async def _fetch_token(self):
        token = self._get_token()
        return await token if isawaitable(token) else token

    async def _open(self, url):
        codec = self._codec(self._epochs)
        return _Connection(self, await self._open_socket(url, codec.subprotocol), codec)

    def _say_hello(self, connection):
        seats = [room for room in self.rooms.values() if room.has_snapshot]
        if self._session:
            names = ("room_id", "member_id", "epoch", "seq", "settled")
            listed = [{name: getattr(room, name) for name in names} for room in seats]
            connection.send(self._hello | {"resume": self._session | {"rooms": listed}})
        else:
            connection.send(self._hello | {"token": self._token})
            self._token = None
        if self._connection:
            self._connection.stop()
            self._connection.positions = {room.room_id: room.seq for room in seats}
        for room in self.rooms.values():
            room.connection_lost()
        connection.previous, self._connection = self._connection, connection
        connection.watch(10)

    def connection_ended(self, connection):
        if connection is self._connection:
            self._connection = None
            if connection.previous:
                connection.previous.close()
            _resolve(self._ended, connection.socket.close_code)

    async def _begin(self, connection, welcome):
        """Continues the session after `welcome` (R23)."""
        connection.send({"t": "ping", "at": 0})
        if self._token or not welcome["token_seconds"]:
            await self._renew(connection, 0)
        connection.ready = True
        for room in self.rooms.values():
            room.send_kept()
        for _, message, _ in self._requests.values():
            self.send(message)
        if connection.previous:
            connection.previous.close()
        self._set_status("connected")
        _resolve(self.welcomed, self)
        while await asyncio.sleep(welcome["heartbeat_seconds"], True):
            connection.send({"t": "ping", "at": 0})

    async def _renew(self, connection, delay):
        """Sends a fresh token after `delay` seconds. After a failure, tries again (R24)."""
        await asyncio.sleep(delay)
        try:
            token, self._token = self._token or await self._fetch_token(), None
            connection.send({"t": "token", "token": token})
        except Exception as error:
            log.warning("token failed: %r", error)
            connection.spawn(self._renew(connection, 1))

    def take(self, connection, message):
        t, room = message["t"], self.rooms.get(message.get("room_id"))
        if connection is not self._connection:
            known = connection.positions.get(message.get("room_id"), -1)
            if t not in ("event", "member") or message["seq"] > known:
                return
        if t == "welcome":
            self._session = {name: message[name] for name in ("session_id", "resume_token")}
            self.limits = message["limits"]
            connection.watch(2 * message["heartbeat_seconds"])
            connection.spawn(self._begin(connection, message))
        if t in ("welcome", "token") and message["token_seconds"]:
            connection.spawn(self._renew(connection, message["token_seconds"] * 0.8))
        elif t == "joined" and message["request_id"] in self._requests:
            room = self.rooms[message["room_id"]] = self._requests[message["request_id"]][0]
            room.room_id, room.member_id = message["room_id"], message["member_id"]
        elif t == "move":
            connection.spawn(self._move(message["in_ms"], message.get("url")))
        elif t == "error":
            self._take_error(connection, room, message)
        elif room:
            room.take(message)

    def _take_error(self, connection, room, message):
        error = RoomfulError(message["code"], message["message"], message["retryable"])
        if "request_id" in message:
            *_, future = self._requests.pop(message["request_id"], (None,))
            _resolve(future, error=error)
        elif "ref" in message and room:
            room.settle(message["ref"], error)
        elif error.code == "invalid_token":
            connection.spawn(self._renew(connection, 1))
        else:
            _call(self.on_error, error)

    async def _move(self, in_ms, url):
        """Resumes on a second connection, while the first goes on (R44, R45)."""
        mine, other = urlsplit(self._url), urlsplit(url or self._url)
        insecure = other.scheme == "ws" and mine.scheme == "wss"
        if insecure or other.hostname not in self._move_hosts:
            return
        await asyncio.sleep(in_ms / 1000)
        for attempt in count():
            second = None
            try:
                second = await self._open(url or self._url)
                while waits := [one for *_, one in self._requests.values() if not one.done()]:
                    await asyncio.wait([second.reader, *waits], return_when="FIRST_COMPLETED")
                    if second.reader.done():
                        break
                if not second.reader.done():
                    return self._say_hello(second)
            except (OSError, websockets.WebSocketException, TimeoutError) as error:
                log.warning("move failed: %r", error)
            finally:
                if second and second is not self._connection:
                    second.close()
            if url:
                return
            await self._backoff(attempt)

    def _session_over(self):
        """All seats are lost. Joins without an answer are sent in the next session (R25)."""
        self._session, self._last_request = None, 0
        for room in list(self.rooms.values()):
            if room.has_snapshot:
                room.lose("session_ended")
        requests, self._requests, self.rooms = self._requests, {}, {}
        for request in requests.values():
            self.request(*request)


async def open_websocket(url, subprotocol):
    """Opens a websocket that takes frames of any size."""
    options = {"subprotocols": [subprotocol], "compression": None, "max_size": None}
    return await websockets.connect(url, **options, ping_interval=None, close_timeout=1)


async def connect(
    url, *, project_id, get_token, codec="msgpack", move_hosts=(), open_socket=open_websocket,
    random=random,
):
    """Starts a session. Returns the Client when the server has accepted it.

    `get_token()` returns a fresh token, or an awaitable of one. `move_hosts` are the hosts besides
    that of `url` to which the server may move the client.
    """
    client = Client(url, project_id, get_token, codec, move_hosts, open_socket, random)
    try:
        return await client.welcomed
    except asyncio.CancelledError:
        await client.close()
        raise
