-- Replaces the snapshot of an owned room and empties the journal that it covers.
--
-- KEYS[1] to KEYS[4], ARGV[1] to ARGV[4]: those of `owned` in fence.lua and `prolong` in prelude.lua
-- KEYS[5]   its notices, if there are new ones
-- ARGV[5]   the snapshot
-- ARGV[6]   the version of the state in it; '': 1
-- ARGV[7…]  notices of turns that it covers
-- returns   1, or 0 when fenced
--
-- Invariant: the snapshot covers exactly what was committed before it, because its writer has seen every commit so far; no
-- moment shows the new snapshot beside the old journal.

if not owned() then
  return 0
end

redis.call('SET', KEYS[3], ARGV[5])
redis.call('DEL', KEYS[4])
add_notices(7)
redis.call('HINCRBY', KEYS[1], 'version', 1)
redis.call('HSET', KEYS[1], 'state_version', ARGV[6])

prolong()
return 1
