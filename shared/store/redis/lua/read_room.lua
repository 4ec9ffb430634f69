-- Reads the content of a room, whoever owns it.
--
-- KEYS[1]   snapshot of the room
-- KEYS[2]   journal of the room, a list
-- KEYS[3]   outcomes of requests to an earlier room of this name
-- returns   {snapshot or nil, {journal entries, oldest first}, outcomes or nil}
--
-- Invariant: all values are of one moment. A value of a wrong type counts as missing.

local snapshot, journal, outcomes = read('GET', KEYS[1]), read('LRANGE', KEYS[2], 0, -1), read('GET', KEYS[3])
return {
  type(snapshot) == 'string' and snapshot,
  journal.err and {} or journal,
  type(outcomes) == 'string' and outcomes,
}
