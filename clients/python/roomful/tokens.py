"""Tokens of the player."""

import asyncio
import base64
import inspect
import json
import threading
import urllib.request
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from .errors import RoomfulError, settle

GetToken = Callable[[], str | Awaitable[str]]
PASETO, SIGNATURE_BYTES = "v4.public.", 64


def dev_token(url: str, player: str | dict[str, Any]) -> str:
    """Returns a token of `roomful dev`, whose websocket has this URL."""
    address = urlsplit(url)
    scheme = "https" if address.scheme == "wss" else "http"
    token_url = address._replace(scheme=scheme, path="/dev/token", query="", fragment="").geturl()
    body = json.dumps({"sub": player} if isinstance(player, str) else player).encode()
    try:
        with urllib.request.urlopen(token_url, body, timeout=5) as answer:
            token: str = json.load(answer)["token"]
            return token
    except OSError as error:
        status = getattr(error, "code", 500)
        text = f"`dev` needs `roomful dev`, and {token_url} does not answer with a token: {error}"
        raise RoomfulError("token_unavailable", text, status >= 500) from None


def project_of(token: str) -> str:
    """Returns the project that a token names."""
    with suppress(ValueError, LookupError, AttributeError):
        payload = token.split(".")[2 if token.startswith(PASETO) else 1]
        claims = base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))
        claims = claims[:-SIGNATURE_BYTES] if token.startswith(PASETO) else claims
        return str(json.loads(claims)["project_id"])
    text = "the token names no project: pass project_id, or return a token of roomful"
    raise RoomfulError("token_unavailable", text)


async def fetch(get_token: GetToken, seconds: float) -> str:
    """Returns a token. A function that is no coroutine function runs in a thread, because it may
    block. Raises RoomfulError: it has failed, or needs more than this time."""
    try:
        waiting = get_token() if inspect.iscoroutinefunction(get_token) else _in_thread(get_token)
        async with asyncio.timeout(seconds):
            token = await waiting
            if inspect.isawaitable(token):
                token = await token
    except RoomfulError:
        raise
    except TimeoutError as error:
        text = f"get_token has not answered within {seconds} s"
        raise RoomfulError("token_unavailable", text, True) from error
    except Exception as error:
        raise RoomfulError("token_unavailable", f"get_token has failed: {error!r}", True) from error
    if not isinstance(token, str):
        text = f"get_token returned a {type(token).__name__}: return the token, a str"
        raise RoomfulError("token_unavailable", text)
    return token


def _in_thread(get_token: GetToken) -> asyncio.Future[str | Awaitable[str]]:
    """Calls a function in a thread that does not keep the program from ending."""
    loop = asyncio.get_running_loop()
    outcome = loop.create_future()

    def run() -> None:
        result, error = None, None
        try:
            result = get_token()
        except Exception as raised:
            error = raised
        with suppress(RuntimeError):  # The loop is closed.
            loop.call_soon_threadsafe(settle, outcome, result, error)

    threading.Thread(target=run, name="roomful get_token", daemon=True).start()
    return outcome
