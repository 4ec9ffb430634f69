-- Sets, for the holder of a lease, the time of the next delivery of a room's notices, or removes the room from the index.
--
-- KEYS[1], KEYS[2]: those of announce_notices.lua
-- ARGV[1]   the room
-- ARGV[2]   end of the holder's lease
-- ARGV[3]   milliseconds until the delivery; '': the room has no notices
-- ARGV[4]   failures of the oldest notice; without notices, the number of announcements that the holder knows
-- returns   end of the new lease (1 without notices), or 0 if another node has the lease or there was another announcement
--
-- Invariant: only the last holder changes the index, and a room is not removed after an announcement that the holder does not know.

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
