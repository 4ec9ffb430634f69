"""Three players, for the conformance proxy:

npm run conformance -- --client ws://127.0.0.1:7350 --exec "python3 clients/python/bot.py"
"""

import asyncio
import json
import os
import signal
from functools import partial
from urllib.parse import urlencode, urlsplit
from urllib.request import urlopen

from roomful import Client, Json, MsgPack, RoomfulError

# Outcomes that a player may get: a card that may not be played, and a session that has ended.
EXPECTED = {"room_logic_refused", "outcome_unknown", "seat_lost", "not_in_room", "4042"}
CARD_ACTS = ("deal", "draw", "pass")


def sign_in(token_url, name):
    """Returns a fresh token of this player."""
    url = urlsplit(token_url)._replace(query=urlencode({"name": name})).geturl()
    # The conformance proxy reads the name from the address, and roomful dev from the body.
    body = json.dumps({"sub": name}).encode()
    with urlopen(url, data=body, timeout=5) as answer:
        return json.load(answer)["token"]


async def expected(*outcomes):
    """Waits for outcomes. Raises those that are not expected."""
    for outcome in await asyncio.gather(*outcomes, return_exceptions=True):
        if isinstance(outcome, Exception) and getattr(outcome, "code", "") not in EXPECTED:
            raise outcome


async def play(url, token_url, name, codec):
    get_token = partial(sign_in, token_url, name)
    try:
        async with Client(url, get_token=get_token, codec=codec, timeout=60) as client:
            counter = await client.join("counter", key="python")
            cards = await client.join("cards", key="python")
            turn = 0
            while client.status != "closed":
                turn += 1
                counter.send_unreliable("inc")
                card = CARD_ACTS[turn % len(CARD_ACTS)]
                await expected(counter.send("inc"), cards.send(card))
                await asyncio.sleep(0.05)
    except RoomfulError as error:
        if error.code not in EXPECTED:
            raise


async def main():
    url, token_url = os.environ["ROOMFUL_URL"], os.environ["ROOMFUL_TOKEN_URL"]
    players = (("ada", Json), ("bob", MsgPack), ("cyd", MsgPack))
    playing = asyncio.gather(*(play(url, token_url, *player) for player in players))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, playing.cancel)
    try:
        await playing
    except asyncio.CancelledError:
        pass


if __name__ == "__main__":
    asyncio.run(main())
