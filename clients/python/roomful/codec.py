"""The two subprotocols: messages as JSON objects (R1) and as MessagePack arrays (R36 to R41)."""

import json

import msgpack

# The lists of opcodes. A `:` stands for the room of the last `room`.
LISTS = """
0 hello project_id start features
1 join request_id room_type options rejoin
2 leave request_id room_id
3 message room_id type data ref settled
4 state.resync room_id reason
5 ping at
6 token token
8 goodbye
16 welcome session_id resume_token resumed resume_ttl_seconds heartbeat_seconds token_seconds \
node_id server_time limits
17 joined request_id room_id member_id
18 token token_seconds
19 state.snapshot : epoch seq checksum keys state members
20 state.resync : epoch seq checksum keys state members
21 state.patch : epoch seq checksum keys change
22 event : epoch seq name data
23 member : epoch seq member_id sub status reason message
24 reply : ref data
25 ack : ref
26 error code message retryable request_id room_id ref
27 move in_ms url
28 pong at server_time
29 room room_id
30 layer.state : epoch seq checksum layer keys state
31 layer.patch : epoch seq checksum layer keys change"""
BY_OPCODE = {int(code): (t, names) for code, t, *names in map(str.split, LISTS.split("\n")[1:])}
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

    def __init__(self, epochs):
        self.decode = json.loads

    @staticmethod
    def encode(message):
        return json.dumps(message, separators=(",", ":"), ensure_ascii=False)


class MsgPack:
    """The codec of one connection. `epochs` has the latest epoch of each room, and outlives it."""

    subprotocol = "roomful.v1.msgpack"

    def __init__(self, epochs):
        self._epochs, self._room_id = epochs, None

    @staticmethod
    def encode(message):
        opcode, values = OPCODES[message["t"]], dict(message)
        if resume := message.get("resume"):
            rooms = [[room[name] for name in LISTED] for room in resume["rooms"]]
            values["start"] = resume["session_id"], resume["resume_token"], rooms
        elif opcode == OPCODES["hello"]:
            values["start"] = message["token"]
        elif opcode == OPCODES["state.resync"]:
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
        if "limits" in message:
            message["limits"] = dict(zip(LIMITS, message["limits"]))
        elif t == "joined":
            self._epochs.pop(message["room_id"], None)
        elif t == "member":
            message |= {k: NUMBERED[k].get(message[k]) for k in NUMBERED.keys() & message.keys()}
        elif "members" in message:
            fields = ("member_id", "sub", "connected")
            message["members"] = [dict(zip(fields, one)) for one in message["members"]]
        return message

    def _epoch(self, number):
        latest = self._epochs.get(self._room_id, 0)
        self._epochs[self._room_id] = max(latest, number)
        return latest if number == latest % 128 else number


def decimal(kind, data):
    mantissa = (kind & 15) - (16 if kind & 8 else 0)
    return (mantissa << 8 * len(data) | int.from_bytes(data, "big")) / 10 ** ((kind >> 4) + 1)
