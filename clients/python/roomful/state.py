"""The copy of a room's state: checksums, patches and layers, and the rules about epoch and seq.

Values are never changed in place: a patch builds a value that shares the unchanged parts.
"""

import struct
from functools import lru_cache

# What Python raises for a patch that cannot be applied (R14, R43).
CANNOT_APPLY = LookupError, TypeError, ValueError, AttributeError


def _mix(a, b):
    h = a * 0x9E3779B1 + b & 0xFFFFFFFF
    h = (h ^ h >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    h = (h ^ h >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return h ^ h >> 16


@lru_cache(maxsize=1 << 16, typed=True)  # typed: 1 and True are equal, but not their checksums.
def _scalar(value):
    if value is None:
        return _mix(1, 0)
    if isinstance(value, bool):
        return _mix(2, int(value))
    if isinstance(value, str):
        h = 0x811C9DC5
        for byte in value.encode():
            h = (h ^ byte) * 0x01000193 & 0xFFFFFFFF
        return _mix(_mix(4, 0), h)
    high, low = struct.unpack(">II", struct.pack(">d", value + 0.0))  # -0.0 + 0.0 is 0.0.
    return _mix(_mix(3, high), low)


def checksum(value):
    """Returns the 32-bit checksum of a JSON value."""
    if isinstance(value, dict):
        return _mix(6, sum(_mix(_scalar(k), checksum(item)) for k, item in value.items()))
    if isinstance(value, list):
        return _mix(5, sum(_mix(index, checksum(item)) for index, item in enumerate(value)))
    return _scalar(value)


def _at(length, index):
    if not 0 <= index < length:
        raise IndexError(f"index {index} of {length} elements")
    return index


def _apply_op(value, path, op):
    if not path:
        return op.get("value")
    key, *rest = path
    result, adds = value.copy(), op["op"] == "add" and not rest
    if isinstance(value, list):
        key = _at(len(value) + adds, int(key))
        if adds:
            result.insert(key, None)
    old = None if adds else value[key]
    if op["op"] == "remove" and not rest:
        del result[key]
    else:
        result[key] = _apply_op(old, rest, op)
    return result


def _resolve(value, table):
    """Returns a value with keys in the place of indexes of the key table (R41)."""
    if isinstance(value, dict):
        return {_key(key, table): _resolve(item, table) for key, item in value.items()}
    return [_resolve(item, table) for item in value] if isinstance(value, list) else value


def _key(key, table):
    return key if isinstance(key, str) else table[_at(len(table), key)]


def _rows(change):
    """Returns a map of changes that may be written as a table (R42)."""
    if isinstance(change, dict):
        return change
    keys, *rest = change
    width = len(keys) + 1
    others = rest.pop() if len(rest) % width == 1 else {}
    rows = (rest[at : at + width] for at in range(0, len(rest), width))
    return {row: dict(zip(keys, changes, strict=True)) for row, *changes in rows} | others


def apply_change(value, change, table):
    """Returns a value after a `change` (R42)."""
    size = len(change) if isinstance(change, list) else 0
    if change is None:
        raise ValueError("nil is not a value")
    if size == 1:
        return _resolve(change[0], table)
    if not size and not isinstance(change, dict):
        return change
    if not isinstance(value, list if size == 2 else dict):
        raise TypeError("the change is for a value of another type")
    result = value.copy()
    if size != 2:
        for index, item in _rows(change).items():
            key = _key(index, table)
            if item is None:
                del result[key]
            else:
                result[key] = apply_change(result.get(key), item, table)
        return result
    elements, splices = change
    for index, item in _rows(elements).items():
        result[index] = apply_change(result[_at(len(result), index)], item, table)
    for at, remove, items in zip(splices[::3], splices[1::3], splices[2::3], strict=True):
        _at(len(result) + 1, at + remove)
        result[at : at + remove] = _resolve(items, table)
    return result


def part_after(frame, before=None):
    """Returns (value, key table, position of the last whole state) of the base or a layer after a
    frame: a whole state, or a patch of the part `before`. Raises one of CANNOT_APPLY."""
    if before:
        value, table, position = before
        for op in frame.get("ops", ()):
            path = op["path"].split("/")[1:]
            value = _apply_op(value, [k.replace("~1", "/").replace("~0", "~") for k in path], op)
        if "keys" in frame:
            cut, *keys = frame["keys"]
            table = table[: _at(len(table) + 1, cut)] + keys
        if "change" in frame:
            value = apply_change(value, frame["change"], table)
    else:
        table, position = frame.get("keys", [0])[1:], (frame["epoch"], frame["seq"])
        value = _resolve(frame.get("state"), table)
    if checksum(value) != frame["checksum"]:
        raise ValueError("the checksum differs")
    return value, table, position


def _merge(base, layer):
    """Returns base and layer as one value (R35)."""
    if not isinstance(base, dict) or not isinstance(layer, dict):
        return base
    return base | {k: _merge(base[k], v) if k in base else v for k, v in layer.items()}


class Replica:
    """The copy of one room. A subclass has `ask(reason)`, and `changed()` for its listeners."""

    def __init__(self):
        self.epoch = self.seq = self._whole_seq = -1
        self.state, self.members, self._base, self._layers, self._held = None, {}, None, {}, []
        self.has_snapshot, self.waits = False, True

    def take_frame(self, frame):
        """Takes a frame with an epoch. Returns False if the frame is dropped (R12)."""
        t, seq = frame["t"], frame["seq"]
        late = t == "state.patch" and (self.waits or seq <= self.seq)
        if late or frame["epoch"] < self.epoch:
            return False
        whole = t in ("state.snapshot", "state.resync")
        try:
            if whole or t == "state.patch" and seq == self.seq + 1:
                self._take_flush(frame, whole)
            elif t == "layer.state" and seq == self.seq:
                self._show(self._base, self._layers_after([frame], self._layers))
            elif t in ("layer.state", "layer.patch"):
                self._held.append(frame)
            elif t in ("state.patch", "event", "member"):
                self._take_seq(frame)
        except CANNOT_APPLY:
            self._miss("checksum")
        return True

    def connection_lost(self):
        """Ends the wait for a whole state: a resume brings what is missing (R17, R32)."""
        self._held, self.waits = [], not self.has_snapshot

    def _miss(self, reason):
        if not self.waits:
            self.waits = True
            self.ask(reason)

    def _take_seq(self, frame):
        if frame["t"] == "member" and frame["seq"] > self._whole_seq:
            member_id, status = frame["member_id"], frame["status"]
            member = {"member_id": member_id, "sub": frame.get("sub")}
            member["connected"] = status != "disconnected"
            self.members = self.members | {member_id: member}
            if status == "left":
                del self.members[member_id]
            self.changed()
        if frame["seq"] > self.seq + 1:
            self._miss("sequence")
        elif frame["seq"] > self.seq and not self.waits:
            self.epoch, self.seq = frame["epoch"], frame["seq"]

    def _take_flush(self, frame, whole):
        position, kept = (frame["epoch"], frame["seq"]), self._layers
        held = [one for one in self._held if (one["epoch"], one["seq"]) == position]
        self._held = []
        if whole:
            kept = {name: part for name, part in kept.items() if part[2] == position}
            held = [one for one in held if one["t"] == "layer.state"]
        base = part_after(frame, None if whole else self._base)
        layers = self._layers_after(held, kept)
        self.epoch, self.seq = position
        if whole:
            self.members = {member["member_id"]: member for member in frame["members"]}
            self.has_snapshot, self.waits, self._whole_seq = True, False, frame["seq"]
        self._show(base, layers)

    @staticmethod
    def _layers_after(frames, layers):
        layers = dict(layers)
        for frame in frames:
            name = frame["layer"]
            if frame["t"] == "layer.patch":
                layers[name] = part_after(frame, layers[name])
            elif "state" in frame:
                layers[name] = part_after(frame)
            else:
                layers.pop(name, None)
        return layers

    def _show(self, base, layers):
        self._base, self._layers, self.state = base, layers, base[0]
        for value, *_ in layers.values():
            self.state = _merge(self.state, value)
        self.changed()
