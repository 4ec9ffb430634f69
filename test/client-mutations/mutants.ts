/** A mistake of a client that breaks one rule: one change of its source. */
export interface Mutant {
  /** Title of the rule in docs/protocol.md. */
  readonly rule: string
  readonly name: string
  /** Path in the repository. */
  readonly file: string
  /** Part of the file, which has it exactly once. */
  readonly text: string
  readonly instead: string
}

type Row = readonly [rule: string, name: string, text: string, instead: string]

const PYTHON: readonly Row[] = [
  [
    'Frames',
    'an unknown message ends the connection',
    'BY_OPCODE.get(opcode, (None, ()))',
    'BY_OPCODE[opcode]',
  ],
  ['Hello', 'messages between hello and welcome', 'asyncio.Queue(), False, 10', 'asyncio.Queue(), True, 10'],
  ['Heartbeat', 'no ping after welcome', 'self._beat(connection, heartbeat)', 'pass'],
  [
    'Heartbeat',
    'ping only once',
    'call_later(seconds, self._beat, connection, seconds)',
    'call_later(1e9, self._beat, connection, seconds)',
  ],
  ['Heartbeat', 'a silent connection stays', 'True, 2 * heartbeat, None', 'True, 1e9, None'],
  ['Heartbeat', 'waits for ever for a welcome', 'False, 10  # R3', 'False, 1e9'],
  [
    'Close codes',
    'only the known codes of 40xx stop',
    'if code // 100 == 40:',
    'if code in (4000, 4001, 4003, 4006, 4008):',
  ],
  ['Close codes', '41xx stops, too', 'if code // 100 == 40:', 'if code // 100 in (40, 41):'],
  ['Close codes', '1000 stops', 'if code // 100 == 40:', 'if code // 100 == 40 or code == 1000:'],
  ['Backoff', 'no wait before attempts', 'if attempt:', 'if False:'],
  ['Backoff', 'a wait of 30 s', 'self._random() * min(10, ', 'max(30, '],
  ['Backoff', 'waits without a cap', 'min(10, 0.125 * 2 ** min(attempt, 9))', '0.125 * 2 ** attempt'],
  ['Backoff', 'waits that do not grow', '0.125 * 2 ** min(attempt, 9)', '0.25'],
  ['Backoff', 'never restarts', '.welcomed_at < 5 else 0', '.welcomed_at < 5 else attempt'],
  ['Backoff', 'restarts after each welcome', '.welcomed_at < 5 else 0', '.welcomed_at < 0 else 0'],
  ['New session', 'no rejoin', 'self.request(self._join | {"rejoin": True})', 'self.request(self._join)'],
  [
    'New session',
    'the same token again',
    'else await self._get_token(), self.codec()',
    'else "token-1", self.codec()',
  ],
  ['Goodbye', 'no goodbye', 'if self.send({"t": "goodbye"}):', 'if False:'],
  ['Goodbye', 'connects again after goodbye', 'self._main.cancel()\n        if', 'if'],
  [
    'Join',
    'request_id restarts in a new session',
    'self._session = {}\n                for',
    'self._session, self.request_ids = {}, count(1)\n                for',
  ],
  ['Join', 'messages before the snapshot', 'return self.has_snapshot and', 'return'],
  [
    'Join',
    'messages with a ref before the snapshot',
    'if self.has_snapshot:\n            self._client.send(message)',
    'self._client.send(message)',
  ],
  [
    'Join',
    'an answer counts for each request',
    'room.request_id == request_id if request_id else',
    'True if request_id else',
  ],
  [
    'Leave',
    'a refused leave ends the seat',
    '_settle(self._answer, error=RoomfulError(**frame))',
    'self.lose(RoomfulError(**frame))',
  ],
  [
    'Your seat is gone',
    'no rejoin after session_ended',
    'if why.code == "session_ended" and not leaves:',
    'if False:',
  ],
  [
    'Your seat is gone',
    'a rejoin after every reason',
    'if why.code == "session_ended" and not leaves:',
    'if not leaves:',
  ],
  [
    'Whole states',
    'only what was asked for',
    'if "members" in frame:\n',
    'if "members" in frame and (self._asking or not self.has_snapshot):\n',
  ],
  [
    'Whole states',
    'the members stay',
    'self.members = {member["member_id"]: member for',
    'self.members = self.members or {member["member_id"]: member for',
  ],
  ['Old frames', 'lower epochs are taken', 'and frame["epoch"] >= self.epoch:', 'and True:'],
  [
    'Old frames',
    'a patch of the known seq is applied again',
    'elif t == "state.patch" and ahead == 1',
    'elif t == "state.patch" and ahead in (0, 1)',
  ],
  [
    'Old frames',
    'a patch of any seq is applied',
    'elif t == "state.patch" and ahead == 1',
    'elif t == "state.patch" and ahead <= 1',
  ],
  [
    'Old frames',
    'an old patch is a gap',
    'elif ahead > 1:',
    'elif ahead > 1 or ahead < 0 and t == "state.patch":',
  ],
  [
    'Patches',
    'escapes in the wrong order',
    'k.replace("~1", "/").replace("~0", "~")',
    'k.replace("~0", "~").replace("~1", "/")',
  ],
  ['Patches', 'add replaces an element', 'inserts = op["op"] == "add" and depth == 0', 'inserts = False'],
  [
    'Patches',
    'the epoch is not kept',
    'self._parts, (self.epoch, self.seq) = parts, position',
    'self._parts, self.seq = parts, frame["seq"]',
  ],
  ['Checksum', 'is not compared', 'if checksum(value) != frame["checksum"]:', 'if False:'],
  [
    'Checksum',
    'a patch that cannot be applied is skipped',
    'except CANNOT_APPLY:\n                self._ask("checksum")',
    'except CANNOT_APPLY:\n                pass',
  ],
  ['Checksum', '-0 and 0 differ', 'struct.pack(">d", value + 0.0)', 'struct.pack(">d", value)'],
  ['Checksum', 'true is 1', 'if value is None or isinstance(value, bool):', 'if value is None:'],
  [
    'Checksum',
    'in characters instead of UTF-8',
    'for byte in value.encode():',
    'for byte in map(ord, value):',
  ],
  [
    'Gap',
    'an event behind a gap is dropped',
    'if t == "event":\n',
    'if t == "event" and frame["seq"] <= self.seq:\n',
  ],
  [
    'Gap',
    'a member behind a gap is dropped',
    'if status in STATUSES and',
    'if ahead <= 1 and status in STATUSES and',
  ],
  ['Gap', 'no question', 'elif ahead > 1:', 'elif False:'],
  ['Ask', 'twice', 'if again or not self._asking:', 'if True:'],
  [
    'Member list',
    'what the whole state has is applied again',
    'and frame["seq"] > self._whole_seq:',
    'and True:',
  ],
  ['Member list', 'an unknown status joins', 'if status in STATUSES and', 'if status and'],
  [
    'Member list',
    'disconnected leaves',
    'if status == "left" or',
    'if status in ("left", "disconnected") or',
  ],
  ['Sending', 'no limit of the rate', 'and self._client.budget() >= 1', ''],
  [
    'Sending',
    'a rate without a burst',
    'min(self._budget + earned, self.limits["message_burst"])',
    'self._budget + earned * 10',
  ],
  ['Sending', 'no limit of the size', 'if size > self._client.limits["max_message_bytes"]:', 'if False:'],
  [
    'Errors',
    'an error about a message ends the room',
    'elif t == "error":\n            log',
    'elif t == "error":\n            self.lose(RoomfulError(**frame))\n            log',
  ],
  [
    'Resume',
    'a new session instead',
    'token, codec = None if self._session else',
    'self._session = {}\n        token, codec =',
  ],
  [
    'Resume',
    'the first resume token for ever',
    'self._session = {name: welcome[name] for',
    'self._session = self._session or {name: welcome[name] for',
  ],
  [
    'Listed rooms',
    'rooms without a snapshot',
    'seats = [room for room in self.rooms if room.has_snapshot]',
    'seats = [room for room in self.rooms if room.room_id]',
  ],
  [
    'Listed rooms',
    'the member_id of before',
    'self.room_id, self.member_id = frame["room_id"], frame["member_id"]',
    'self.room_id = frame["room_id"]\n            self.member_id = getattr(self, "member_id", frame["member_id"])',
  ],
  [
    'After the welcome',
    'a leave is not sent again',
    'if not self._answer.done():\n            self._client.send(self._request)',
    'if not self._answer.done() and self._request["t"] == "join":\n            self._client.send(self._request)',
  ],
  [
    'After the welcome',
    'a join is not sent again',
    'if not self._answer.done():\n            self._client.send(self._request)',
    'if not self._answer.done() and self._request["t"] == "leave":\n            self._client.send(self._request)',
  ],
  [
    'After the welcome',
    'a new request_id',
    'if not self._answer.done():\n            self._client.send(self._request)',
    'if not self._answer.done():\n            self.request(self._request)',
  ],
  ['Session over', 'resumes after 43xx', 'if code // 100 == 43:', 'if False:'],
  ['Session over', 'only 4300 ends the session', 'if code // 100 == 43:', 'if code == 4300:'],
  [
    'Session over',
    'the messages of the old seat are sent again',
    'self._last_ref, self._kept = 0, {}  #',
    'self._last_ref, self._kept = getattr(self, "_last_ref", 0), getattr(self, "_kept", {})  #',
  ],
  [
    'Ref',
    'goes on after a new joined',
    'self._last_ref, self._kept = 0, {}  #',
    'self._last_ref, self._kept = getattr(self, "_last_ref", 0), {}  #',
  ],
  [
    'Ref',
    'a refused call uses up a ref',
    'ref, outcome = self._last_ref + 1, asyncio.Future()',
    'self._last_ref += 1\n        ref, outcome = self._last_ref, asyncio.Future()',
  ],
  [
    'Keep',
    'the other order',
    'in self._kept.values() if self.has_snapshot else ()',
    'in [*self._kept.values()][::-1] if self.has_snapshot else ()',
  ],
  ['Keep', 'not sent again', 'in self._kept.values() if self.has_snapshot else ()', 'in ()'],
  ['Keep', 'an ack is for one message', 'if kept <= ref]', 'if kept == ref]'],
  [
    'Keep',
    'an unknown ref ends the client',
    'elif t == "reply" and ref in self._kept:',
    'elif t == "reply":',
  ],
  [
    'Settled',
    'refused messages do not count',
    '_settle(self._kept.pop(ref)[1], error=RoomfulError(**frame))',
    '_settle(self._kept[ref][1], error=RoomfulError(**frame))',
  ],
  ['Settled', 'always 0', 'return next(iter(self._kept), self._last_ref + 1) - 1', 'return 0'],
  [
    'Settled',
    '0 while nothing is kept',
    'return next(iter(self._kept), self._last_ref + 1) - 1',
    'return next(iter(self._kept), 1) - 1',
  ],
  [
    'Outcome',
    'an error with a ref is tried again',
    '_settle(self._kept.pop(ref)[1], error=RoomfulError(**frame))',
    'self._client.send(self._kept[ref][0])',
  ],
  [
    'Outcome',
    'done at the reply',
    'self._kept[ref][2] = frame.get("data")',
    '_settle(self._kept.pop(ref)[1], frame.get("data"))',
  ],
  [
    'Lost seat',
    'kept messages stay',
    '_settle(outcome, error=RoomfulError("seat_lost", "the outcome is unknown"))',
    'pass',
  ],
  [
    'Feature',
    'is missing in a resume',
    'self._hello | ({"token": token} if token else resume)',
    '({"token": token} | self._hello if token else {**self._hello, "features": [], **resume})',
  ],
  [
    'Merge',
    'the layer wins',
    '{k: _merge(base[k], v) if k in base else v',
    '{k: _merge(base[k], v) if isinstance(v, dict) and k in base else v',
  ],
  [
    'MessagePack',
    'more elements end the connection',
    'for k, v in zip(names, values) if',
    'for k, v in zip(names, values, strict=len(values) > len(names)) if',
  ],
  ['The room', 'is not kept', 'self._room_id = values[0]', 'self._room_id = self._room_id or values[0]'],
  [
    'The epoch',
    'latest only from the resume',
    'self._epochs[self._room_id] = max(latest, number)',
    'self._epochs.setdefault(self._room_id, number)',
  ],
  [
    'The epoch',
    'each small number is short',
    'return latest if number == latest % 128 else number',
    'return latest if number < 128 else number',
  ],
  [
    'The epoch',
    'of a resume is not the latest',
    'self._epochs = {room["room_id"]: room["epoch"] for room in resume["rooms"]}',
    'pass',
  ],
  ['Decimals', 'without a sign', 'mantissa = (kind & 15) - (16 if kind & 8 else 0)', 'mantissa = kind & 15'],
  ['Decimals', 'one power of ten less', '/ 10 ** ((kind >> 4) + 1)', '/ 10 ** (kind >> 4)'],
  [
    'Keys',
    'a string of digits is an index',
    'key if isinstance(key, str) else table[key]\n',
    'table[int(key)] if str(key).isdigit() else key\n',
  ],
  ['Keys', 'a table is not cut', 'table = table[:cut] + keys', 'table = table + keys if cut else keys'],
  [
    'Changes',
    'values behind each other',
    'result[int(at) : int(at) + cut] = _resolve(items, table)',
    'result[int(at) : int(at)] = _resolve(items, table)',
  ],
  [
    'Changes',
    'an absent key may go',
    'del result[key]',
    'result.pop(key) if is_array else result.pop(key, None)',
  ],
  [
    'Changes',
    'other changes of a table are ignored',
    'for row, *changes in rows} | others',
    'for row, *changes in rows}',
  ],
  ['Open', 'url on every host', 'if to.hostname not in self._move_hosts or', 'if'],
  ['Open', 'ws: although the address is wss:', ' or to.scheme == "ws" and not insecure:', ':'],
  ['Open', 'before in_ms', 'await asyncio.sleep(move["in_ms"] / 1000)', 'await asyncio.sleep(0)'],
  ['Open', 'no second attempt without a url', 'if url != self._url:\n                return', 'return'],
  ['Open', 'tries again with a url', 'if url != self._url:\n                return', 'pass'],
  ['Open', 'a new move does not replace one that waits', 'if move is not self._latest_move:', 'if False:'],
  [
    'Change over',
    'all late frames of the first',
    'or message["seq"] > self._listed.get(room_id, -1):',
    'or False:',
  ],
  [
    'Change over',
    'no late frames of the first',
    'or message["seq"] > self._listed.get(room_id, -1):',
    'or True:',
  ],
  [
    'Change over',
    'resyncs of the first',
    'if t not in ("event", "member") or',
    'if t not in ("event", "member", "state.resync") or',
  ],
  ['Finish', 'the first stays open', 'self.previous.reader.cancel()', 'pass'],
  [
    'Finish',
    'the code of the second counts',
    'code = 0 if connection.previous else connection.socket.close_code or 0',
    'code = connection.socket.close_code or 0',
  ],
  ['Watch', 'a spectator plays after it has lost its seat', '{"watch": self.spectator}  # R49', '{}'],
  ['Role', 'without an entry is a player', '{"spectator": True}).get', '{}).get'],
  ['Change of role', 'seated keeps spectator', 'member.pop("spectator", None)', 'pass'],
  ['Change of role', 'unseated stays in the list', ' or status == "unseated" and not watches:', ':'],
  ['Count', 'is ignored', 'self.spectators = frame["count"]', 'pass'],
]

const FINDING: readonly Row[] = [
  [
    'Lists',
    'a list after rooms.end is shown',
    'if (this.#pending.delete(id)) this',
    'if (this.#pending.has(id)) this',
  ],
  ['Lists', 'only the first list', 'if (request && !isWatch(request)) this', 'if (request) this'],
  ['Again', 'requests are not sent again', 'for (const id of this.#pending.keys()) this.#send(id)', ''],
  [
    'Again',
    'watches are not sent again',
    'for (const id of this.#pending.keys()) this.#send(id)',
    'for (const [id, r] of this.#pending) if (!isWatch(r)) this.#send(id)',
  ],
]

const CLIENT: readonly Row[] = [
  ['Find', 'the join creates after a code', '{ ...target, create: false }', 'target'],
  [
    'Find',
    'banned is final',
    "new Set(['room_full', 'banned', 'already_joined'])",
    "new Set(['room_full', 'already_joined'])",
  ],
  ['Find', 'every refusal leads to another room', 'if (!ELSEWHERE.has(code)) throw error', ''],
  ['Find', 'not has only the last room', 'not.push(roomId)', 'not.splice(0, 1, roomId)'],
  ['Find', 'for ever', 'if (clock.monotonic() >= until)', 'if (false)'],
]

const rows = (file: string, list: readonly Row[]): readonly Mutant[] =>
  list.map(([rule, name, text, instead]) => ({ rule, name, file, text, instead }))

export const MUTANTS: readonly Mutant[] = [
  ...rows('clients/python/roomful.py', PYTHON),
  ...rows('client/finding.ts', FINDING),
  ...rows('client/client.ts', CLIENT),
]
