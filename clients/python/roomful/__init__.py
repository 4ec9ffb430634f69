"""Client for roomful: all levels of docs/protocol.md, whose rules the comments name (R1 to R39)."""

from .client import Client, Status, party_code
from .codec import Json, MsgPack
from .errors import RoomfulError
from .finding import ListedRoom
from .game import GameClient
from .room import Member, Room

__all__ = [
    "Client",
    "GameClient",
    "Json",
    "ListedRoom",
    "Member",
    "MsgPack",
    "Room",
    "RoomfulError",
    "Status",
    "party_code",
]
