-- What scripts share: these lines stand before each of them.

-- The clock of this store, in whole milliseconds since 1970.
local function now()
  local clock = redis.call('TIME')
  return clock[1] * 1000 + math.floor(clock[2] / 1000)
end

-- A whole number as commands take it: Lua itself would write a large one with an exponent.
local function digits(number)
  return string.format('%.0f', number)
end

-- `text` when it is a whole number of at most 15 digits, else nothing: what a damaged record has in its place.
local function whole(text)
  return type(text) == 'string' and #text < 16 and text:match('^%d+$')
end

-- The reply to a command, or an error, in place of what is of another kind; raises any other error.
local function read(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err and not string.find(reply.err, 'WRONGTYPE', 1, true) then
    return redis.call(...)
  end
  return reply
end

-- Lets everything of a room live equally long, from now on, but for the epoch, which lives longer: none of the rest is ever found without
-- the others.
--
-- KEYS[1]   the room's record
-- KEYS[2]   the room's epoch, which outlives the record
-- KEYS[3]   its snapshot
-- KEYS[4]   its journal, a list
-- ARGV[3]   lifetime of the record in milliseconds; '': for ever
-- ARGV[4]   lifetime of the epoch in milliseconds; '': for ever
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

-- Adds notices to those of a room, from the argument `first` on. A notice that is there already stays where it is. Runs before the write that
-- counts: if the store refuses a command in between, the owner writes again.
--
-- KEYS[5]   the room's notices, a sorted set in the order of their turns
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

-- What the index of rooms with notices has of a room: see announce_notices.lua.
--
-- KEYS[2]   a hash by room
local function notices_of(room)
  local found = redis.call('HGET', KEYS[2], room) or ''
  local announced, epoch, version, failures = string.match(found, '^(%d+) (%d+) (%d+) (%d+)$')
  return announced or '0', epoch or '0', version or '0', failures or '0'
end

-- Counts a room in `set`, a sorted set of rooms with the time up to which each is counted, milliseconds since 1970. The set lives as long
-- as the room that is counted longest.
--
-- ARGV[1]   the room
-- ARGV[2]   for how much longer in milliseconds; '': for ever
local function count_room(set)
  redis.call('ZADD', set, ARGV[2] == '' and '+inf' or digits(now() + ARGV[2]), ARGV[1])
  local last = redis.call('ZRANGE', set, -1, -1, 'WITHSCORES')
  if last[2] == 'inf' then
    redis.call('PERSIST', set)
  else
    redis.call('PEXPIREAT', set, last[2])
  end
end

-- Puts a row into a list of rooms, as its latest change. The list lives as long as the row that lives longest, and so long after it that
-- a reader has seen it go.
--
-- KEYS[1]   the list, a hash: generation, and changes, the number of its changes
-- KEYS[2]   its rows by room, a hash: `<epoch> <version> <value>`, or `<epoch> <version>` of a room that is not listed any more
-- KEYS[3]   its rooms by the number of their last change, a sorted set
-- KEYS[4]   its rooms by the time at which their row expires, a sorted set; milliseconds since 1970
-- ARGV[1]   how long a removed row keeps its epoch and version, in milliseconds
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

-- Purges rows of a list that have expired, at most so many: one with a value loses it, which is a change, and one without a value goes.
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
