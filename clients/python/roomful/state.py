"""States: checksums, key tables, changes and layers (R12, R13, R25 to R27, R31, R32)."""

import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

Table = list[str]  # Key table (R31).
Part = tuple[Any, Table]  # The value and the key table of the base or a layer.

# What Python raises for patches that cannot be applied (R13). The checksum shows the others.
CANNOT_APPLY = LookupError, TypeError, ValueError, AttributeError


def _mix(a: int, b: int) -> int:
    h = a * 0x9E3779B1 + b & 0xFFFFFFFF
    h = (h ^ h >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    h = (h ^ h >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return h ^ h >> 16


@lru_cache(maxsize=1 << 16, typed=True)  # typed: 1 and True are equal, but not their checksums.
def _scalar(value: Any) -> int:
    if value is None or isinstance(value, bool):
        return _mix(1, 0) if value is None else _mix(2, int(value))
    if isinstance(value, str):
        h = 0x811C9DC5
        for byte in value.encode():
            h = (h ^ byte) * 0x01000193 & 0xFFFFFFFF
        return _mix(_mix(4, 0), h)
    high, low = struct.unpack(">II", struct.pack(">d", value + 0.0))  # -0.0 + 0.0 is 0.0.
    return _mix(_mix(3, high), low)


def checksum(value: Any) -> int:
    """Returns the 32-bit checksum of a JSON value."""
    if isinstance(value, dict):
        return _mix(6, sum(_mix(_scalar(key), checksum(item)) for key, item in value.items()))
    if isinstance(value, list):
        return _mix(5, sum(_mix(index, checksum(item)) for index, item in enumerate(value)))
    return _scalar(value)


def _resolve(value: Any, table: Table) -> Any:
    """Returns a value with keys in the place of indexes of the key table (R31)."""
    if isinstance(value, list):
        return [_resolve(item, table) for item in value]
    if isinstance(value, dict):
        return {k if isinstance(k, str) else table[k]: _resolve(v, table) for k, v in value.items()}
    return value


def _change_of(op: dict[str, Any]) -> Any:
    """Returns an operation of a JSON Patch (R12) as a change (R32)."""
    keys = [k.replace("~1", "/").replace("~0", "~") for k in op["path"].split("/")[1:]]
    change: Any = None if op["op"] == "remove" else [op.get("value")]
    for depth, key in enumerate(reversed(keys)):
        inserts = op["op"] == "add" and depth == 0
        change = [{}, [key, 0, change]] if inserts else {key: change}
    return change


def _apply(value: Any, change: Any, table: Table) -> Any:
    """Returns a value after a change (R32). Copies the containers that change."""
    if not isinstance(change, (dict, list)):
        return change
    if isinstance(change, list) and len(change) == 1:
        return _resolve(change[0], table)
    result, is_array, splices = value.copy(), isinstance(value, list), []
    if isinstance(change, list) and len(change) == 2:
        change, splices = change
    if isinstance(change, list):
        keys, *rest = change
        width = len(keys) + 1
        others = rest.pop() if len(rest) % width == 1 else {}
        rows = (rest[at : at + width] for at in range(0, len(rest), width))
        change = {row: dict(zip(keys, changes)) for row, *changes in rows} | others
    for key, item in change.items():
        key = int(key) if is_array else key if isinstance(key, str) else table[key]
        if item is None:
            del result[key]
        else:
            result[key] = _apply(result[key] if is_array else result.get(key), item, table)
    for at, cut, items in zip(splices[::3], splices[1::3], splices[2::3]):
        if is_array:
            result[int(at) : int(at) + cut] = _resolve(items, table)
        else:
            result[at] = items[0]
    return result


NOTHING: Part = None, []


def part_after(frame: dict[str, Any], before: Part = NOTHING) -> Part:
    """Returns (value, key table) of the base or a layer after a frame: a whole state, or a patch
    of the part `before`. Raises one of CANNOT_APPLY."""
    value, table = before
    keys: list[Any] = frame.get("keys") or [len(table)]
    table = table[: keys[0]] + keys[1:]
    changes = [frame["change"]] if "change" in frame else map(_change_of, frame.get("ops", ()))
    for change in changes:
        value = _apply(value, change, table)
    if "state" in frame:
        value = _resolve(frame["state"], table)
    if checksum(value) != frame["checksum"]:
        raise ValueError("the checksum differs")
    return value, table


def layers_in(
    frame: dict[str, Any], names: dict[int, str]
) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """Yields the name and the change of each layer in a frame (R26): None if it is removed.
    `names`: the names that numbers stand for."""
    layers = frame.get("layers", {})
    if isinstance(layers, dict):
        yield from layers.items()
        return
    for number, *part in layers:
        if part and isinstance(part[0], str):
            names[number], *part = part
        yield names[number], dict(zip(("checksum", "keys", "change"), part)) if part else None


def merge(base: Any, layer: Any) -> Any:
    """Returns base and layer as one value (R27)."""
    if not isinstance(base, dict) or not isinstance(layer, dict):
        return base
    return base | {k: merge(base[k], v) if k in base else v for k, v in layer.items()}
