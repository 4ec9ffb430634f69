"""What the client promises to its program, beyond the protocol."""

import asyncio
import json
import threading
import time
import unittest
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar
from unittest.mock import patch

from fakes import FakeSocket, client_message, pass_time, run

from roomful import Client, GameClient, Json, RoomfulError, party_code
from roomful.state import checksum
from roomful.tokens import dev_token

URL = "ws://server.test"
WELCOME = {
    "t": "welcome",
    "session_id": "ses_1",
    "resume_token": "resume-1",
    "resumed": False,
    "resume_ttl_seconds": 60,
    "heartbeat_seconds": 10,
    "limits": {"max_message_bytes": 1024, "messages_per_second": 100, "message_burst": 100},
}


class Socket(FakeSocket):
    async def send(self, frame):
        await super().send(frame)
        if client_message(frame)["t"] == "goodbye":
            self.to_client.put_nowait(1000)


class Server:
    """The server of one client, which it accepts."""

    def __init__(self, *, accepts=True):
        self.accepts, self.sockets = accepts, []

    async def open_socket(self, url, subprotocols):
        if not self.accepts:
            raise ConnectionRefusedError("nobody listens")
        self.sockets.append(Socket(url))
        self.say(WELCOME)
        return self.sockets[-1]

    def client(self, kind=Client, **options):
        options = {"get_token": lambda: "token", "project_id": "prj_1"} | options
        return kind(URL, codec=Json, open_socket=self.open_socket, **options)

    def say(self, *messages):
        for message in messages:
            self.sockets[-1].to_client.put_nowait(json.dumps(message))

    def heard(self, t):
        """Returns the messages `t` of the client on its last socket."""
        return [m for m in map(client_message, self.sockets[-1].sent) if m["t"] == t]

    def seat(self, request_id=1, room_id="counter:default", state=0):
        joined = {"t": "joined", "request_id": request_id, "room_id": room_id, "member_id": "mem_1"}
        snapshot = {"t": "state.snapshot", "room_id": room_id, "members": [], "epoch": 1, "seq": 0}
        self.say(joined, snapshot | {"state": state, "checksum": checksum(state)})

    def count(self, number, *, event=True):
        """Says the flush with this number, which becomes the state."""
        room = {"room_id": "counter:default"}
        ops = [{"op": "replace", "path": "", "value": number}]
        patch = {"t": "state.patch", "epoch": 1, "seq": number, "ops": ops}
        self.say(room | patch | {"checksum": checksum(number)})
        if event:
            self.say(room | {"t": "event", "name": "counted", "data": number})


async def slow_recv(socket):
    """Needs a turn of the loop for each frame, as a real socket."""
    await asyncio.sleep(0)
    return await FakeSocket.recv(socket)


async def token():
    return "token"


class ClientTest(unittest.TestCase):
    def play(self, story, **options):
        """Runs `story(server, client)` with a connected client."""
        server = Server()

        async def main():
            async with server.client(**{"get_token": token} | options) as client:
                await story(server, client)

        run(main())
        return server

    def test_a_second_connection_that_does_not_open_within_5_seconds_ends_the_move(self):
        async def story(server, client):
            opened, attempts = client._open_socket, []

            async def never(url, subprotocols):
                attempts.append(url)
                await asyncio.Future()

            client._open_socket = never
            server.say({"t": "move", "in_ms": 0, "url": client._url + "/node-2"})
            await pass_time(6)
            client._open_socket = opened
            server.say({"t": "move", "in_ms": 0})
            await pass_time(1)
            self.assertEqual((len(attempts), len(server.sockets)), (1, 2))
            self.assertEqual(client.status, "online")

        self.play(story)

    def test_an_event_sees_the_state_of_its_flush(self):
        async def story(server, client):
            joining = asyncio.create_task(client.join("counter"))
            await pass_time()
            server.seat()
            room, seen = await joining, []
            room.on_change = lambda: seen.append(room.state)
            room.on_event = lambda name, data: seen.append((data, room.state))
            for number in (1, 2, 3):
                server.count(number)
            await pass_time()
            self.assertEqual(seen, [1, (1, 1), 2, (2, 2), 3, (3, 3)])

        self.play(story)

    def test_callbacks_that_are_set_after_the_join_miss_nothing(self):
        async def story(server, client):
            server.seat()
            server.count(1)
            room, seen = await client.join("counter"), []
            self.assertEqual(room.state, 0)
            room.on_event = lambda name, data: seen.append(data)
            await pass_time()
            self.assertEqual((seen, room.state), ([1], 1))

        self.play(story)

    def test_a_callback_that_fails_ends_nothing(self):
        async def story(server, client):
            server.seat()
            room, seen, errors = await client.join("counter"), [], []
            asyncio.get_running_loop().set_exception_handler(
                lambda _, context: errors.append(repr(context["exception"]))
            )
            room.on_change = lambda: 1 // 0
            room.on_event = lambda name, data: seen.append(data)
            server.count(1)
            server.count(2)
            await pass_time()
            self.assertEqual(seen, [1, 2])
            self.assertEqual(len(errors), 2)
            self.assertIn("ZeroDivisionError", errors[0])

        self.play(story)

    def test_a_message_without_data_has_an_empty_object(self):
        async def story(server, client):
            server.seat()
            room = await client.join("counter")
            room.send("inc")
            room.send_unreliable("inc")
            await pass_time()
            self.assertEqual([message["data"] for message in server.heard("message")], [{}, {}])

        self.play(story)

    def test_the_end_of_the_block_says_goodbye(self):
        async def story(server, client):
            pass

        self.assertEqual(len(self.play(story).heard("goodbye")), 1)

    def test_a_join_without_an_answer_ends_and_leaves_the_seat_that_comes_later(self):
        async def story(server, client):
            joining = asyncio.create_task(client.join("counter"))
            await pass_time(10.5)
            with self.assertRaisesRegex(RoomfulError, "no_answer: .* within 10 s"):
                await joining
            server.seat()
            await pass_time()
            leave = {"t": "leave", "request_id": 2, "room_id": "counter:default"}
            self.assertEqual(server.heard("leave"), [leave])

        self.play(story)

    def test_without_callbacks_the_end_of_a_seat_and_of_a_connection_is_logged(self):
        async def story(server, client):
            server.seat()
            await client.join("counter")
            left = {"t": "left", "room_id": "counter:default"}
            server.say(left | {"reason": "kicked", "code": "afk", "message": "too slow"})
            await pass_time()
            server.sockets[-1].to_client.put_nowait(4101)
            await pass_time()

        with self.assertLogs("roomful", "WARNING") as logged:
            self.play(story)
        self.assertEqual(
            [record.getMessage() for record in logged.records],
            [
                "left counter:default: afk: too slow",
                "client reconnecting: connection_lost: 4101",
            ],
        )

    def test_a_client_that_is_not_connected(self):
        async def join():
            await Client(URL, dev="ada").join("counter")

        with self.assertRaisesRegex(RuntimeError, "connect first"):
            run(join())
        with self.assertRaisesRegex(RuntimeError, "connect first"):
            GameClient(URL, dev="ada").wait(None)

    def test_an_attempt_that_fails_as_the_one_before_is_not_logged_again(self):
        server = Server(accepts=False)
        with self.assertLogs("roomful", "WARNING") as logged, self.assertRaises(RoomfulError):
            run(self.connect(server.client(get_token=token)))
        text = "client connecting: connection_lost: ConnectionRefusedError: nobody listens"
        self.assertEqual([record.getMessage() for record in logged.records], [text])

    async def connect(self, client):
        connecting = asyncio.create_task(client.connect())
        await pass_time(11)
        await connecting

    def test_status_tells_why_the_client_reconnects(self):
        async def story(server, client):
            seen = []
            client.on_status = lambda status, error: seen.append((status, str(error)))
            server.accepts = False
            server.sockets[-1].to_client.put_nowait(1006)
            await pass_time(1)
            self.assertEqual(seen[0], ("reconnecting", "connection_lost: 1006"))
            self.assertIn("nobody listens", seen[1][1])
            server.accepts = True
            await pass_time(10)
            self.assertEqual(seen[-1], ("online", "None"))

        self.play(story)


class ConnectTest(unittest.TestCase):
    def refused(self, client):
        """Returns the error of `connect`, and the seconds until then."""

        async def main():
            loop = asyncio.get_running_loop()
            connecting = asyncio.create_task(client.connect())
            while not connecting.done():
                await pass_time(0.25)
            self.assertEqual(client.status, "closed")
            return connecting.exception(), loop.now

        return run(main())

    def test_a_server_that_is_not_there(self):
        error, seconds = self.refused(Server(accepts=False).client(get_token=token))
        self.assertEqual((error.code, round(seconds)), ("connection_failed", 10))
        self.assertIn("nobody listens", str(error))

    def test_a_token_that_does_not_come(self):
        async def get_token():
            await asyncio.sleep(1e6)

        error, seconds = self.refused(Server().client(get_token=get_token))
        self.assertEqual((error.code, round(seconds)), ("connection_failed", 10))
        self.assertIn("get_token has not answered within 5", str(error))

    def test_a_client_that_is_closed_while_its_token_arrives_keeps_no_socket(self):
        async def main(steps):
            answer, server = asyncio.Future(), Server()

            async def get_token():
                return await answer

            client = server.client(get_token=get_token)
            connecting = asyncio.create_task(client.connect())
            await pass_time()
            answer.set_result("token")
            for _ in range(steps):
                await asyncio.sleep(0)
            await client.close()
            await pass_time(1)
            await asyncio.gather(connecting, return_exceptions=True)
            open_sockets = [socket for socket in server.sockets if not socket.closed]
            self.assertEqual((client.status, open_sockets), ("closed", []))

        for steps in range(4):
            with self.subTest(steps=steps):
                run(main(steps))

    def test_a_token_that_is_no_text(self):
        async def get_token():
            return {"token": "secret"}

        error, seconds = self.refused(Server().client(get_token=get_token))
        self.assertEqual(
            (str(error), round(seconds)),
            (
                "token_unavailable: get_token returned a dict: return the token, a str",
                0,
            ),
        )

    def test_a_token_that_names_no_project(self):
        error, _ = self.refused(Server().client(get_token=token, project_id=None))
        self.assertIn("pass project_id", str(error))

    def test_wrong_options(self):
        for options, text in (({"dev": "ada"}, "get_token, or dev"), ({}, "get_token, or dev")):
            with self.assertRaisesRegex(ValueError, text):
                Client(URL, **options if options else {}, get_token=token if options else None)
        with self.assertRaisesRegex(ValueError, "ws:// or wss://"):
            Client("localhost:4000", dev="ada")


class DevTest(unittest.TestCase):
    def asked(self, player, status=200):
        """Asks a server for a token. Returns the token, and what it was asked."""

        class Answer(BaseHTTPRequestHandler):
            def do_POST(self):
                length = int(self.headers["content-length"])
                questions.append((self.path, json.loads(self.rfile.read(length))))
                self.send_response(status)
                self.end_headers()
                self.wfile.write(b'{"token": "v4.public.abc"}')

            def log_message(self, *_):
                pass

        questions = []
        with HTTPServer(("127.0.0.1", 0), Answer) as server:
            threading.Thread(target=server.handle_request).start()
            return dev_token(f"ws://127.0.0.1:{server.server_port}/", player), questions[0]

    def test_a_player_by_name_or_with_data(self):
        ada = {"sub": "ada", "data": {"elo": 1200}}
        for player, body in (("ada", {"sub": "ada"}), (ada, ada)):
            self.assertEqual(self.asked(player), ("v4.public.abc", ("/dev/token", body)))

    def test_another_server_is_no_reason_to_try_again(self):
        with self.assertRaisesRegex(RoomfulError, "needs `roomful dev`.*404") as caught:
            self.asked("ada", 404)
        self.assertFalse(caught.exception.retryable)


class QueueTest(unittest.TestCase):
    MATCH: ClassVar = {"room_id": "duel:4f2a", "options": {"map": "desert"}}

    async def queued(self, server, client, request_id=1, **options):
        waiting = asyncio.create_task(client.queue("ranked", {"elo": 7}, **options))
        await pass_time()
        server.seat(request_id, "ranked:default", {"waiting": 3})
        await pass_time()
        return waiting

    def left(self, **fields):
        return {"t": "left", "room_id": "ranked:default"} | fields

    def test_a_match(self):
        async def story(server, client):
            seen = []
            waiting = await self.queued(server, client, on_waiting=seen.append, party=party_code(2))
            server.say(self.left(reason="closed", match=self.MATCH))
            await pass_time()
            ticket, match = (message["options"] for message in server.heard("join"))
            self.assertRegex(ticket.pop("party"), "^2-[0-9a-f]{32}$")
            self.assertEqual(ticket, {"key": "default", "ticket": {"elo": 7}})
            self.assertEqual(match, {"key": "4f2a", "map": "desert"})
            self.assertFalse(server.heard("join")[1]["create"])
            server.seat(2, "duel:4f2a")
            self.assertEqual((await waiting).room_id, "duel:4f2a")
            self.assertEqual(seen, [3])
            (await self.queued(server, client, 3)).cancel()
            self.assertEqual(server.heard("join")[2]["options"]["seen"], "duel:4f2a")

        ClientTest().play(story)

    def test_a_match_that_answers_the_join(self):
        async def story(server, client):
            waiting = asyncio.create_task(client.queue("ranked", {}))
            await pass_time()
            error = {"t": "error", "request_id": 1, "code": "room_full", "message": ""}
            server.say(error | {"retryable": False, "match": self.MATCH})
            await pass_time()
            server.seat(2, "duel:4f2a")
            self.assertEqual((await waiting).room_id, "duel:4f2a")

        ClientTest().play(story)

    def test_a_ticket_without_a_match(self):
        async def story(server, client):
            waiting = await self.queued(server, client)
            server.say(self.left(reason="kicked", code="gave_up", message="nobody came"))
            with self.assertRaisesRegex(RoomfulError, "gave_up: nobody came"):
                await waiting

        ClientTest().play(story)

    def test_a_cancelled_call_leaves_the_queue(self):
        async def story(server, client):
            waiting = await self.queued(server, client)
            waiting.cancel()
            await pass_time()
            self.assertEqual(server.heard("leave")[0]["room_id"], "ranked:default")

        ClientTest().play(story)


@patch("roomful.game.SECONDS", 60)
class GameTest(unittest.TestCase):
    """In real time, because `update` belongs to programs whose time passes."""

    def joined(self, server, client):
        joining = client.start(client.join("counter"))
        client.update()
        server.seat()
        return client.wait(joining)

    @patch.object(Socket, "recv", slow_recv)
    def test_update_calls_back_on_the_thread_of_the_game_and_sends(self):
        server = Server()
        with server.client(GameClient) as client:
            room, seen = self.joined(server, client), []
            room.on_event = lambda name, data: seen.append((data, threading.get_ident()))
            for number in range(1, 31):
                server.count(number)
            room.send("inc")
            client.update()
            self.assertEqual(seen, [(number, threading.get_ident()) for number in range(1, 31)])
            self.assertEqual(len(server.heard("message")), 1)

    def test_start_continues_in_update(self):
        server = Server()
        with server.client(GameClient) as client:
            joining = client.start(client.join("counter"))
            client.update()
            self.assertFalse(joining.done())
            server.seat()
            client.update()
            self.assertEqual(joining.result().state, 0)

    def test_a_get_token_that_blocks_does_not_stop_the_game(self):
        answers, release = iter(("token", "fresh")), threading.Event()

        def get_token():
            token = next(answers)
            if token == "fresh":
                release.wait(10)
            return token

        server = Server()
        with server.client(GameClient, get_token=get_token) as client:
            room = self.joined(server, client)
            server.say({"t": "token", "within_seconds": 5})
            server.count(1)
            client.update()
            self.assertEqual((room.state, server.heard("token")), (1, []))
            release.set()
            until = time.monotonic() + 10
            while not server.heard("token") and time.monotonic() < until:
                client.update()
            self.assertEqual(server.heard("token"), [{"t": "token", "token": "fresh"}])


if __name__ == "__main__":
    unittest.main()
