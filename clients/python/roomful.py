"""The reference client of roomful. The rules (R1 to R46) are those of docs/protocol.md."""

import asyncio
import json
import logging
import struct
from collections import defaultdict
from functools import lru_cache
from itertools import count
from random import random
from urllib.parse import urlsplit

import msgpack
import websockets

log = logging.getLogger("roomful")
LOST = OSError, websockets.WebSocketException, asyncio.TimeoutError

# Checksum, patches and changes. Values are never changed in place: a patch builds a new value.

# What Python raises for a patch that cannot be applied (R14, R43).
CANNOT_APPLY = LookupError, TypeError, ValueError, AttributeError


def _mix(a, b):
    h = a * 0x9E3779B1 + b & 0xFFFFFFFF
    h = (h ^ h >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    h = (h ^ h >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return h ^ h >> 16


@lru_cache(maxsize=1 << 16, typed=True)  # typed: 1 and True are equal, but not their checksums.
def _scalar(value):
    if value is None or isinstance(value, bool):
        return _mix(1, 0) if value is None else _mix(2, int(value))
    if isinstance(value, str):
        h = 0x811C9DC5
        for byte in value.encode():
            h = (h ^ byte) * 0x01000193 & 0xFFFFFFFF
        return _mix(_mix(4, 0), h)
    high, low = struct.unpack(">II", struct.pack(">d", value + 0.0))  # -0.0 + 0.0 is 0.0.
    return _mix(_mix(3, high), low)


def checksum(value):
    """Returns the 32-bit checksum of a JSON value."""
    if isinstance(value, dict):
        return _mix(6, sum(_mix(_scalar(key), checksum(item)) for key, item in value.items()))
    if isinstance(value, list):
        return _mix(5, sum(_mix(index, checksum(item)) for index, item in enumerate(value)))
    return _scalar(value)


def _at(length, index):
    if not 0 <= index < length:
        raise IndexError(f"index {index} of {length} elements")
    return index


def _apply_op(value, path, op):
    """Returns a value after one operation of a JSON Patch (R13)."""
    if not path:
        return op.get("value")
    key, *rest = path
    result, adds = value.copy(), op["op"] == "add" and not rest
    if isinstance(value, list):
        key = _at(len(value) + adds, int(key))
        if adds:
            result.insert(key, None)
    old = None if adds else value[key]
    result[key] = _apply_op(old, rest, op)
    if op["op"] == "remove" and not rest:
        del result[key]
    return result


def _key(key, table):
    return key if isinstance(key, str) else table[_at(len(table), key)]


def _resolve(value, table):
    """Returns a value with keys in the place of indexes of the key table (R41)."""
    if isinstance(value, dict):
        return {_key(key, table): _resolve(item, table) for key, item in value.items()}
    return [_resolve(item, table) for item in value] if isinstance(value, list) else value


def _rows(change):
    """Returns a map of changes, which may be written as a table (R42)."""
    if isinstance(change, dict):
        return change
    keys, *rest = change
    width = len(keys) + 1
    others = rest.pop() if len(rest) % width == 1 else {}
    rows = (rest[at : at + width] for at in range(0, len(rest), width))
    return {row: dict(zip(keys, changes, strict=True)) for row, *changes in rows} | others


def _apply_change(value, change, table):
    """Returns a value after a change (R42)."""
    match change:
        case [single]:
            return _resolve(single, table)
        case [elements, splices] if isinstance(value, list):
            result = value.copy()
            for index, item in _rows(elements).items():
                result[index] = _apply_change(result[_at(len(result), index)], item, table)
            for at, cut, items in zip(splices[::3], splices[1::3], splices[2::3], strict=True):
                _at(len(result) + 1, at + cut)
                result[at : at + cut] = _resolve(items, table)
        case dict() | [_, _, _, *_] if isinstance(value, dict):
            result = value.copy()
            for index, item in _rows(change).items():
                key = _key(index, table)
                if item is None:
                    del result[key]
                else:
                    result[key] = _apply_change(value.get(key), item, table)
        case None | dict() | list():
            raise TypeError("the change is not for such a value")
        case scalar:
            return scalar
    return result


def part_after(frame, before=None):
    """Returns (value, key table, position of the last whole state) of the base or a layer after a
    frame: a whole state, or a patch of the part `before`. Raises one of CANNOT_APPLY."""
    if before:
        value, table, position = before
        for op in frame.get("ops", ()):
            path = op["path"].split("/")[1:]
            value = _apply_op(value, [k.replace("~1", "/").replace("~0", "~") for k in path], op)
        if "keys" in frame:
            cut, *keys = frame["keys"]
            table = table[: _at(len(table) + 1, cut)] + keys
        if "change" in frame:
            value = _apply_change(value, frame["change"], table)
    else:
        table, position = frame.get("keys", [0])[1:], (frame["epoch"], frame["seq"])
        value = _resolve(frame.get("state"), table)
    if (before or "layer" in frame) and checksum(value) != frame["checksum"]:
        raise ValueError("the checksum differs")
    return value, table, position


def _merge(base, layer):
    """Returns base and layer as one value (R35)."""
    if not isinstance(base, dict) or not isinstance(layer, dict):
        return base
    return base | {k: _merge(base[k], v) if k in base else v for k, v in layer.items()}


# The two codecs. In the lists of opcodes, a `:` stands for the room of the last opcode 29.

LISTS = """0 hello project_id start features
1 join request_id room_type options rejoin; 2 leave request_id room_id
3 message room_id type data ref settled; 4 state.resync room_id reason
5 ping at; 6 token token; 8 goodbye
16 welcome session_id resume_token resumed resume_ttl_seconds heartbeat_seconds token_seconds \
node_id server_time limits
17 joined request_id room_id member_id; 18 token token_seconds
19 state.snapshot : epoch seq checksum keys state members
20 state.resync : epoch seq checksum keys state members
21 state.patch : epoch seq checksum keys change; 22 event : epoch seq name data
23 member : epoch seq member_id sub status reason message
24 reply : ref data; 25 ack : ref; 26 error code message retryable request_id room_id ref
27 move in_ms url; 28 pong at server_time; 29 room room_id
30 layer.state : epoch seq checksum layer keys state
31 layer.patch : epoch seq checksum layer keys change""".replace("\n", ";")
BY_OPCODE = {int(code): (t, names) for code, t, *names in map(str.split, LISTS.split(";"))}
OPCODES = {t: opcode for opcode, (t, _) in BY_OPCODE.items() if opcode < 16}
LIMITS = "max_message_bytes", "messages_per_second", "message_burst", "max_rooms"
LISTED = "room_id", "member_id", "epoch", "seq", "settled"
ASK_REASONS = "sequence", "checksum"
NUMBERED = {
    "status": dict(enumerate(("joined", "connected", "disconnected", "left"))),
    "reason": dict(enumerate(("left", "session_ended", "kicked", "closed", "replaced"))),
}


class Json:
    subprotocol = "roomful.v1.json"
    decode = staticmethod(json.loads)

    @staticmethod
    def encode(message):
        return json.dumps(message, separators=(",", ":"), ensure_ascii=False)


class MsgPack:
    """The codec of one connection."""

    subprotocol = "roomful.v1.msgpack"

    def __init__(self):
        self.epochs, self._room_id = {}, None  # The latest epoch of each room (R38).

    @staticmethod
    def encode(message):
        opcode, values = OPCODES[message["t"]], {"start": message.get("token")} | message
        if resume := message.get("resume"):
            rooms = [[room[name] for name in LISTED] for room in resume["rooms"]]
            values["start"] = resume["session_id"], resume["resume_token"], rooms
        elif message["t"] == "state.resync":
            values["reason"] = ASK_REASONS.index(message["reason"])
        return msgpack.packb([opcode, *map(values.get, BY_OPCODE[opcode][1])])

    def decode(self, frame):
        """Returns the JSON form of a message, but with the `keys`, indexes and `change` of level 4.
        Returns None for a frame that is not a message, or an unknown one."""
        opcode, *values = msgpack.unpackb(frame, strict_map_key=False, ext_hook=decimal)
        t, names = BY_OPCODE.get(opcode, (None, ()))
        if t == "room":
            self._room_id = values[0]
        if t in (None, "room"):
            return None
        if names[0] == ":":
            names, values = ("room_id", *names[1:]), (self._room_id, *values)
        message = {"t": t} | {k: v for k, v in zip(names, values) if v is not None}
        if "epoch" in message:
            message["epoch"] = self._epoch(int(message["epoch"]))
        if t == "welcome":
            message["limits"] = dict(zip(LIMITS, message["limits"]))
        elif t == "joined":
            self.epochs.pop(message["room_id"], None)
        elif t == "member":
            message |= {k: NUMBERED[k].get(message[k]) for k in NUMBERED.keys() & message.keys()}
        elif "members" in message:
            fields = "member_id", "sub", "connected"
            message["members"] = [dict(zip(fields, member)) for member in message["members"]]
        return message

    def _epoch(self, number):
        latest = self.epochs.get(self._room_id, 0)
        self.epochs[self._room_id] = max(latest, number)
        return latest if number == latest % 128 else number


def decimal(kind, data):
    mantissa = (kind & 15) - (16 if kind & 8 else 0)
    return (mantissa << 8 * len(data) | int.from_bytes(data, "big")) / 10 ** ((kind >> 4) + 1)


class RoomfulError(Exception):
    """What the server refused, or what ended a seat or the client. `code`: an error code, a
    reason of `left`, a close code as text, `seat_lost` (the outcome is unknown), or `closed`."""

    def __init__(self, code, message="", retryable=False):
        super().__init__(f"{code}: {message}")
        self.code, self.retryable = code, retryable


def _checked(data, depth=64):
    """Returns a copy of data that may be sent. Raises ValueError or TypeError otherwise (R19)."""
    if isinstance(data, (dict, list, tuple)):
        if not depth:
            raise ValueError("data is nested more than 64 deep: flatten it")
        if not isinstance(data, dict):
            return [_checked(item, depth - 1) for item in data]
        if "__proto__" in data or not all(isinstance(key, str) for key in data):
            raise ValueError("a key is __proto__, or is not a string: use other keys")
        return {_checked(key): _checked(item, depth - 1) for key, item in data.items()}
    if isinstance(data, int) and abs(data) >= 1 << 53:
        raise ValueError(f"{data} is beyond 2^53 - 1: send it as a string")
    json.dumps(data, ensure_ascii=False, allow_nan=False).encode()  # Raises for half surrogates.
    return data


def _settle(future, result=None, error=None):
    if not future.done():
        future.set_exception(error) if error else future.set_result(result)


def _call(listener, *args):
    try:
        listener(*args)
    except Exception:
        log.exception("listener failed")


class Room:
    """A seat in a room, from `Client.join`: `room_id`, `member_id`, `state`, `members`.

    Set `on_change()`, which is called after changes of the state or the members, and
    `on_left(reason, message)`, which is called when the seat is gone for good.
    """

    def __init__(self, client, join):
        self.room_id = self.member_id = None
        self.on_change = self.on_left = lambda *args: None
        self._client, self._join, self._gone = client, join, False
        self._listeners, self._asking = defaultdict(list), asyncio.Future()
        self._forget()

    def _forget(self):
        self.epoch = self.seq = self._whole_seq = -1
        self.state, self.members, self._base, self._layers, self.held = None, {}, None, {}, []
        self.has_snapshot, self.waits = False, True
        self._kept, self._last_ref = {}, 0  # ref: [message, outcome, reply]

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
        self._kept[self._last_ref] = [message, asyncio.Future(), None]
        self.send_kept(self._last_ref)
        return self._kept[self._last_ref][1]

    def send_unreliable(self, type, data=None):
        """Sends a message that may be lost. Returns False if there is no connection."""
        return self.has_snapshot and self._client.send(self._message(type, data))

    async def leave(self):
        """Gives up the seat."""
        if not self._gone:
            await self.request({"t": "leave", "room_id": self.room_id})

    def _message(self, type, data, **ref):
        fields = {"room_id": self.room_id, "type": type, "data": _checked(data)}
        return self._client.sized({"t": "message"} | fields | ref)

    def send_kept(self, first=1):
        for ref in range(first, self._last_ref + 1) if self.has_snapshot else ():
            if ref in self._kept:
                self._client.send(self._kept[ref][0] | {"settled": self.settled})

    @property
    def settled(self):
        return next(iter(self._kept), self._last_ref + 1) - 1

    def request(self, message, future=None):
        """Sends a join or leave. Returns a future."""
        client = self._client
        client.last_request += 1
        message = message | {"request_id": client.last_request}
        self.requested = message, future or asyncio.Future()
        client.requests[client.last_request] = self
        client.send(message)
        return self.requested[1]

    def _answered(self, error=None):
        """The snapshot has arrived, or the seat is gone. Returns True if a leave has waited."""
        message, future = self.requested
        waits, leaves = not future.done(), message["t"] == "leave"
        self._client.requests.pop(message["request_id"], None)
        _settle(future, self, None if leaves else error)
        if future.cancelled() and not leaves and not error:
            self.request({"t": "leave", "room_id": self.room_id})
        return waits and leaves

    def _take_state(self, frame):
        """Takes a frame with an epoch and a seq. Returns False if it is dropped (R12)."""
        t, seq, before = frame["t"], frame["seq"], (self.state, self.members)
        late = t == "state.patch" and (self.waits or seq <= self.seq)
        if late or frame["epoch"] < self.epoch:
            return False
        try:
            if "members" in frame or t == "state.patch" and seq == self.seq + 1:
                self._take_flush(frame, whole="members" in frame)
            elif t == "layer.state" and seq == self.seq:
                self._show(self._base, self._layers, [frame])
            elif t in ("layer.state", "layer.patch"):
                self.held.append(frame)
            elif seq > self.seq + 1:
                self._ask("sequence")
            elif seq == self.seq + 1 and not self.waits:
                self.epoch, self.seq = frame["epoch"], seq
        except CANNOT_APPLY:
            self._ask("checksum")
        if t == "member" and seq > self._whole_seq:
            member = {"member_id": frame["member_id"], "sub": frame.get("sub")}
            member["connected"] = frame["status"] != "disconnected"
            self.members = self.members | {frame["member_id"]: member}
            if frame["status"] == "left":
                del self.members[frame["member_id"]]
        if self.state is not before[0] or self.members is not before[1]:
            _call(self.on_change)
        return True

    def _take_flush(self, frame, whole):
        position, kept = (frame["epoch"], frame["seq"]), self._layers
        held = [one for one in self.held if (one["epoch"], one["seq"]) == position]
        self.held = []
        if whole:  # R34
            kept = {name: part for name, part in kept.items() if part[2] == position}
            held = [one for one in held if one["t"] == "layer.state"]
        self._show(part_after(frame, None if whole else self._base), kept, held)
        self.epoch, self.seq = position
        if whole:
            self.members = {member["member_id"]: member for member in frame["members"]}
            self.has_snapshot, self.waits, self._whole_seq = True, False, frame["seq"]

    def _show(self, base, layers, frames):
        """Takes the base, and the layers after these frames (R33), or nothing of them."""
        layers = dict(layers)
        for frame in frames:
            if frame["t"] == "layer.patch":
                layers[frame["layer"]] = part_after(frame, layers[frame["layer"]])
            elif "state" in frame:
                layers[frame["layer"]] = part_after(frame)
            else:
                layers.pop(frame["layer"], None)
        self._base, self._layers, self.state = base, layers, base[0]
        for value, *_ in layers.values():
            self.state = _merge(self.state, value)

    def _ask(self, reason, again=False):
        """Asks for the whole state, and again after 2 seconds (R17)."""
        if self.waits == again:
            self.waits = True
            self._asking.cancel()
            ask = {"t": "state.resync", "room_id": self.room_id, "reason": reason}
            self._client.send(ask)
            self._asking = asyncio.get_running_loop().call_later(2, self._ask, reason, True)

    def take(self, frame):
        t, ref, joins = frame["t"], frame.get("ref"), not self.has_snapshot
        if t == "ack":
            for acknowledged in [kept for kept in self._kept if kept <= ref]:
                self.finish(acknowledged)
        elif t == "reply" and ref in self._kept:
            self._kept[ref][2] = frame.get("data")
        elif t == "member" and (frame["member_id"], frame["status"]) == (self.member_id, "left"):
            self.lose(frame["reason"], frame.get("message", ""))
        elif "epoch" in frame and self._take_state(frame):
            if joins and self.has_snapshot:
                self._answered()
                self.send_kept()
            for listener in self._listeners[frame["name"]] if t == "event" else ():
                _call(listener, frame.get("data"))

    def finish(self, ref, error=None):
        """A kept message has its outcome."""
        if ref in self._kept:
            _, outcome, reply = self._kept.pop(ref)
            _settle(outcome, reply, error)

    def lose(self, reason, message=""):
        """The seat is gone (R10, R30). After the end of the session, the client joins again."""
        for ref in list(self._kept):
            self.finish(ref, RoomfulError("seat_lost", "the outcome is unknown"))
        self._forget()
        self._client.rooms.pop(self.room_id, None)
        left = self._answered(RoomfulError(reason, message))
        if reason == "session_ended" and not left:
            rejoined = self.request(self._join | {"rejoin": True})
            rejoined.add_done_callback(self._rejoined)
        else:
            self._end(reason, message)

    def _rejoined(self, future):
        if error := future.exception():
            self._end(error.code, str(error))

    def _end(self, reason, message):
        self._gone = True
        _call(self.on_left, reason, message)


# Connections and sessions


class Connection:
    """One websocket. `positions`: the seq of each room in the hello of the next connection."""

    def __init__(self, client, socket, codec):
        self.ready, self.previous, self.positions, self.socket = False, None, {}, socket
        self._client, self.codec, self._outgoing = client, codec, asyncio.Queue()
        self._tasks, self._patience = [], 10
        self._silence = self.move = asyncio.Future()
        self.reader = asyncio.create_task(self._read())
        self.spawn(self._write())

    def spawn(self, coroutine):
        self._tasks.append(asyncio.create_task(coroutine))
        return self._tasks[-1]

    def send(self, message):
        self._outgoing.put_nowait(self.codec.encode(message))

    def watch(self, patience):
        """Gives up the connection when no frame arrives for so many seconds (R2, R3)."""
        self._silence.cancel()
        self._silence = asyncio.get_running_loop().call_later(patience, self.reader.cancel)
        self._patience = patience

    async def _write(self):
        try:
            while True:
                await self.socket.send(await self._outgoing.get())
        except LOST:
            pass  # The reader notices it, too.

    async def _read(self):
        try:
            while True:
                message = self.codec.decode(await self.socket.recv())
                self.watch(self._patience)
                if message:
                    self._client.take(self, message)
        except LOST:
            pass  # R4 tells what to do.
        finally:
            self._silence.cancel()
            self.close()
            self._client.connection_ended(self)

    def stop(self):
        """Sends nothing more."""
        for task in self._tasks:
            task.cancel()

    def close(self):
        """Closes the socket. What the server has sent before is still read."""
        self.stop()
        self._closing = asyncio.create_task(self.socket.close())


class Client:
    """A session, from `connect`. Set `on_status(status)`, for `connected`, `reconnecting` and
    `closed`, and `on_error(error)`, for errors about messages that are not acknowledged."""

    def __init__(self, url, *, project_id, get_token, codec="msgpack", move_hosts=(),
                 open_socket=None, random=random):
        self.on_status, self.on_error = lambda status: None, lambda error: None
        self.status, self.limits, self.rooms, self.requests = "connecting", {}, {}, {}
        self._url, self._move_hosts = url, {urlsplit(url).hostname, *move_hosts}
        self._get_token, self._random = get_token, random
        self._open_socket, self._codec = open_socket or open_websocket, CODECS[codec]
        self._hello = {"t": "hello", "project_id": project_id, "features": ["layers"]}
        self._connection = self._session = self._token = None
        self.last_request, self._stale, self._closing = 0, False, False
        self.welcomed = asyncio.Future()
        self._main = asyncio.create_task(self._run())

    async def join(self, room_type, *, key="default", options=None):
        """Joins a room. Returns the Room when its state has arrived. Raises RoomfulError."""
        options = _checked({"key": key} | (options or {}))
        join = {"t": "join", "room_type": room_type, "options": options}
        return await Room(self, join).request(join)

    async def close(self):
        """Ends the session: its members leave immediately."""
        self._closing = True
        if self.send({"t": "goodbye"}):
            await asyncio.wait({self._connection.reader}, timeout=2)
        self._end(RoomfulError("closed", "the client was closed"))

    def _end(self, error):
        self._closing = True
        self._main.cancel()
        if self._connection:
            self._connection.reader.cancel()
        for room in {*self.rooms.values(), *self.requests.values()}:
            room.lose(error.code, str(error))
        self._set_status("closed")
        _settle(self.welcomed, error=error)

    def send(self, message):
        """Sends a message if the session is connected."""
        if ready := bool(self._connection and self._connection.ready):
            self._connection.send(message)
        return ready

    def sized(self, message):
        frame, limit = self._codec.encode(message), self.limits["max_message_bytes"]
        size = len(frame.encode() if isinstance(frame, str) else frame)
        if size > limit:
            raise RoomfulError("payload_too_large", f"{size} bytes; the limit is {limit}")
        return message

    async def _run(self):
        now, attempt = asyncio.get_running_loop().time, 0
        while not self._closing:
            code, reason, opened = None, "", now()
            try:
                if not self._token and (self._stale or not self._session):
                    self._token, self._stale = await self._get_token(), False
                connection, opened = await self._open(self._url), now()
                self._ended = asyncio.Future()
                self._say_hello(connection)
                code, reason = await self._ended or (None, "")
                attempt = attempt if now() - opened < 5 else 0
            except Exception as error:
                log.warning("connection failed: %r", error)
            log.info("connection ended with %s %s", code, reason)
            kind = (code or 0) // 100
            if kind == 40:
                self._end(RoomfulError(str(code), reason))
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

    async def _open(self, url):
        codec = self._codec()
        return Connection(self, await self._open_socket(url, codec.subprotocol), codec)

    def _say_hello(self, connection):
        seats = [room for room in self.rooms.values() if room.has_snapshot]
        if self._session:
            listed = [{name: getattr(room, name) for name in LISTED} for room in seats]
            connection.codec.epochs = {room.room_id: room.epoch for room in seats}
            connection.send(self._hello | {"resume": self._session | {"rooms": listed}})
        else:
            connection.send(self._hello | {"token": self._token})
            self._token = None
        if self._connection:  # It is left for this one (R45).
            self._connection.stop()
            self._connection.positions = {room.room_id: room.seq for room in seats}
        for room in self.rooms.values():
            room.held, room.waits = [], not room.has_snapshot  # R17, R32
        connection.previous, self._connection = self._connection, connection
        connection.watch(10)

    def connection_ended(self, connection):
        if connection is self._connection:
            self._connection = None
            if connection.previous:  # It has had no welcome: the code does not matter (R46).
                connection.previous.close()
            socket = None if connection.previous else connection.socket
            _settle(self._ended, socket and (socket.close_code, socket.close_reason))

    def _continue(self, connection, token_seconds):
        """Sends what a new connection needs (R23), before any other frame is taken."""
        connection.send({"t": "ping", "at": 0})
        if self._token:
            connection.send({"t": "token", "token": self._token})
            self._token = None
        else:
            connection.spawn(self._renew(connection, token_seconds * 0.8))
        connection.ready = True
        for room in self.rooms.values():
            room.send_kept()
        for room in self.requests.values():
            self.send(room.requested[0])
        if connection.previous:
            connection.previous.close()
            connection.previous = None
        self._set_status("connected")
        _settle(self.welcomed, self)

    async def _beat(self, connection, seconds):
        while True:
            await asyncio.sleep(seconds)
            connection.send({"t": "ping", "at": 0})

    async def _renew(self, connection, delay):
        """Sends a fresh token after `delay` seconds. After a failure, tries again (R24)."""
        await asyncio.sleep(delay)
        try:
            token, self._token = self._token or await self._get_token(), None
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
            connection.spawn(self._beat(connection, message["heartbeat_seconds"]))
            self._continue(connection, message["token_seconds"])
        elif t == "token":
            connection.spawn(self._renew(connection, message["token_seconds"] * 0.8))
        elif t == "joined" and message["request_id"] in self.requests:
            room = self.rooms[message["room_id"]] = self.requests[message["request_id"]]
            room.room_id, room.member_id = message["room_id"], message["member_id"]
        elif t == "move":
            connection.move.cancel()
            connection.move = connection.spawn(self._move(message["in_ms"], message.get("url")))
        elif t == "error":
            self._take_error(connection, room, message)
        elif room:
            room.take(message)

    def _take_error(self, connection, room, message):
        error = RoomfulError(message["code"], message["message"], message["retryable"])
        if "request_id" in message:
            if message["request_id"] in self.requests:
                _settle(self.requests.pop(message["request_id"]).requested[1], error=error)
        elif "ref" in message and room:
            room.finish(message["ref"], error)
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
                while (waits := self._unanswered()) and not second.reader.done():
                    await asyncio.wait([second.reader, *waits], return_when="FIRST_COMPLETED")
                if not second.reader.done():
                    return self._say_hello(second)
            except LOST as error:
                log.warning("move failed: %r", error)
            finally:
                if second and second is not self._connection:
                    second.close()
            if url:
                return
            await self._backoff(attempt)

    def _unanswered(self):
        futures = (room.requested[1] for room in self.requests.values())
        return [future for future in futures if not future.done()]

    def _session_over(self):
        """All seats are lost. Joins without an answer are sent in the next session (R25)."""
        self._session, self.last_request = None, 0
        joins = [room for room in self.requests.values() if not room.has_snapshot]
        seats = [room for room in self.rooms.values() if room.has_snapshot]
        self.requests, self.rooms = {}, {}
        for room in joins:
            room.request(*room.requested)
        for room in seats:
            room.lose("session_ended")


CODECS = {"json": Json, "msgpack": MsgPack}


async def open_websocket(url, subprotocol):
    """Opens a websocket that takes frames of any size."""
    options = {"compression": None, "max_size": None, "ping_interval": None, "close_timeout": 1}
    return await websockets.connect(url, subprotocols=[subprotocol], **options)


async def connect(url, **options):
    """Starts a session. Returns the Client when the server has accepted it.

    Options: `project_id`; `get_token`, a coroutine function that returns a fresh token; `codec`,
    `msgpack` or `json`; `move_hosts`, hosts besides that of `url` to which the server may move
    the client. Tests set `open_socket(url, subprotocol)` and `random()`.
    """
    client = Client(url, **options)
    try:
        return await asyncio.shield(client.welcomed)
    except asyncio.CancelledError:
        await client.close()
        raise
