-- Functions of all scripts. These lines precede each script.

-- Returns the clock of this store in whole milliseconds since 1970.
local function now()
  local clock = redis.call('TIME')
  return clock[1] * 1000 + math.floor(clock[2] / 1000)
end

-- Returns an integer as an argument of commands. Lua itself would write a large one with an exponent.
local function digits(number)
  return string.format('%.0f', number)
end

-- Returns `text` if it is an integer of at most 15 digits. Returns nil for the value of a damaged record.
local function whole(text)
  return type(text) == 'string' and #text < 16 and text:match('^%d+$')
end

-- Returns the reply to a command, or the error of a key with a wrong type. Raises any other error.
local function read(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err and not string.find(reply.err, 'WRONGTYPE', 1, true) then
    return redis.call(...)
  end
  return reply
end

-- Sets one lifetime for all keys of a room, so that none exists without the others. Only the epoch lives longer.
--
-- KEYS[1]   the room's record
-- KEYS[2]   epoch of the room, which outlives the record
-- KEYS[3]   snapshot of the room
-- KEYS[4]   journal of the room, a list
-- ARGV[3]   lifetime of the record in milliseconds; '': no expiry
-- ARGV[4]   lifetime of the epoch in milliseconds; '': no expiry
local function prolong()
  if ARGV[3] == '' then
    for _, key in ipairs({ KEYS[1], KEYS[2], KEYS[3], KEYS[4] }) do
      redis.call('PERSIST', key)
    end
    return
  end
  local at = now()
  redis.call('PEXPIREAT', KEYS[2], digits(at + ARGV[4]))
  for _, key in ipairs({ KEYS[1], KEYS[3], KEYS[4] }) do
    redis.call('PEXPIREAT', key, digits(at + ARGV[3]))
  end
end

-- Adds notices to those of a room, from the argument `first` on. A known notice keeps its place. It runs before the main write: if the store
-- refuses a command in between, the owner repeats the write.
--
-- KEYS[5]   notices of the room, a sorted set in the order of their turns
local function add_notices(first)
  local score = 0
  if ARGV[first] then
    score = redis.call('ZRANGE', KEYS[5], -1, -1, 'WITHSCORES')[2] or 0
  end
  for i = first, #ARGV do
    score = score + 1
    redis.call('ZADD', KEYS[5], 'NX', digits(score), ARGV[i])
  end
end

-- Counts a room in `set`, a sorted set of rooms by the end of the time for which each counts, in milliseconds since 1970. The set lives as
-- long as the room that counts longest.
--
-- ARGV[1]   the room
-- ARGV[2]   time for which it counts in milliseconds; '': no expiry
local function count_room(set)
  redis.call('ZADD', set, ARGV[2] == '' and '+inf' or digits(now() + ARGV[2]), ARGV[1])
  local last = redis.call('ZRANGE', set, -1, -1, 'WITHSCORES')
  if last[2] == 'inf' then
    redis.call('PERSIST', set)
  else
    redis.call('PEXPIREAT', set, last[2])
  end
end

-- Writes a row into a list of rooms, as its latest change. The list outlives its longest row by the time in which readers see the removal.
--
-- KEYS[1]   the list, a hash: generation, and changes (number of changes)
-- KEYS[2]   hash: its rows by room, `<epoch> <version> <value>`, or `<epoch> <version>` for a removed row
-- KEYS[3]   sorted set: its rooms by the number of their last change
-- KEYS[4]   sorted set: its rooms by the expiry of their row, in milliseconds since 1970
-- ARGV[1]   time for which a removed row keeps its epoch and version, in milliseconds
local function put_row(room, row, expires_at)
  redis.call('ZADD', KEYS[3], redis.call('HINCRBY', KEYS[1], 'changes', 1), room)
  redis.call('HSET', KEYS[2], room, row)
  redis.call('ZADD', KEYS[4], expires_at, room)
  local last = redis.call('ZRANGE', KEYS[4], -1, -1, 'WITHSCORES')[2]
  for _, key in ipairs({ KEYS[1], KEYS[2], KEYS[3], KEYS[4] }) do
    if last == 'inf' then
      redis.call('PERSIST', key)
    else
      redis.call('PEXPIREAT', key, digits(last + ARGV[1]))
    end
  end
end

-- Purges expired rows of a list, up to a maximum. A row with a value loses it, which is a change. A row without a value is removed.
local function purge_rows(most)
  local time = now()
  for _, room in ipairs(redis.call('ZRANGE', KEYS[4], '-inf', digits(time), 'BYSCORE', 'LIMIT', 0, most)) do
    local fence, value = string.match(redis.call('HGET', KEYS[2], room) or '', '^(%d+ %d+)( ?)')
    if value == ' ' then
      put_row(room, fence, digits(time + ARGV[1]))
    else
      redis.call('HDEL', KEYS[2], room)
      redis.call('ZREM', KEYS[3], room)
      redis.call('ZREM', KEYS[4], room)
    end
  end
end
