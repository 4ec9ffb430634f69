"""The client for programs with a loop of their own."""

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, Self, TypeVar

from .client import Client

T = TypeVar("T")
TURNS = 8  # Turns of the loop in which bytes become frames, and frames bytes.
SECONDS = 0.01


class GameClient(Client):
    """A client for a program without asyncio, such as a loop of pygame.

    Call `update()` in each frame. All callbacks run in it, or in `wait`. There are no threads,
    except for a `get_token` that may block, and for the look-up of host names."""

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        return self.wait(self.connect())

    def __exit__(self, *_: object) -> None:
        self.wait(self.close())
        self._loop.close()

    def update(self) -> None:
        """Takes what has arrived and sends what waits, for at most 10 ms. Does not wait."""
        self.wait(self._turn())

    def wait(self, work: Awaitable[T]) -> T:
        """Waits for something: `room = client.wait(client.join("arena"))`."""
        if not hasattr(self, "_loop"):
            raise RuntimeError("connect first, with `with GameClient(…) as client`")
        return self._loop.run_until_complete(work)

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Starts a coroutine, which continues in `update`."""
        return self._loop.create_task(work)

    async def _turn(self) -> None:
        until, taken = self._loop.time() + SECONDS, -1
        while taken != self.frames and self._loop.time() < until:
            taken = self.frames
            for _ in range(TURNS):
                await asyncio.sleep(0)
