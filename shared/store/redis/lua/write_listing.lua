-- Writes or removes a room's row in a list.
--
-- KEYS[1]..KEYS[4]   the list: see put_row in prelude.lua
-- ARGV[1]   time for which a removed row keeps its epoch and version, in milliseconds
-- ARGV[2]   the room
-- ARGV[3]   epoch of the write
-- ARGV[4]   version of the write in that epoch
-- ARGV[5]   a space and the value; '': the row is removed
-- ARGV[6]   lifetime of the row in milliseconds; '': no expiry
-- ARGV[7]   generation of the list, if this write creates it
-- ARGV[8]   time after which nothing is written, in milliseconds since 1970; '': no limit
-- returns   1, or 0 if the list has a later row of the room, or ARGV[8] has passed
--
-- Invariant: of two writes the one with the larger (epoch, version) wins, in any order, also if it removes the row.

if ARGV[8] ~= '' and now() > tonumber(ARGV[8]) then
  return 0
end
purge_rows(10)
local epoch, version = string.match(redis.call('HGET', KEYS[2], ARGV[2]) or '', '^(%d+) (%d+)')
if epoch then
  local since = tonumber(ARGV[3]) - tonumber(epoch)
  if since < 0 or (since == 0 and tonumber(ARGV[4]) < tonumber(version)) then
    return 0
  end
end

if redis.call('HGET', KEYS[1], 'generation') == false then
  redis.call('HSET', KEYS[1], 'generation', ARGV[7])
end
put_row(ARGV[2], ARGV[3] .. ' ' .. ARGV[4] .. ARGV[5], ARGV[6] == '' and '+inf' or digits(now() + ARGV[6]))
return 1
