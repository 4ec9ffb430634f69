"""The reference client of roomful: levels 1 to 5 and 7 of docs/protocol.md, which has the rules (R1 to R39, R43 to R45)."""

import asyncio
import json
import logging
import struct
from functools import lru_cache, partial, reduce
from itertools import count
from math import inf
from random import random
from urllib.parse import urlsplit

import msgpack
import websockets

log = logging.getLogger("roomful")
OPTIONS = {"compression": None, "max_size": None, "ping_interval": None, "close_timeout": 1}
open_websocket = partial(websockets.connect, **OPTIONS)
LOST = OSError, websockets.WebSocketException
# What Python raises for patches that cannot be applied (R13). The checksum shows the others.
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


def _resolve(value, table):
    """Returns a value with keys in the place of indexes of the key table (R35)."""
    if isinstance(value, list):
        return [_resolve(item, table) for item in value]
    if isinstance(value, dict):
        return {k if isinstance(k, str) else table[k]: _resolve(v, table) for k, v in value.items()}
    return value


def _change_of(op):
    """Returns an operation of a JSON Patch (R12) as a change (R36)."""
    keys = [k.replace("~1", "/").replace("~0", "~") for k in op["path"].split("/")[1:]]
    change = None if op["op"] == "remove" else [op.get("value")]
    for depth, key in enumerate(reversed(keys)):
        inserts = op["op"] == "add" and depth == 0
        change = [{}, [key, 0, change]] if inserts else {key: change}
    return change


def _apply(value, change, table):
    """Returns a value after a change (R36). Copies the containers that change."""
    if not isinstance(change, (dict, list)):
        return change
    if isinstance(change, list) and len(change) == 1:
        return _resolve(change[0], table)
    result, is_array, splices = value.copy(), isinstance(value, list), []
    if isinstance(change, list) and len(change) == 2:
        change, splices = change
    if isinstance(change, list):
        keys, *rest = change
        width = len(keys) + 1
        others = rest.pop() if len(rest) % width == 1 else {}
        rows = (rest[at : at + width] for at in range(0, len(rest), width))
        change = {row: dict(zip(keys, changes)) for row, *changes in rows} | others
    for key, item in change.items():
        key = int(key) if is_array else key if isinstance(key, str) else table[key]
        if item is None:
            del result[key]
        else:
            result[key] = _apply(result[key] if is_array else result.get(key), item, table)
    for at, cut, items in zip(splices[::3], splices[1::3], splices[2::3]):
        if is_array:
            result[int(at) : int(at) + cut] = _resolve(items, table)
        else:
            result[at] = items[0]
    return result


NOTHING = None, []


def part_after(frame, before=NOTHING):
    """Returns (value, key table) of the base or a layer after a frame: a whole state, or a patch
    of the part `before`. Raises one of CANNOT_APPLY."""
    value, table = before
    cut, *keys = frame.get("keys") or [len(table)]
    table = table[:cut] + keys
    changes = [frame["change"]] if "change" in frame else map(_change_of, frame.get("ops", ()))
    for change in changes:
        value = _apply(value, change, table)
    if "state" in frame:
        value = _resolve(frame["state"], table)
    if checksum(value) != frame["checksum"]:
        raise ValueError("the checksum differs")
    return value, table


def layers_in(frame, names):
    """Yields the name and the change of each layer in a frame (R28): None if it is removed.
    `names`: the names that numbers stand for."""
    layers = frame.get("layers", {})
    if isinstance(layers, dict):
        yield from layers.items()
        return
    for number, *part in layers:
        if part and isinstance(part[0], str):
            names[number], *part = part
        yield names[number], dict(zip(("checksum", "keys", "change"), part)) if part else None


def _merge(base, layer):
    """Returns base and layer as one value (R30)."""
    if not isinstance(base, dict) or not isinstance(layer, dict):
        return base
    return base | {k: _merge(base[k], v) if k in base else v for k, v in layer.items()}


# Opcodes and their elements. A `:` stands for the room of the last opcode 29.
LISTS = """0 hello project_id start features; 34 spectators : count;
1 join request_id room_type options rejoin create watch; 2 leave request_id room_id;
3 message room_id type data ref settled; 4 state.resync room_id reason;
5 ping at; 6 token token; 8 goodbye; 16 welcome session_id resume_token resumed resume_ttl_seconds
heartbeat_seconds node_id server_time limits; 17 joined request_id room_id member_id;
18 token within_seconds; 19 state.snapshot : epoch seq checksum keys state members layers;
20 state.resync : epoch seq checksum keys state members layers; 24 reply : ref data; 25 ack : ref;
21 state.patch : epoch seq checksum keys change layers; 22 event : name data; 27 move in_ms url;
23 member : member_id sub status reason spectator; 29 room room_id; 28 pong at server_time;
35 left room_id member_id reason code message match;
26 error code message retryable request_id room_id ref match"""
BY_OPCODE = {int(code): (t, names) for code, t, *names in map(str.split, LISTS.split(";"))}
OPCODES = {t: opcode for opcode, (t, _) in BY_OPCODE.items() if opcode < 16}
LIMITS = "max_message_bytes", "messages_per_second", "message_burst", "max_rooms"
LISTED = "room_id", "member_id", "epoch", "seq", "settled"
MEMBER = "member_id", "sub", "connected", "spectator"
STATUSES = "joined", "connected", "disconnected", "left", "seated", "unseated"
ASK_REASONS = "sequence", "checksum"
STATE_FRAMES = {t for t, names in BY_OPCODE.values() if "epoch" in names}
READ = {  # How to read the fields that MessagePack shortens.
    "limits": lambda values: dict(zip(LIMITS, values)),
    "match": lambda values: dict(zip(("room_id", "options"), values)),
    "members": lambda members: [dict(zip(MEMBER, values)) for values in members],
    "status": dict(enumerate(STATUSES)).get,
    "reason": dict(enumerate(("left", "session_ended", "kicked", "closed", "replaced"))).get,
}


class Json:
    subprotocol = "roomful.v1.json"
    encode = staticmethod(partial(json.dumps, separators=(",", ":")))
    decode = staticmethod(json.loads)


class MsgPack:
    """The codec of one connection."""
    subprotocol = "roomful.v1.msgpack"

    def __init__(self):
        self._epochs, self._room_id = {}, None  # The latest epoch of each room (R33).

    def encode(self, message):
        opcode, values = OPCODES[message["t"]], {"start": message.get("token")} | message
        if resume := message.get("resume"):
            rooms = [[room[name] for name in LISTED] for room in resume["rooms"]]
            values["start"] = resume["session_id"], resume["resume_token"], rooms
            self._epochs = {room["room_id"]: room["epoch"] for room in resume["rooms"]}
        elif message["t"] == "state.resync":
            values["reason"] = ASK_REASONS.index(message["reason"])
        return msgpack.packb([opcode, *map(values.get, BY_OPCODE[opcode][1])])

    def decode(self, frame):
        """Returns the JSON form of a message, but with the `keys` and `change` of level 4."""
        opcode, *values = msgpack.unpackb(frame, strict_map_key=False, ext_hook=decimal)
        t, names = BY_OPCODE.get(opcode, (None, ()))
        if t == "room":
            self._room_id = values[0]
        elif names[:1] == [":"]:
            names, values = ("room_id", *names[1:]), (self._room_id, *values)
        read = READ | {"epoch": self._epoch}
        fields = ((k, read.get(k, lambda v: v)(v)) for k, v in zip(names, values) if v is not None)
        message = {"t": t} | dict(fields)
        if t == "joined":
            self._epochs.pop(message["room_id"], None)
        return message

    def _epoch(self, number):
        latest, number = self._epochs.get(self._room_id, 0), int(number)
        self._epochs[self._room_id] = max(latest, number)
        return latest if number == latest % 128 else number


def decimal(kind, data):
    mantissa = (kind & 15) - (16 if kind & 8 else 0)
    return (mantissa << 8 * len(data) | int.from_bytes(data, "big")) / 10 ** ((kind >> 4) + 1)


class RoomfulError(Exception):
    """What the server refused, or what ended a seat or the client. `code`: an error code, a
    reason of `left`, a close code as text, `seat_lost` (the outcome is unknown), or `closed`."""

    def __init__(self, code, message="", retryable=False, **_):
        super().__init__(f"{code}: {message}")
        self.code, self.retryable = code, retryable


def _settle(future, result=None, error=None):
    if not future.done():
        future.set_exception(error) if error else future.set_result(result)


class Room:
    """A seat in a room, from `Client.join`: `room_id`, `member_id`, `state`, `members`, and
    `spectators`, the number of members who watch.

    Set `on_change()`, which is called when the state or the members may have changed,
    `on_event(name, data)`, and `on_left(error)`, for the end of the seat."""

    def __init__(self, client, join):
        self.on_change = self.on_event = self.on_left = lambda *args: None
        self._client, self._join, self.room_id = client, join, None
        self._loop, self._asking = asyncio.get_running_loop(), False
        self._forget()

    def _forget(self):
        self.epoch = self.seq = -1
        self.state, self.members, self.spectators, self.has_snapshot = None, {}, 0, False
        self._parts, self._names = {}, {}  # By layer; the base is the part "".
        self._last_ref, self._kept = 0, {}  # By ref: [message, outcome, reply]
        self.end_wait()

    def end_wait(self):
        """A whole state has arrived, or the connection has ended (R16)."""
        self._asking = False

    def request(self, message):
        """Sends a join or leave. Returns a future of its answer."""
        self.request_id, self._answer = next(self._client.request_ids), asyncio.Future()
        self._request = message | {"request_id": self.request_id}
        self._client.send(self._request)
        return self._answer

    def send(self, type, data=None):
        """Sends a message that is applied exactly once. Returns a future, which is done when the
        message is acknowledged. Its result is the reply, or None. It raises RoomfulError."""
        ref, outcome = self._last_ref + 1, asyncio.Future()
        message = self._message(type, data, ref=ref, settled=self.settled)
        self._last_ref, self._kept[ref] = ref, [message, outcome, None]
        if self.has_snapshot:
            self._client.send(message)
        return outcome

    def send_unreliable(self, type, data=None):
        """Sends a message that may be lost. Returns False if there is no connection, or
        if the rate is exceeded."""
        message = self._message(type, data)
        return self.has_snapshot and self._client.budget() >= 1 and self._client.send(message)

    async def leave(self):
        """Gives up the seat."""
        if self in self._client.rooms:
            await self.request({"t": "leave", "room_id": self.room_id})

    def _message(self, type, data, **ref):
        """Returns a message with a copy of the data. Raises for one that cannot be sent (R17)."""
        if self not in self._client.rooms:
            raise RoomfulError("not_in_room", "the seat is gone: join the room again")
        data = json.loads(json.dumps(data, allow_nan=False))
        message = {"t": "message", "room_id": self.room_id, "type": type, "data": data} | ref
        size = len(self._client.codec().encode(message))
        if size > self._client.limits["max_message_bytes"]:
            raise RoomfulError("payload_too_large", f"{size} bytes: see client.limits")
        return message

    def send_again(self):
        """Sends on a new connection what has no outcome (R21)."""
        for message, *_ in self._kept.values() if self.has_snapshot else ():
            self._client.send(message)
        if not self._answer.done():
            self._client.send(self._request)

    @property
    def spectator(self):
        """True if this client watches (R44)."""
        return self.members.get(self.member_id, {"spectator": True}).get("spectator", False)

    @property
    def settled(self):
        return next(iter(self._kept), self._last_ref + 1) - 1

    def take(self, frame):
        """Takes a frame of this room, or an answer to its request."""
        t, ref = frame["t"], frame.get("ref")
        if t == "joined":
            self.room_id, self.member_id = frame["room_id"], frame["member_id"]
        elif t == "ack":
            for acknowledged in [kept for kept in self._kept if kept <= ref]:
                _, outcome, reply = self._kept.pop(acknowledged)
                _settle(outcome, reply)
        elif t == "reply" and ref in self._kept:
            self._kept[ref][2] = frame.get("data")
        elif t == "error" and ref in self._kept:
            _settle(self._kept.pop(ref)[1], error=RoomfulError(**frame))
        elif t == "error" and "request_id" in frame and self._request["t"] == "join":
            self.lose(RoomfulError(**frame))
        elif t == "error" and "request_id" in frame:
            _settle(self._answer, error=RoomfulError(**frame))
        elif t == "error":
            log.warning("refused: %s", frame)
        elif t == "left":
            if self.has_snapshot and frame["member_id"] == self.member_id:  # R9
                self.lose(RoomfulError(frame["reason"], frame.get("message", "")))
        elif t == "spectators":
            self.spectators = frame["count"]
            self._loop.call_soon(self.on_change)
        elif t == "event":
            self._loop.call_soon(self.on_event, frame["name"], frame.get("data"))
        elif t == "member":
            self._take_member(**frame)
            self._loop.call_soon(self.on_change)
        elif t in STATE_FRAMES and frame["epoch"] >= self.epoch:  # R11
            try:
                self._take_state(frame, frame["seq"] - self.seq)
            except CANNOT_APPLY:
                if "members" in frame:  # Only another connection brings the state (R35).
                    self.epoch = self.seq = 0
                    self._client.connection.reader.cancel()
                else:
                    self._ask("checksum")
            self._loop.call_soon(self.on_change)

    def _take_state(self, frame, ahead):
        """Takes a frame whose `seq` is so far ahead of the state's."""
        if "members" in frame:
            self._take_flush(frame, {}, {})
            self.members = {member["member_id"]: member for member in frame["members"]}
            joins, self.has_snapshot = not self.has_snapshot, True
            self.end_wait()
            if joins:
                _settle(self._answer, self)
                self.send_again()
        elif ahead == 1 and not self._asking:
            self._take_flush(frame, self._parts, self._names)
        elif ahead > 1:
            self._ask("sequence")

    def _take_flush(self, frame, before, names):
        """Takes a frame with its layers: all, or nothing (R29)."""
        parts = before | {"": part_after(frame, before.get("", NOTHING))}
        for layer, change in layers_in(frame, names):
            if change:
                parts[layer] = part_after(change, parts.get(layer, NOTHING))
            else:
                parts.pop(layer, None)
        self._parts, self._names = parts, names
        self.epoch, self.seq = frame["epoch"], frame["seq"]
        self.state = reduce(_merge, (value for value, _ in parts.values()))

    def _take_member(self, member_id, status, sub=None, spectator=False, **_):
        """Changes the list of members (R14, R44)."""
        if status not in STATUSES:
            return
        known = self.members.get(member_id)
        if not known and status in ("connected", "disconnected"):
            return
        member = {"member_id": member_id, "sub": sub, "connected": True} | (known or {})
        if status in ("connected", "disconnected"):
            member["connected"] = status == "connected"
        elif spectator:
            member["spectator"] = True
        else:
            member.pop("spectator", None)
        self.members = self.members | {member_id: member}
        if status == "left" or status == "unseated" and not spectator:
            del self.members[member_id]

    def _ask(self, reason):
        """Asks for the whole state (R16)."""
        if not self._asking:
            self._asking = True
            self._client.send({"t": "state.resync", "room_id": self.room_id, "reason": reason})

    def lose(self, why):
        """The seat is gone (R9, R26). After the end of the session, the client joins again."""
        if self.has_snapshot:
            self._join = self._join | {"watch": self.spectator}  # R43
        for _, outcome, _ in self._kept.values():
            _settle(outcome, error=RoomfulError("seat_lost", "the outcome is unknown"))
        self._forget()
        leaves = self._request["t"] == "leave" and not self._answer.done()
        _settle(self._answer, self, None if leaves else why)
        if why.code == "session_ended" and not leaves:
            self.request(self._join | {"rejoin": True})
        else:
            self._client.rooms.remove(self)
            self._loop.call_soon(self.on_left, why)


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
                _settle(self._client.ended, self)
            self._closing = asyncio.create_task(self.socket.close())

    async def _write(self):
        while True:
            await self.socket.send(self.codec.encode(await self.outgoing.get()))


class Client:
    """A session. It starts immediately, so you can join rooms.

    `get_token` is a coroutine function that returns a fresh token; `codec` is Json or MsgPack.
    The server may move the client to the host of `url` and to `move_hosts`. `status` is
    `connecting`, `connected`, `reconnecting` or `closed`."""

    def __init__(self, url, *, project_id, get_token, codec=MsgPack, move_hosts=(),
                 open_socket=open_websocket, random=random):
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
