-- The holder of a lease says when the next delivery of a room's notices is due, or that there is none.
--
-- KEYS[1], KEYS[2]: those of announce_notices.lua
-- ARGV[1]   the room
-- ARGV[2]   end of the lease
-- ARGV[3]   milliseconds until the delivery is due; '': the room has no notices
-- ARGV[4]   failures of its oldest notice; without notices, the number of announcements that the holder knows
-- returns   the end of the new lease (1 without notices), or 0: the lease is another node's, or there was another announcement
--
-- Invariant: only the last holder changes anything, and no room leaves the index after an announcement that its holder does not know.

local score = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not score or digits(score) ~= ARGV[2] then
  return 0
end
local announced, epoch, version = notices_of(ARGV[1])
if ARGV[3] ~= '' then
  local due = digits(now() + ARGV[3])
  redis.call('ZADD', KEYS[1], due, ARGV[1])
  redis.call('HSET', KEYS[2], ARGV[1], announced .. ' ' .. epoch .. ' ' .. version .. ' ' .. ARGV[4])
  return due
end
if announced ~= ARGV[4] then
  return 0
end
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
return 1
