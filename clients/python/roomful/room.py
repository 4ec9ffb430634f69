"""A seat in a room."""

import asyncio
import json
import logging
from functools import reduce

from .codec import MEMBER, STATE_FRAMES
from .errors import RoomfulError
from .state import CANNOT_APPLY, NOTHING, layers_in, merge, part_after

log = logging.getLogger("roomful")


def settle(future, result=None, error=None):
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
                settle(outcome, reply)
        elif t == "reply" and ref in self._kept:
            self._kept[ref][2] = frame.get("data")
        elif t == "error" and ref in self._kept:
            settle(self._kept.pop(ref)[1], error=RoomfulError(**frame))
        elif t == "error" and "request_id" in frame and self._request["t"] == "join":
            self.lose(RoomfulError(**frame))
        elif t == "error" and "request_id" in frame:
            settle(self._answer, error=RoomfulError(**frame))
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
            self._take_member(frame)
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
                settle(self._answer, self)
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
        self.state = reduce(merge, (value for value, _ in parts.values()))

    def _take_member(self, frame):
        """Changes the list of members (R14)."""
        member = {name: frame.get(name) for name in MEMBER if name in frame or name == "sub"}
        self.members = self.members | {frame["member_id"]: member}
        if "connected" not in member:
            del self.members[frame["member_id"]]

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
            settle(outcome, error=RoomfulError("seat_lost", "the outcome is unknown"))
        self._forget()
        leaves = self._request["t"] == "leave" and not self._answer.done()
        settle(self._answer, self, None if leaves else why)
        if why.code == "session_ended" and not leaves:
            self.request(self._join | {"rejoin": True})
        else:
            self._client.rooms.remove(self)
            self._loop.call_soon(self.on_left, why)
