-- Adds a room to the index of rooms with notices, before its owner writes some.
--
-- KEYS[1]   the rooms of its part by the time at which their next delivery is due, a sorted set; milliseconds since 1970
-- KEYS[2]   a hash: by room, `<number of announcements> <epoch> <version> <failures>`
-- ARGV[1]   the room
-- ARGV[2]   epoch of its owner
-- ARGV[3]   version under which the owner writes
--
-- Invariant: a room that is in the index keeps its time, which is the lease of the node that delivers. An earlier owner does not hide what a
-- later one has announced.

local announced, epoch, version, failures = notices_of(ARGV[1])
if tonumber(epoch) <= tonumber(ARGV[2]) then
  epoch, version = ARGV[2], ARGV[3]
end
redis.call('HSET', KEYS[2], ARGV[1], digits(announced + 1) .. ' ' .. epoch .. ' ' .. version .. ' ' .. failures)
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then
  redis.call('ZADD', KEYS[1], digits(now()), ARGV[1])
end
return 1
