"""A server in memory, and a clock that the test advances."""

import asyncio
import json
import logging

import msgpack

from roomful import codec

# Many tests let the client fail, which it logs.
logging.getLogger("roomful").addHandler(logging.NullHandler())


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes only when a test says so."""

    now = 0.0

    def time(self):
        return self.now


async def pass_time(seconds=0):
    """Advances the clock, and lets the client run until it waits."""
    loop = asyncio.get_running_loop()
    end = loop.now + seconds
    while True:
        for _ in range(20):
            await asyncio.sleep(0)
        if loop.now >= end:
            return
        loop.now = min(end, loop.now + 0.25)


def run(test):
    """Runs a coroutine in time that passes only by `pass_time`."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(test)
    finally:
        while tasks := asyncio.all_tasks(loop):
            for task in tasks:
                task.cancel()
            loop.run_until_complete(asyncio.sleep(0))
        loop.close()


class FakeSocket:
    """The client's end of a websocket. The test is the server: it sets the result of `opened`,
    puts frames or the code of a close into `to_client`, and reads `sent`."""

    def __init__(self, url):
        self.url, self.sent, self.to_client = url, [], asyncio.Queue()
        self.opened, self.closed = asyncio.Future(), False
        self.close_code, self.close_reason = None, ""

    async def send(self, frame):
        self.sent.append(frame)

    async def recv(self):
        frame = await self.to_client.get()
        if frame is None or isinstance(frame, int):
            self.closed, self.close_code = True, frame
            raise ConnectionError("closed")
        return frame

    async def close(self):
        self.closed = True
        self.to_client.put_nowait(None)


def client_message(frame):
    """Returns the JSON form of a client's frame of either subprotocol."""
    if isinstance(frame, str):
        return json.loads(frame)
    opcode, *values = msgpack.unpackb(frame, ext_hook=codec.decimal)
    t, names = codec.BY_OPCODE[opcode]
    message = {"t": t} | {name: v for name, v in zip(names, values) if v is not None}
    start = message.pop("start", None)
    if isinstance(start, str):
        message["code" if t == "find" else "token"] = start
    elif t == "find":
        room = zip(codec.FIND, start, strict=False)
        message["room"] = {name: value for name, value in room if value is not None}
    elif start:
        session_id, resume_token, rooms = start
        rooms = [dict(zip(codec.LISTED, room)) for room in rooms]
        resume = {"session_id": session_id, "resume_token": resume_token, "rooms": rooms}
        message["resume"] = resume
    if t == "state.resync":
        message["reason"] = codec.ASK_REASONS[message["reason"]]
    return message
