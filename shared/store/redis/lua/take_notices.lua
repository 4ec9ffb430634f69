-- Leases rooms whose next delivery of notices is due.
--
-- KEYS[1], KEYS[2]: those of announce_notices.lua
-- ARGV[1]   maximum number of rooms
-- ARGV[2]   lifetime of the lease in milliseconds
-- returns   {room, announcements, epoch, version, failures, end of the lease} for each, earliest first
--
-- Invariant: a leased room is not returned again before its lease has ended or its holder has scheduled it.

local time = now()
local till = digits(time + ARGV[2])
local taken = {}
for _, room in ipairs(redis.call('ZRANGE', KEYS[1], '-inf', digits(time), 'BYSCORE', 'LIMIT', 0, ARGV[1])) do
  redis.call('ZADD', KEYS[1], till, room)
  local announced, epoch, version, failures = notices_of(room)
  table.insert(taken, { room, announced, epoch, version, failures, till })
end
return taken
