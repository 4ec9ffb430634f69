"""The two subprotocols (R1, R28 to R30)."""

import json
from collections.abc import Callable
from typing import Any, Protocol

import msgpack

Message = dict[str, Any]

# Opcodes and their elements. A `:` stands for the room of the last opcode 29.
LISTS = """0 hello project_id start features;
1 join request_id room_type options rejoin create watch; 2 leave request_id room_id;
3 message room_id type data ref settled; 4 state.resync room_id reason;
5 ping at; 6 token token; 7 move; 8 goodbye; 9 rooms request_id room_type query watch;
10 rooms.end request_id; 11 find request_id start;
16 welcome session_id resume_token resumed resume_ttl_seconds
heartbeat_seconds node_id server_time limits; 17 joined request_id room_id member_id code;
18 token within_seconds; 19 state.snapshot : epoch seq checksum keys state members layers;
20 state.resync : epoch seq checksum keys state members layers; 24 reply : ref data; 25 ack : ref;
21 state.patch : epoch seq checksum keys change layers; 22 event : name data; 27 move in_ms url;
23 member : member_id sub connected spectator; 28 pong at server_time; 29 room room_id; 30 moved;
32 rooms request_id rooms set gone at; 33 found request_id room_type key create; 34 spectators : count;
35 left room_id reason code message match;
26 error code message retryable request_id room_id ref match"""
BY_OPCODE = {int(code): (t, names) for code, t, *names in map(str.split, LISTS.split(";"))}
OPCODES = {t: opcode for opcode, (t, _) in BY_OPCODE.items() if opcode < 16}
LIMITS = "max_message_bytes", "messages_per_second", "message_burst", "max_rooms"
LISTED = "room_id", "member_id", "epoch", "seq", "settled"
MEMBER = "member_id", "sub", "connected", "spectator"
ROW = "room_id", "players", "max_players", "reserved", "created_at", "data", "spectators"
FIND = "room_type", "query", "options"
ASK_REASONS = "sequence", "checksum"
STATE_FRAMES = {t for t, names in BY_OPCODE.values() if "epoch" in names}


def _named(names: tuple[str, ...]) -> Callable[[list[Any]], Message]:
    """Returns a function that makes an object of a list, without nil."""
    return lambda values: {k: v for k, v in zip(names, values, strict=False) if v is not None}


def _each(read: Callable[[list[Any]], Message]) -> Callable[[list[Any]], list[Message]]:
    return lambda items: [read(item) for item in items]


READ: dict[str, Callable[..., Any]] = {  # How to read the fields that MessagePack shortens.
    "limits": _named(LIMITS),
    "match": _named(("room_id", "options")),
    "members": lambda members: [{"sub": None} | _named(MEMBER)(values) for values in members],
    "rooms": _each(_named(ROW)),
    "set": _each(_named(ROW)),
    "reason": dict(enumerate(("left", "session_ended", "kicked", "closed", "replaced"))).get,
}


class Codec(Protocol):
    """The codec of one connection."""

    subprotocol: str

    def encode(self, message: Message) -> str | bytes: ...
    def decode(self, frame: Any) -> Message: ...


class Json:
    subprotocol = "roomful.v1.json"

    def encode(self, message: Message) -> str:
        return json.dumps(message, separators=(",", ":"))

    def decode(self, frame: str) -> Message:
        message: Message = json.loads(frame)
        return message


class MsgPack:
    subprotocol = "roomful.v1.msgpack"

    def __init__(self) -> None:
        self._room_id: str | None = None

    def encode(self, message: Message) -> bytes:
        values = message.copy()
        if message["t"] == "hello":
            values["start"] = message.get("token")
        elif message["t"] == "find":
            room = message.get("room")
            values["start"] = [room.get(k) for k in FIND] if room else message["code"]
        elif message["t"] == "state.resync":
            values["reason"] = ASK_REASONS.index(message["reason"])
        if resume := message.get("resume"):
            rooms = [[room[name] for name in LISTED] for room in resume["rooms"]]
            values["start"] = resume["session_id"], resume["resume_token"], rooms
        opcode = OPCODES[message["t"]]
        packed: bytes = msgpack.packb([opcode, *map(values.get, BY_OPCODE[opcode][1])])
        return packed

    def decode(self, frame: bytes) -> Message:
        """Returns the JSON form of a message, but with the `keys` and `change` of level 4."""
        opcode, *values = msgpack.unpackb(frame, strict_map_key=False, ext_hook=decimal)
        t, names = BY_OPCODE.get(opcode, ("unknown", []))
        if t == "room":
            self._room_id = values[0]
        elif names[:1] == [":"]:
            names, values = ["room_id", *names[1:]], [self._room_id, *values]
        message: Message = {"t": t}
        for name, value in zip(names, values, strict=False):
            if value is not None:
                read = READ.get(name)
                message[name] = read(value) if read else value
        return message


def decimal(kind: int, data: bytes) -> float:
    """Returns the number in an extension (R30)."""
    mantissa = (kind & 15) - (16 if kind & 8 else 0)
    exact: int = mantissa << 8 * len(data) | int.from_bytes(data, "big")
    return float(exact / 10 ** ((kind >> 4) + 1))
