-- Says when a room is to be woken.
--
-- KEYS[1]   the rooms of its part by the time at which they are to be woken, a sorted set; milliseconds since 1970
-- KEYS[2]   a hash: by room, epoch and version of who has said it
-- ARGV[1]   the room
-- ARGV[2]   epoch of who says it
-- ARGV[3]   number of what it says, which grows
-- ARGV[4]   the time; '': at none
--
-- Invariant: what was said later stands, in whatever order it comes, as long as there is a time.

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
