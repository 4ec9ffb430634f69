-- Appends one entry to the journal of an owned room.
--
-- KEYS[1] to KEYS[4], ARGV[1] to ARGV[4]: those of `owned` in fence.lua and `prolong` in prelude.lua
-- KEYS[5]   the notices of the room, if there are new ones
-- ARGV[5]   entry
-- ARGV[6…]  notices of the turns in the entry
-- returns   1, or 0 if fenced
--
-- Invariant: only the owner of the stored epoch that has seen every commit so far can append. So at most one epoch of a room commits,
-- and no entry is appended twice.

if not owned() then
  return 0
end

redis.call('RPUSH', KEYS[4], ARGV[5])
add_notices(6)
redis.call('HSET', KEYS[1], 'version', digits(ARGV[2] + 1), 'owned_at', digits(now()))

prolong()
return 1
