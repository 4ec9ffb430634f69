"""One of several players who count together, for `npm run test:long -- clients`. It sends
ROOMFUL_MESSAGES messages to the room ROOMFUL_KEY, waits until the room has counted ROOMFUL_TOTAL,
and prints what it has seen.
"""

import asyncio
import json
import os
from functools import partial

from bot import sign_in
from roomful import Client, Json, MsgPack
from roomful.state import checksum

CODECS = {"json": Json, "msgpack": MsgPack}
SECONDS = 60


def codec_that_counts(codec, resyncs):
    """Returns the codec, which notes each `state.resync` in either direction."""

    class Counting(codec):
        def encode(self, message):
            resyncs.extend(["asked"] * (message["t"] == "state.resync"))
            return super().encode(message)

        def decode(self, frame):
            message = super().decode(frame)
            resyncs.extend(["received"] * (message["t"] == "state.resync"))
            return message

    return Counting


async def main():
    env, resyncs = os.environ, []
    get_token = partial(sign_in, env["ROOMFUL_TOKEN_URL"], env["ROOMFUL_NAME"])
    codec = codec_that_counts(CODECS[env["ROOMFUL_CODEC"]], resyncs)
    async with Client(env["ROOMFUL_URL"], get_token=get_token, codec=codec) as client:
        room = await client.join("counter", key=env["ROOMFUL_KEY"])
        outcomes = []
        for _ in range(int(env["ROOMFUL_MESSAGES"])):
            outcomes.append(room.send("inc"))
            await asyncio.sleep(0.02)
        async with asyncio.timeout(SECONDS):
            results = await asyncio.gather(*outcomes, return_exceptions=True)
            while room.state["count"] < int(env["ROOMFUL_TOTAL"]):
                await asyncio.sleep(0.05)
        await asyncio.sleep(1)
        seen = {"sent": len(outcomes), "acknowledged": results.count(None), "state": room.state}
        print(json.dumps(seen | {"checksum": checksum(room.state), "resyncs": len(resyncs)}))


if __name__ == "__main__":
    asyncio.run(main())
