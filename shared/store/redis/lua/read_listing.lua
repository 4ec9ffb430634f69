-- Reads the changes of a list since a cursor.
--
-- KEYS[1]..KEYS[4]   the list: see put_row in prelude.lua
-- ARGV[1]   time for which a removed row keeps its epoch and version, in milliseconds
-- ARGV[2]   generation of the cursor; '': none
-- ARGV[3]   number of the reader's last change
-- ARGV[4]   time of this store after which the reader may miss changes, in milliseconds since 1970
-- ARGV[5]   maximum number of rooms
-- returns   {generation (nil: there is no list), last returned change, ARGV[4] of the next read, true if a new copy starts, true if there are
--           more changes, {room, row} for each, oldest change first}
--
-- Invariant: a reader that has missed a removal starts a new copy before the removed row is forgotten.

purge_rows(100)
local time = now()
local generation, changes = unpack(redis.call('HMGET', KEYS[1], 'generation', 'changes'))
if not generation then
  return { false, '0', '0', 1, 0, {} }
end

local last, since, restarted = ARGV[3], ARGV[4], 0
-- A promoted replica may have fewer changes than the reader.
if generation ~= ARGV[2] or tonumber(last) > tonumber(changes) or time - since >= tonumber(ARGV[1]) then
  last, since, restarted = '0', digits(time), 1
end

local limit = tonumber(ARGV[5])
local found = redis.call('ZRANGE', KEYS[3], '(' .. last, '+inf', 'BYSCORE', 'LIMIT', 0, limit + 1, 'WITHSCORES')
local rooms = {}
for i = 1, math.min(#found, 2 * limit), 2 do
  table.insert(rooms, { found[i], redis.call('HGET', KEYS[2], found[i]) })
  last = found[i + 1]
end
local more = #found > 2 * limit
return { generation, last, more and since or digits(time), restarted, more and 1 or 0, rooms }
