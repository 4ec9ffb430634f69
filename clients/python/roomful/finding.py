"""Requests about rooms that the client is not in (R35, R36)."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NotRequired, Protocol, TypedDict

from .errors import RoomfulError, call, settle

Message = dict[str, Any]


class ListedRoom(TypedDict):
    """A room in a list. It may be out of date: only a join takes a seat. Without `max_players`,
    the number of players has no limit. `reserved`: seats that are kept for absent players."""

    room_id: str
    players: int
    max_players: NotRequired[int]
    reserved: int
    created_at: str
    data: Any
    spectators: NotRequired[int]


class Sender(Protocol):
    """The part of a client that sends."""

    def next_request_id(self) -> int: ...
    def send(self, message: Message) -> bool: ...


@dataclass
class Request:
    message: Message
    answered: Callable[[Message], None]
    failed: Callable[[RoomfulError], None]


class Requests:
    """The requests without an answer, and the watches. They end with their connection."""

    def __init__(self, sender: Sender) -> None:
        self._sender, self._pending = sender, dict[int, Request]()

    def ask(self, message: Message) -> asyncio.Future[Message]:
        """Sends a request. Returns a future of its answer."""
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

        def answered(frame: Message) -> None:
            settle(answer, frame)

        def failed(error: RoomfulError) -> None:
            settle(answer, error=error)

        request_id = self._add(Request(message, answered, failed))
        answer.add_done_callback(lambda _: self._pending.pop(request_id, None))
        return answer

    def watch(
        self,
        message: Message,
        changed: Callable[[list[ListedRoom]], object],
        failed: Callable[[RoomfulError], object],
    ) -> Callable[[], None]:
        """Calls `changed` with each list. Returns a function that ends this."""
        rows: list[ListedRoom] = []

        def answered(frame: Message) -> None:
            nonlocal rows
            rows = list_after(rows, frame)
            call(changed, rows)

        def ended(error: RoomfulError) -> None:
            del self._pending[request_id]
            call(failed, error)

        def stop() -> None:
            if self._pending.pop(request_id, None):
                self._sender.send({"t": "rooms.end", "request_id": request_id})

        request_id = self._add(Request(message | {"watch": True}, answered, ended))
        return stop

    def send_again(self) -> None:
        """Sends all on a new connection (R10)."""
        for request_id, request in self._pending.items():
            self._sender.send(request.message | {"request_id": request_id})

    def take(self, frame: Message) -> None:
        """Takes an answer, if it is for one of these requests."""
        if not (request := self._pending.get(frame["request_id"])):
            return
        if frame["t"] == "error":
            request.failed(RoomfulError(**frame))
        else:
            request.answered(frame)

    def end(self, why: RoomfulError) -> None:
        for request in list(self._pending.values()):
            request.failed(why)

    def _add(self, request: Request) -> int:
        request_id = self._sender.next_request_id()
        self._pending[request_id] = request
        self._sender.send(request.message | {"request_id": request_id})
        return request_id


def list_after(rows: list[ListedRoom], frame: Message) -> list[ListedRoom]:
    """Returns a list after a message, which has the whole list or what has changed (R35)."""
    after = list(frame.get("rooms", rows))
    for index in frame.get("gone", ()):
        del after[index]
    for index, row in zip(frame.get("at", ()), frame.get("set", ()), strict=True):
        after.insert(index, row)
    return after
