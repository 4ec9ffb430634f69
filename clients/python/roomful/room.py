"""A seat in a room."""

import asyncio
import json
import logging
from collections.abc import Callable
from functools import reduce
from typing import Any, Generic, NotRequired, Protocol, TypedDict, TypeVar, cast

from .codec import MEMBER, STATE_FRAMES, Codec, Message
from .errors import RoomfulError, call, settle
from .state import CANNOT_APPLY, NOTHING, Part, layers_in, merge, part_after

log = logging.getLogger("roomful")
State = TypeVar("State")
NO_DATA: Any = {}


class Member(TypedDict):
    """A member of a room. `sub` is the player's id. Without `spectator`, the member plays."""

    member_id: str
    sub: str | None
    connected: bool
    spectator: NotRequired[bool]


class Session(Protocol):
    """The part of a client that its rooms use."""

    seats: list["Room[Any]"]
    limits: dict[str, Any]
    codec: Callable[[], Codec]

    def next_request_id(self) -> int: ...
    def send(self, message: Message) -> bool: ...
    def budget(self) -> float: ...


class Kept:
    """A message without an outcome (R22)."""

    def __init__(self, message: Message, outcome: asyncio.Future[Any]) -> None:
        self.message, self.outcome, self.reply = message, outcome, None


class Room(Generic[State]):
    """A seat in a room, from `Client.join`. Do not change `state` and `members`: they are the
    client's copies.

    Set `on_change()`, which is called after each change of the state or the members,
    `on_event(name, data)`, and `on_left(error)`, for the end of the seat, which is logged otherwise.
    When they are called, the room is as it was directly after the flush of the change or event."""

    room_id: str
    member_id: str
    code: str | None  # A code for `join_by_code`, if the room's type has codes.
    state: State
    members: dict[str, Member]  # By member_id.
    spectators: int  # The number of members who watch.

    def __init__(self, session: Session, join: Message) -> None:
        self.on_change: Callable[[], object] = lambda: None
        self.on_event: Callable[[str, Any], object] = lambda name, data: None
        self.on_left: Callable[[RoomfulError], object] = self._log_left
        self._session, self._join, self.room_id, self.code = session, join, "", None
        self._loop = asyncio.get_running_loop()
        # The first state waits until the program has the room. So its callbacks miss nothing.
        self._handover: asyncio.Future[None] = self._loop.create_future()
        self._forget()
        self.request(join)

    def _forget(self) -> None:
        self.epoch = self.seq = 0  # 0: only a whole state can be applied (R14).
        self.state = cast(Any, None)
        self.members, self.spectators, self.has_snapshot = {}, 0, False
        self._parts: dict[str, Part] = {}  # By layer; the base is the part "".
        self._names: dict[int, str] = {}
        self._last_ref, self._kept = 0, dict[int, Kept]()  # By ref.

    def request(self, message: Message) -> None:
        """Sends a join or leave. `answer` is a future of its answer."""
        self.request_id = self._session.next_request_id()
        self.answer: asyncio.Future[Any] = self._loop.create_future()
        self._request = message | {"request_id": self.request_id}
        self._session.send(self._request)

    def handed_over(self) -> None:
        """The program has the room, or does not wait for it any more: then the seat goes."""
        self._loop.call_soon(settle, self._handover)
        if not self.answer.done():
            self.answer.add_done_callback(self._abandoned)

    def _abandoned(self, answer: asyncio.Future[Any]) -> None:
        if not answer.cancelled() and not answer.exception():
            self.leave_soon()

    def send(self, type: str, data: Any = NO_DATA) -> asyncio.Future[Any]:
        """Sends a message that is applied exactly once. Returns a future, which is done when the
        message is acknowledged. Its result is the reply, or None. It raises RoomfulError."""
        ref, outcome = self._last_ref + 1, self._loop.create_future()
        message = self._message(type, data) | {"ref": ref, "settled": self.settled}
        self._check_size(message)
        self._last_ref, self._kept[ref] = ref, Kept(message, outcome)
        if self.has_snapshot:
            self._session.send(message)
        return outcome

    def send_unreliable(self, type: str, data: Any = NO_DATA) -> bool:
        """Sends a message that may be lost. Returns False if there is no connection, or
        if the rate is exceeded."""
        message = self._message(type, data)
        self._check_size(message)
        return self.has_snapshot and self._session.budget() >= 1 and self._session.send(message)

    async def leave(self) -> None:
        """Gives up the seat."""
        if self.leave_soon():
            await self.answer

    def leave_soon(self) -> bool:
        """Asks for the end of the seat, if there is one."""
        if seated := self in self._session.seats:
            self.request({"t": "leave", "room_id": self.room_id})
        return seated

    def _message(self, type: str, data: Any) -> Message:
        """Returns a message with a copy of the data."""
        if self not in self._session.seats:
            raise RoomfulError("not_in_room", "the seat is gone: join the room again")
        data = json.loads(json.dumps(data, allow_nan=False))
        return {"t": "message", "room_id": self.room_id, "type": type, "data": data}

    def _check_size(self, message: Message) -> None:
        """Raises RoomfulError for a message that cannot be sent (R16)."""
        size = len(self._session.codec().encode(message))
        if size > self._session.limits["max_message_bytes"]:
            raise RoomfulError("payload_too_large", f"{size} bytes: see client.limits")

    def send_again(self) -> None:
        """Sends on a new connection what has no outcome (R10, R22)."""
        for kept in self._kept.values() if self.has_snapshot else ():
            self._session.send(kept.message)
        if not self.answer.done():
            self._session.send(self._request)

    @property
    def spectator(self) -> bool:
        """True if this client watches (R38)."""
        own = self.members.get(self.member_id)
        return own is None or own.get("spectator", False)

    @property
    def settled(self) -> int:
        return next(iter(self._kept), self._last_ref + 1) - 1

    def take(self, frame: Message) -> asyncio.Future[None] | None:
        """Takes a frame of this room, or an answer to its request. Returns what the next frame
        must wait for."""
        t, ref = frame["t"], frame.get("ref")
        if t == "joined":
            self.room_id, self.member_id = frame["room_id"], frame["member_id"]
            self.code = frame.get("code")
        elif t == "ack":
            for acknowledged in [kept for kept in self._kept if kept <= frame["ref"]]:
                kept = self._kept.pop(acknowledged)
                settle(kept.outcome, kept.reply)
        elif t == "reply" and ref in self._kept:
            self._kept[ref].reply = frame.get("data")
        elif t == "error" and ref in self._kept:
            settle(self._kept.pop(ref).outcome, error=RoomfulError(**frame))
        elif t == "error" and "request_id" in frame and self._request["t"] == "join":
            self.lose(RoomfulError(**frame))
        elif t == "error" and "request_id" in frame:
            settle(self.answer, error=RoomfulError(**frame))
        elif t == "error":
            log.warning("refused in %s: %s", self.room_id, RoomfulError(**frame))
        elif t == "left":
            self.lose(RoomfulError(**{"code": frame["reason"]} | frame))
        elif t == "spectators":
            self.spectators = frame["count"]
            call(self.on_change)
        elif t == "event":
            call(self.on_event, frame["name"], frame.get("data"))
        elif t == "member":
            self._take_member(frame)
            call(self.on_change)
        elif t in STATE_FRAMES and (self.epoch or "members" in frame):  # R14
            is_next = frame["seq"] == self.seq + 1 or "members" in frame
            try:
                self._take_state(frame, is_next)
            except CANNOT_APPLY:
                self.epoch = self.seq = 0
                ask = {"t": "state.resync", "room_id": self.room_id}
                self._session.send(ask | {"reason": "checksum" if is_next else "sequence"})
            call(self.on_change)
            return self._handover if self.has_snapshot else None
        return None

    def _take_state(self, frame: Message, is_next: bool) -> None:
        """Takes a frame of the state (R11 to R13). Raises one of CANNOT_APPLY."""
        if not is_next:
            raise ValueError("frames are missing")
        if "members" not in frame:
            self._take_flush(frame, self._parts, self._names)
            return
        self._take_flush(frame, {}, {})
        self.members = {member["member_id"]: member for member in frame["members"]}
        joins, self.has_snapshot = not self.has_snapshot, True
        if joins:
            settle(self.answer, self)
            self.send_again()

    def _take_flush(self, frame: Message, before: dict[str, Part], names: dict[int, str]) -> None:
        """Takes a frame with its layers (R26)."""
        parts = before | {"": part_after(frame, before.get("", NOTHING))}
        for layer, change in layers_in(frame, names):
            if change:
                parts[layer] = part_after(change, parts.get(layer, NOTHING))
            else:
                parts.pop(layer, None)
        self._parts, self._names = parts, names
        self.epoch, self.seq = frame.get("epoch", self.epoch), frame["seq"]
        self.state = reduce(merge, (value for value, _ in parts.values()))

    def _log_left(self, why: RoomfulError) -> None:
        if self.room_id and why.code not in ("left", "client_closed"):
            log.warning("left %s: %s", self.room_id, why)

    def _take_member(self, frame: Message) -> None:
        """Changes the list of members (R15)."""
        entry = {name: frame.get(name) for name in MEMBER if name in frame or name == "sub"}
        self.members = self.members | {frame["member_id"]: cast(Member, entry)}
        if "connected" not in entry:
            del self.members[frame["member_id"]]

    def lose(self, why: RoomfulError) -> None:
        """The seat is gone (R9, R24). After the end of the session, the client joins again."""
        if self.has_snapshot:
            self._join = self._join | {"watch": self.spectator}  # R37
        for kept in self._kept.values():
            settle(kept.outcome, error=RoomfulError("seat_lost", "the outcome is unknown"))
            # `on_left` has the reason. Without this call, asyncio would log each outcome.
            _ = kept.outcome.cancelled() or kept.outcome.exception()
        self._forget()
        leaves = self._request["t"] == "leave" and not self.answer.done()
        settle(self.answer, self, None if leaves else why)
        if why.code == "session_ended" and not leaves:
            self.request(self._join | {"rejoin": True})
        else:
            self._session.seats.remove(self)
            call(self.on_left, why)
