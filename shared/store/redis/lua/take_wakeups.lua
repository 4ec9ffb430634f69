-- Takes rooms whose time has come, and puts them off.
--
-- KEYS[1], KEYS[2]: those of set_wakeup.lua
-- ARGV[1]   how many at most
-- ARGV[2]   by how many milliseconds each is put off
-- returns   each room with epoch and version of who has said its time, the earliest first
--
-- Invariant: a room stays in the set until someone says that it is not to be woken.

local time = now()
local taken = {}
for _, room in ipairs(redis.call('ZRANGE', KEYS[1], '-inf', digits(time), 'BYSCORE', 'LIMIT', 0, ARGV[1])) do
  redis.call('ZADD', KEYS[1], digits(time + ARGV[2]), room)
  local epoch, version = string.match(redis.call('HGET', KEYS[2], room) or '', '^(%d+) (%d+)$')
  table.insert(taken, { room, epoch or '0', version or '0' })
end
return taken
