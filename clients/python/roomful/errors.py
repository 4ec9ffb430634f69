"""Errors, and calls of the program's functions."""

import asyncio
from collections.abc import Callable
from typing import Any


class RoomfulError(Exception):
    """An error of the server or of the client.

    `code`: an error code of docs/reference.md, a `reason` of a `left`, a close code as text, or one
    of the client: `connection_failed`, `connection_lost`, `token_unavailable`, `no_answer` (in the
    time limit), `seat_lost` (it is unknown whether the room has applied the message) or
    `client_closed`. `retryable`: the same call may succeed later. `match`: from a queue."""

    def __init__(
        self,
        code: str,
        message: str = "",
        retryable: bool = False,
        match: dict[str, Any] | None = None,
        **_: object,
    ) -> None:
        super().__init__(f"{code}: {message}" if message else code)
        self.code, self.message, self.retryable, self.match = code, message, retryable, match


def settle(
    future: asyncio.Future[Any], result: object = None, error: Exception | None = None
) -> None:
    """Sets the result or the error of a future that has neither."""
    if future.done():
        return
    if error:
        future.set_exception(error)
    else:
        future.set_result(result)


def call(callback: Callable[..., object], *values: object) -> None:
    """Calls a function of the program. The exception handler of the loop gets its errors."""
    try:
        callback(*values)
    except Exception as error:
        context = {"message": f"roomful: {callback!r} has failed", "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)
