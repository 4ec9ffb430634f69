"""The reference client of roomful. docs/protocol.md specifies what it does."""

from .client import Client, Room, RoomfulError, connect

__all__ = ["Client", "Room", "RoomfulError", "connect"]
