-- Replaces the snapshot of an owned room, and empties the journal, which the snapshot covers.
--
-- KEYS[1] to KEYS[4], ARGV[1] to ARGV[4]: those of `owned` in fence.lua and `prolong` in prelude.lua
-- KEYS[5]   notices of the room, if there are new ones
-- ARGV[5]   snapshot
-- ARGV[6]   version of the state in the snapshot; '': 1
-- ARGV[7…]  notices of the covered turns
-- returns   1, or 0 if fenced
--
-- Invariant: the snapshot covers exactly the earlier commits, because its writer has seen all of them. A reader never gets the new snapshot
-- with the old journal.

if not owned() then
  return 0
end

redis.call('SET', KEYS[3], ARGV[5])
redis.call('DEL', KEYS[4])
add_notices(7)
redis.call('HSET', KEYS[1], 'version', digits(ARGV[2] + 1), 'state_version', ARGV[6], 'owned_at', digits(now()))

prolong()
return 1
