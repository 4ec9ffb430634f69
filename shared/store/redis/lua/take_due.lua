-- Returns the due rooms, and postpones them.
--
-- KEYS[1], KEYS[2]: those of set_due.lua
-- ARGV[1]   maximum number of rooms
-- ARGV[2]   milliseconds by which each is postponed
-- returns   each room with the epoch and version under which its time was set, earliest first
--
-- Invariant: a room stays in the set until its time is removed.

local time = now()
local taken = {}
for _, room in ipairs(redis.call('ZRANGE', KEYS[1], '-inf', digits(time), 'BYSCORE', 'LIMIT', 0, ARGV[1])) do
  redis.call('ZADD', KEYS[1], digits(time + ARGV[2]), room)
  local epoch, version = string.match(redis.call('HGET', KEYS[2], room) or '', '^(%d+) (%d+)$')
  table.insert(taken, { room, epoch or '0', version or '0' })
end
return taken
