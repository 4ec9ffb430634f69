"""Runs docs/protocol-vectors.json against the codecs, the checksum and the patches."""

import json
import unittest
from pathlib import Path

from fakes import client_message
from roomful import CANNOT_APPLY, Json, MsgPack, checksum, part_after

VECTORS = json.loads((Path(__file__).parents[2] / "docs/protocol-vectors.json").read_text())
ADDRESS = bytes.fromhex(VECTORS["address"]["msgpack"])


def bytes_of(vector):
    return bytes.fromhex(vector["msgpack"])


def without_nulls(message):
    return {key: value for key, value in message.items() if value is not None}


class Vectors(unittest.TestCase):
    def each(self, name):
        for vector in VECTORS[name]:
            with self.subTest(vector.get("about", json.dumps(vector)[:150])):
                yield vector

    def test_checksums(self):
        for vector in self.each("checksums"):
            self.assertEqual(checksum(vector["value"]), vector["checksum"])

    def test_the_client_writes_its_messages(self):
        for vector in self.each("messages"):
            if vector["from"] == "client":
                expected = client_message(bytes_of(vector))
                self.assertEqual(expected, without_nulls(vector["json"]))
                self.assertEqual(client_message(MsgPack.encode(vector["json"])), expected)
                self.assertEqual(json.loads(Json.encode(vector["json"])), vector["json"])

    def test_the_client_reads_messages_of_the_server(self):
        vectors = [one for one in VECTORS["messages"] if one["from"] == "server"]
        for vector in vectors + VECTORS["frames"]:
            with self.subTest(vector["msgpack"]):
                codec = MsgPack({})
                codec.decode(ADDRESS)
                message, wanted = codec.decode(bytes_of(vector)), vector["json"]
                self.assertEqual(message, wanted and without_nulls(wanted))

    def test_the_stream(self):
        """Both subprotocols lead to the same states."""
        for read in (lambda vector: vector["json"], self.msgpack_reader()):
            parts = {}
            for vector in self.each("stream"):
                frame, layer = read(vector), vector.get("layer")
                whole = vector["kind"] in ("snapshot", "resync")
                parts[layer] = part_after(frame, None if whole else parts[layer])
                self.assertEqual(parts[layer][0], vector["state"])
                for name in ("t", "room_id", "epoch", "seq", "checksum", "layer", "members"):
                    self.assertEqual(frame.get(name), vector["json"].get(name))

    def msgpack_reader(self):
        codec = MsgPack({})
        codec.decode(ADDRESS)
        return lambda vector: codec.decode(bytes_of(vector))

    def test_patches(self):
        for vector in self.each("patches"):
            frame, before = MsgPack({}).decode(bytes_of(vector)), (vector["state"], vector["keys"], ())
            if vector["applied"]:
                value, table, _ = part_after(frame, before)
                self.assertEqual((value, table), (vector["state_after"], vector["keys_after"]))
            else:
                with self.assertRaises(CANNOT_APPLY):
                    part_after(frame, before)

    def test_a_float_is_the_same_number(self):
        self.assertEqual(checksum([1, 0, 2**53 - 1]), checksum([1.0, -0.0, float(2**53 - 1)]))


if __name__ == "__main__":
    unittest.main()
