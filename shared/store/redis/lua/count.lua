-- Goes on counting a room as one of its project.
--
-- KEYS[1]   the project's rooms, a sorted set: each room with the time up to which it is counted, milliseconds since 1970
-- ARGV[1]   the room
-- ARGV[2]   for how much longer in milliseconds
--
-- Invariant: the set lives as long as the room in it that is counted longest.

local time = now()
redis.call('ZADD', KEYS[1], digits(time + ARGV[2]), ARGV[1])
local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')
redis.call('PEXPIREAT', KEYS[1], last[2])
