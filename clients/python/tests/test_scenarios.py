"""Runs docs/protocol-scenarios.json against the client, in both subprotocols. The runner is the
server: it has sockets in memory and a clock that it advances."""

import asyncio
import json
import logging
import unittest
from functools import partial
from pathlib import Path

from fakes import FakeSocket, client_message, pass_time, run

import roomful

DOCS = Path(__file__).parents[3] / "docs"
FILE = json.loads((DOCS / "protocol-scenarios.json").read_text())
CODECS = {"json": roomful.Json, "msgpack": roomful.MsgPack}
STATUS = {"closed": "ended"}


class Runner:
    def __init__(self, test, codec):
        self.test, self.codec, self.loop = test, codec, asyncio.get_running_loop()
        self.sockets, self.tokens, self.token_delay, self.client = [], 0, 0, None
        self.rooms, self.outcomes, self.events, self.seats, self.waited = {}, {}, {}, {}, 0
        self.lists, self.watches = {}, {}

    async def open_socket(self, url, subprotocols):
        self.sockets.append(FakeSocket(url))
        return await self.sockets[-1].opened

    async def get_token(self):
        self.tokens += 1
        token = f"token-{self.tokens}"
        await asyncio.sleep(self.token_delay)
        return token

    async def until(self, condition):
        """Advances the clock until the condition holds, for at most 15 seconds."""
        end = self.loop.now + 15
        while not condition() and self.loop.now < end:
            await pass_time(0.25)

    async def run(self, steps):
        for number, step in enumerate(steps):
            on, kind = step.get("on", len(self.sockets)), next(k for k in DO if k in step)
            try:
                await DO[kind](self, step, self.sockets[on - 1] if on else None)
            except AssertionError as error:
                raise AssertionError(f"step {number}, {json.dumps(step)}") from error
            await pass_time()

    async def do(self, step, _):
        for _ in range(step.get("times", 1)):
            try:
                self.call(step)
            except roomful.RoomfulError:
                pass

    def call(self, step):
        call, room = step["do"], self.rooms.get(step.get("room_id"))
        if call == "token_delay":
            self.token_delay = step["ms"] / 1000
            return
        if call == "connect":
            outcome = self.connect(step.get("address", FILE["client"]["address"]))
        elif call == "goodbye":
            outcome = asyncio.create_task(self.client.close())
        elif call in ("join", "join_by_code", "join_or_create"):
            outcome = asyncio.create_task(self.join(call, step))
        elif call == "list":
            outcome = asyncio.create_task(self.list_rooms(step))
        elif call == "watch":
            listed = partial(self.listed, step["as"])
            stop = self.client.watch_rooms(step["room_type"], step["query"], listed)
            self.watches[step["as"]] = stop
            return
        elif call == "end_watch":
            self.watches[step["as"]]()
            return
        elif call == "leave":
            outcome = asyncio.create_task(room.leave())
        elif step["ref"]:
            outcome = room.send(step["type"], step["data"])
        else:
            outcome = room.send_unreliable(step["type"], step["data"])
        self.outcomes[step.get("as", call)] = outcome

    def connect(self, address):
        config = FILE["client"]
        self.client = roomful.Client(
            address,
            project_id=config["project_id"],
            get_token=self.get_token,
            codec=CODECS[self.codec],
            move_hosts=config["hosts"],
            timeout=120,
            open_socket=self.open_socket,
            random=lambda: 0.5,
        )
        return asyncio.create_task(self.client.connect())

    async def list_rooms(self, step):
        self.listed(step["as"], await self.client.rooms(step["room_type"], step["query"]))

    def listed(self, name, rooms):
        self.lists.setdefault(name, []).append([room["room_id"] for room in rooms])

    async def join(self, call, step):
        if call == "join_by_code":
            room = await self.client.join_by_code(step["code"])
        elif call == "join_or_create":
            how = {"options": step["options"], "query": step["query"]}
            room = await self.client.join_or_create(step["room_type"], **how)
        else:
            how = {"options": step["options"], "watch": step.get("watch", False)}
            room = await self.client.join(step["room_type"], **how)
        events, room_id = self.events.setdefault(room.room_id, []), room.room_id
        self.rooms[room_id] = room
        room.on_left = lambda error: self.seats.update({room_id: error.code})
        room.on_event = lambda name, data: events.append([name, data])

    async def open(self, step, _):
        before = self.loop.now
        await self.until(lambda: len(self.sockets) >= step["open"])
        self.waited += self.loop.now - before
        socket = self.sockets[step["open"] - 1]
        self.test.assertEqual(socket.url, step.get("url", socket.url))
        if step.get("refuse"):
            socket.opened.set_exception(ConnectionRefusedError())
        else:
            socket.opened.set_result(socket)

    async def read(self, step, socket):
        wanted = step["client"]
        pings = wanted is not None and wanted["t"] == "ping"

        def position():
            sent = [client_message(frame)["t"] == "ping" for frame in socket.sent]
            return sent.index(pings) if pings in sent else None

        if wanted:
            await self.until(lambda: position() is not None)
        found = position()
        message = None if found is None else client_message(socket.sent.pop(found))
        self.assert_fields(message, wanted)

    def assert_fields(self, message, wanted):
        if wanted is None or message is None:
            self.test.assertEqual(message, wanted)
        for name, value in (wanted or {}).items():
            if name == "resume":
                self.assert_fields(message.get(name), value)
            else:
                self.test.assertEqual(message.get(name), value, message)

    async def pass_over(self, step, socket):
        sent = [message for message in map(client_message, socket.sent) if message["t"] != "ping"]
        self.test.assertLessEqual(len(sent), step["at_most"])
        socket.sent.clear()

    async def serve(self, step, socket):
        if self.codec == "msgpack":
            for frame in step["msgpack"]:
                socket.to_client.put_nowait(bytes.fromhex(frame))
        else:
            socket.to_client.put_nowait(json.dumps(step["server"]))

    async def close(self, step, socket):
        socket.opened.done() or socket.opened.set_result(socket)
        socket.to_client.put_nowait(step["close"])

    async def closed(self, step, _):
        await self.until(lambda: self.sockets[step["closed"] - 1].closed)
        self.test.assertTrue(self.sockets[step["closed"] - 1].closed)

    async def wait(self, step, _):
        await pass_time(step["wait_ms"] / 1000)

    async def expect(self, step, _):
        expected, room_id = step["expect"], step["expect"].get("room_id", "arena:lobby")
        for name, value in expected.items():
            if name == "waited_ms":
                self.test.assertTrue(value[0] <= self.waited * 1000 <= value[1], self.waited)
                self.waited = 0
            elif name != "room_id":
                self.test.assertEqual(self.actual(name, value, room_id), value, name)

    def actual(self, name, value, room_id):
        room = self.rooms.get(room_id)
        if name == "outcomes":
            return {of: outcome_of(self.outcomes[of]) for of in value}
        if name == "events":
            events = list(self.events[room_id])
            self.events[room_id].clear()
            return events
        if name == "lists":
            return {of: self.lists[of] for of in value}
        if name == "members":
            order = [member["member_id"] for member in value]
            return sorted(room.members.values(), key=lambda one: order.index(one["member_id"]))
        if name == "seat":
            return self.seats.get(room_id, "joined")
        if name == "role":
            return "spectator" if room.spectator else "player"
        if name == "spectators":
            return room.spectators
        if name == "status":
            return STATUS.get(self.client.status, self.client.status)
        return len(self.sockets) if name == "sockets" else room.state


DO = {"do": Runner.do, "open": Runner.open, "client": Runner.read, "close": Runner.close}
DO |= {"closed": Runner.closed, "wait_ms": Runner.wait, "expect": Runner.expect}
DO |= {"msgpack": Runner.serve, "at_most": Runner.pass_over}


def outcome_of(future):
    if not future.done():
        return "pending"
    if error := future.exception():
        return "unknown" if error.code == "seat_lost" else {"error": error.code}
    return "done" if not isinstance(future.result(), dict) else {"reply": future.result()}


class Scenarios(unittest.TestCase):
    def run_scenario(self, scenario, codec):
        steps = FILE["starts"].get(scenario.get("start"), []) + scenario["steps"]

        async def main():
            runner = Runner(self, codec)
            await runner.run(steps)
            for outcome in filter(asyncio.isfuture, runner.outcomes.values()):
                outcome_of(outcome)  # Otherwise, asyncio logs errors that the steps do not expect.

        run(main())


def add_tests():
    for number, scenario in enumerate(FILE["scenarios"]):
        for codec in ("json", "msgpack"):
            frames_only = any("msgpack" in s and "server" not in s for s in scenario["steps"])
            if codec == "msgpack" or not frames_only:

                def test(self, scenario=scenario, codec=codec):
                    self.run_scenario(scenario, codec)

                test.__doc__ = f"{scenario['rule']} {codec}: {scenario['name']}"
                setattr(Scenarios, f"test_{number:03}_{codec}", test)


add_tests()

if __name__ == "__main__":
    logging.disable()
    unittest.main()
