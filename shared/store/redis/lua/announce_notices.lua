-- Adds a room to the index of rooms with notices, before its owner writes some.
--
-- KEYS[1]   sorted set: rooms of its part by the time of their next delivery, in milliseconds since 1970
-- KEYS[2]   hash: by room, `<number of announcements> <epoch> <version> <failures>`
-- ARGV[1]   the room
-- ARGV[2]   epoch of the owner
-- ARGV[3]   version of the owner's write
--
-- Invariant: a room in the index keeps its time, because that is the lease of the delivering node. An earlier owner does not overwrite the
-- announcement of a later one.

local announced, epoch, version, failures = notices_of(ARGV[1])
if tonumber(epoch) <= tonumber(ARGV[2]) then
  epoch, version = ARGV[2], ARGV[3]
end
redis.call('HSET', KEYS[2], ARGV[1], digits(announced + 1) .. ' ' .. epoch .. ' ' .. version .. ' ' .. failures)
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then
  redis.call('ZADD', KEYS[1], digits(now()), ARGV[1])
end
return 1
