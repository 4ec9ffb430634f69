"""The two subprotocols (R1, R31 to R34)."""

import json
from functools import partial

import msgpack

# Opcodes and their elements. A `:` stands for the room of the last opcode 29.
LISTS = """0 hello project_id start features; 34 spectators : count;
1 join request_id room_type options rejoin create watch; 2 leave request_id room_id;
3 message room_id type data ref settled; 4 state.resync room_id reason;
5 ping at; 6 token token; 8 goodbye; 16 welcome session_id resume_token resumed resume_ttl_seconds
heartbeat_seconds node_id server_time limits; 17 joined request_id room_id member_id;
18 token within_seconds; 19 state.snapshot : epoch seq checksum keys state members layers;
20 state.resync : epoch seq checksum keys state members layers; 24 reply : ref data; 25 ack : ref;
21 state.patch : epoch seq checksum keys change layers; 22 event : name data; 27 move in_ms url;
23 member : member_id sub connected spectator; 29 room room_id; 28 pong at server_time;
35 left room_id member_id reason code message match;
26 error code message retryable request_id room_id ref match"""
BY_OPCODE = {int(code): (t, names) for code, t, *names in map(str.split, LISTS.split(";"))}
OPCODES = {t: opcode for opcode, (t, _) in BY_OPCODE.items() if opcode < 16}
LIMITS = "max_message_bytes", "messages_per_second", "message_burst", "max_rooms"
LISTED = "room_id", "member_id", "epoch", "seq", "settled"
MEMBER = "member_id", "sub", "connected", "spectator"
ASK_REASONS = "sequence", "checksum"
STATE_FRAMES = {t for t, names in BY_OPCODE.values() if "epoch" in names}
READ = {  # How to read the fields that MessagePack shortens.
    "limits": lambda values: dict(zip(LIMITS, values)),
    "match": lambda values: dict(zip(("room_id", "options"), values)),
    "members": lambda members: [dict(zip(MEMBER, values)) for values in members],
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
