-- Sets the time of a room in an index of rooms by time.
--
-- KEYS[1]   sorted set: rooms of its part by this time, in milliseconds since 1970
-- KEYS[2]   hash: by room, the fence (epoch and version) under which the time was set
-- ARGV[1]   the room
-- ARGV[2]   epoch of the fence
-- ARGV[3]   version of the fence
-- ARGV[4]   the time; '': none
--
-- Invariant: the time of the latest fence wins, in any order of the calls, as long as there is a time.

local epoch, version = string.match(redis.call('HGET', KEYS[2], ARGV[1]) or '', '^(%d+) (%d+)$')
if epoch then
  local since = tonumber(ARGV[2]) - tonumber(epoch)
  if since < 0 or (since == 0 and tonumber(ARGV[3]) < tonumber(version)) then
    return 0
  end
end

if ARGV[4] == '' then
  redis.call('ZREM', KEYS[1], ARGV[1])
  redis.call('HDEL', KEYS[2], ARGV[1])
else
  redis.call('ZADD', KEYS[1], ARGV[4], ARGV[1])
  redis.call('HSET', KEYS[2], ARGV[1], ARGV[2] .. ' ' .. ARGV[3])
end
return 1
