"""Client for roomful: levels 1 to 5 and 7 of docs/protocol.md, which has the rules (R1 to R39,
R43 to R45)."""

from .client import Client
from .codec import Json, MsgPack
from .errors import RoomfulError
from .room import Room

__all__ = ["Client", "Json", "MsgPack", "Room", "RoomfulError"]
