"""Runs docs/protocol-vectors.json against the codecs, the checksum and the patches."""

import json
import unittest
from pathlib import Path

from fakes import client_message

from roomful import Json, MsgPack
from roomful.state import CANNOT_APPLY, NOTHING, checksum, layers_in, part_after

VECTORS = json.loads((Path(__file__).parents[3] / "docs/protocol-vectors.json").read_text())


def bytes_of(vector):
    return bytes.fromhex(vector["msgpack"])


def room_codec():
    codec = MsgPack()
    codec.decode(bytes_of(VECTORS["address"]))
    return codec


def without_nulls(message):
    return {key: value for key, value in message.items() if value is not None}


class Vectors(unittest.TestCase):
    def each(self, name, check):
        """Checks each vector of this name."""
        for vector in VECTORS[name]:
            with self.subTest(vector.get("about", json.dumps(vector)[:150])):
                check(vector)

    def test_checksums(self):
        def check(vector):
            self.assertEqual(checksum(vector["value"]), vector["checksum"])

        self.each("checksums", check)

    def test_the_client_writes_its_messages(self):
        def check(vector):
            if vector["from"] == "client":
                expected = client_message(bytes_of(vector))
                self.assertEqual(expected, without_nulls(vector["json"]))
                self.assertEqual(client_message(MsgPack().encode(vector["json"])), expected)
                self.assertEqual(json.loads(Json().encode(vector["json"])), vector["json"])

        self.each("messages", check)

    def test_the_client_reads_messages_of_the_server(self):
        def check(vector):
            if vector.get("from") != "client":
                message, wanted = room_codec().decode(bytes_of(vector)), vector["json"]
                if wanted:
                    self.assertEqual(message, without_nulls(wanted))
                else:  # The address of a room, or a message of a later version.
                    self.assertFalse(message.keys() - {"t", "room_id"})

        self.each("messages", check)
        self.each("frames", check)

    def test_the_stream(self):
        """Both subprotocols lead to the same states."""
        codec = room_codec()
        for read in (lambda vector: vector["json"], lambda vector: codec.decode(bytes_of(vector))):
            parts, names = {}, {}

            def check(vector):
                frame, layers = read(vector), vector.get("layers", {})
                if "members" in frame:
                    parts.clear()
                    names.clear()
                parts[""] = part_after(frame, parts.get("", NOTHING))
                for layer, change in layers_in(frame, names):
                    if change:
                        parts[layer] = part_after(change, parts.get(layer, NOTHING))
                    else:
                        del parts[layer]
                states = {layer: state for layer, (state, _) in parts.items()}
                self.assertEqual(states, {"": vector["state"]} | layers)
                for name in ("t", "room_id", "epoch", "seq", "checksum", "members"):
                    self.assertEqual(frame.get(name), vector["json"].get(name))

            self.each("stream", check)

    def test_patches(self):
        def check(vector):
            frame = MsgPack().decode(bytes_of(vector))
            before = vector["state"], vector["keys"]
            if vector["applied"]:
                value, table = part_after(frame, before)
                self.assertEqual((value, table), (vector["state_after"], vector["keys_after"]))
            else:
                with self.assertRaises(CANNOT_APPLY):
                    part_after(frame, before)

        self.each("patches", check)

    def test_a_float_is_the_same_number(self):
        self.assertEqual(checksum([1, 0, 2**53 - 1]), checksum([1.0, -0.0, float(2**53 - 1)]))


if __name__ == "__main__":
    unittest.main()
