-- Reads what the store has of a room, whoever owns it.
--
-- KEYS[1]   the room's snapshot
-- KEYS[2]   its journal, a list
-- KEYS[3]   outcomes of requests, which a room that has ended has left
-- returns   {snapshot or nil, {journal entries, oldest first}, outcomes or nil}
--
-- Invariant: all of it is as of one moment. What is of another kind counts as missing.

local snapshot, journal, outcomes = read('GET', KEYS[1]), read('LRANGE', KEYS[2], 0, -1), read('GET', KEYS[3])
return {
  type(snapshot) == 'string' and snapshot,
  journal.err and {} or journal,
  type(outcomes) == 'string' and outcomes,
}
