"""Six players count together while the nodes of `npm run cluster` are killed and drained:

python3 clients/python/tests/soak.py [seconds between faults]

Prints the totals. The exit code is 0 if every message was counted once and no client needed a
whole state after its first one.
"""

import asyncio
import sys
from collections import Counter
from pathlib import Path

from conformance import connect

from roomful.codec import OPCODES, Json, MsgPack
from roomful.connection import open_websocket

ROOT = Path(__file__).parents[3]
PLAYERS = 6
FAULTS = ("kill 2", "drain 3", "kill 1", "drain 2")


class CountingSocket:
    """A websocket that counts the whole states that the client asks for or gets."""

    def __init__(self, socket, totals):
        self._socket, self._totals = socket, totals

    def __getattr__(self, name):
        return getattr(self._socket, name)

    def _count(self, frame, direction, opcode):
        resync = '"state.resync"' in frame[:40] if isinstance(frame, str) else frame[1] == opcode
        self._totals[f"resyncs {direction}"] += resync
        return frame

    async def send(self, frame):
        await self._socket.send(self._count(frame, "asked", OPCODES["state.resync"]))

    async def recv(self):
        return self._count(await self._socket.recv(), "received", 20)


class Cluster:
    """`npm run cluster`, and its prompt."""

    async def __aenter__(self):
        pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
        command = ("npm", "run", "cluster", "--", "--free-ports")
        self.process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, **pipes)
        self.url = await self._address("websocket")
        self.token_url = f"{self.play_url}/dev/token"
        return self

    async def __aexit__(self, *_):
        self.say("quit")
        await self._reader

    async def _address(self, name):
        async for line in self.process.stdout:
            words = line.decode().split()
            if words[:1] == ["play"]:
                self.play_url = words[1]
            if words[:1] == [name]:
                self._lines = asyncio.Queue()
                self._reader = asyncio.create_task(self._read())
                return words[1]
        raise RuntimeError("the cluster did not start")

    async def _read(self):
        async for line in self.process.stdout:
            text = line.decode().strip().removeprefix("roomful> ")
            if text.startswith(("node-", "room ")):
                print("  ", text)
            self._lines.put_nowait(text)

    def say(self, line):
        self.process.stdin.write(f"{line}\n".encode())

    async def act(self, line, until):
        """Types a line at the prompt, and waits until the cluster prints `until`."""
        print(line)
        self.say(line)
        while not (await self._lines.get()).startswith(until):
            pass


async def count(cluster, number, totals, stop):
    """Sends messages until `stop` is set. Returns the room when all are acknowledged."""

    async def open_socket(url, **options):
        totals["connections"] += 1
        return CountingSocket(await open_websocket(url, **options), totals)

    codec = (Json, MsgPack)[number % 2]
    options = {"codec": codec, "open_socket": open_socket}
    client = await connect(cluster.url, cluster.token_url, f"player-{number}", **options)
    room = await client.join("counter", key="soak")
    room.on_left = lambda error: stop.is_set() or print(f"   player-{number} left: {error}")
    pending = []
    while not stop.is_set():
        pending.append(room.send("inc", {"by": 1}))
        await asyncio.sleep(0.02)
    outcomes = await asyncio.gather(*pending, return_exceptions=True)
    totals["sent"] += len(outcomes)
    totals["acknowledged"] += outcomes.count(None)
    for outcome in filter(None, outcomes):
        print(f"   player-{number}: {outcome!r}")
    return client, room


async def main():
    pause, totals, stop = float(sys.argv[1] if sys.argv[1:] else 4), Counter(), asyncio.Event()
    async with Cluster() as cluster:
        players = [asyncio.create_task(count(cluster, n, totals, stop)) for n in range(PLAYERS)]
        for fault in FAULTS:
            node = fault[-1]
            await asyncio.sleep(pause)
            await cluster.act(fault, f"node-{node} is gone")
            await asyncio.sleep(pause)
            await cluster.act(f"start {node}", f"node-{node} is ready")
        await asyncio.sleep(pause)
        stop.set()
        seats = await asyncio.gather(*players)
        await asyncio.sleep(1)
        counts = {room.state["count"] for _, room in seats}
        for client, _ in seats:
            await client.close()
    print(f"{dict(totals)}, counted: {counts}")
    right = counts == {totals["sent"]} and totals["acknowledged"] == totals["sent"]
    return 0 if right and not totals["resyncs asked"] + totals["resyncs received"] else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
