"""Errors of the client."""


class RoomfulError(Exception):
    """What the server refused, or what ended a seat or the client. `code`: an error code, a
    reason of `left`, a close code as text, `seat_lost` (the outcome is unknown), or `closed`."""

    def __init__(self, code, message="", retryable=False, **_):
        super().__init__(f"{code}: {message}")
        self.code, self.retryable = code, retryable
