-- Counts a room that is about to be created as one of its project, within the limits of the project and of the creator.
--
-- KEYS[1]   rooms of the project, a sorted set by the end of the time for which each counts, in milliseconds since 1970
-- KEYS[2]   time at which the creator's token bucket is full, in milliseconds since 1970
-- KEYS[3]   lasting rooms of the creator, a sorted set of the same kind
-- ARGV[1]   the room
-- ARGV[2]   time for which the room counts in milliseconds
-- ARGV[3]   maximum number of rooms of the project; 0: no limit
-- ARGV[4]   maximum number of new rooms of the creator in a minute; 0: no limit
-- ARGV[5]   maximum number of lasting rooms of the creator; 0: no limit
-- returns   'reserved', 'project_full', 'principal_full' or 'too_fast'
--
-- Invariant: concurrent reservations never exceed the limits. A room that already counts is not counted again. A refused reservation changes
-- nothing. The limit per minute is the generic cell rate algorithm, a token bucket that is stored as one number:
-- https://en.wikipedia.org/wiki/Generic_cell_rate_algorithm

local time = now()
local max_rooms, per_minute, max_lasting = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])

redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', time)
if redis.call('ZSCORE', KEYS[1], ARGV[1]) then
  return 'reserved'
end
if max_rooms > 0 and redis.call('ZCARD', KEYS[1]) >= max_rooms then
  return 'project_full'
end
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', time)
if max_lasting > 0 and redis.call('ZCARD', KEYS[3]) >= max_lasting then
  return 'principal_full'
end

if per_minute > 0 then
  -- It is more than a minute ahead only if this clock was set back.
  local full_at = math.min(math.max(tonumber(redis.call('GET', KEYS[2]) or '0'), time), time + 60000)
  local next_full_at = full_at + 60000 / per_minute
  if next_full_at > time + 60000 then
    return 'too_fast'
  end
  local text = string.format('%.3f', next_full_at)
  redis.call('SET', KEYS[2], text, 'PXAT', digits(math.ceil(next_full_at)))
end

count_room(KEYS[1])
return 'reserved'
