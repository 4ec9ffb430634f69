-- Counts a room that is about to be made as one of its project, within the limits of the project and of the one who makes it.
--
-- KEYS[1]   the project's rooms, a sorted set: each room with the time up to which it is counted, milliseconds since 1970
-- KEYS[2]   when its maker may make a room again as fast as any, milliseconds since 1970
-- KEYS[3]   the lasting rooms that its maker has made, a sorted set of the same kind
-- ARGV[1]   the room
-- ARGV[2]   how long it is counted in milliseconds
-- ARGV[3]   how many rooms the project may have; 0: any number
-- ARGV[4]   how many new rooms its maker may make in a minute; 0: any number
-- ARGV[5]   how many lasting rooms its maker may have; 0: any number
-- returns   'reserved', 'project_full', 'principal_full' or 'too_fast'
--
-- Invariant: of all that reserve at once no more get one than the limits allow; a room that is counted already is not counted again. What
-- is refused leaves nothing behind. The limit by the minute is the generic cell rate algorithm, a token bucket that rests as one number:
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
  -- Further than a minute ahead only when this clock was set back.
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
