-- Records that a node owned a room that the store has lost.
--
-- KEYS[1]   the room's record, a hash: epoch, version, owner, recalled ('1' until the next claim)
-- KEYS[2]   epoch of the room, which outlives the record
-- ARGV[1]   epoch of the node
-- ARGV[2]   node
-- ARGV[3]   lifetime of the record in milliseconds
-- ARGV[4]   lifetime of the epoch in milliseconds
-- returns   1, or 0 if the room has a record or was recalled under a higher epoch
--
-- Invariant: of all recalls of a room, that of the last owner wins, in any order. A record that was not recalled is never changed. The
-- version of a recalled record is 0, so a commit for the lost record is fenced.

local record = redis.call('HMGET', KEYS[1], 'epoch', 'recalled')
local epoch = record[1] or redis.call('GET', KEYS[2]) or '0'
if record[1] and record[2] ~= '1' then
  return 0
end
if tonumber(epoch) > tonumber(ARGV[1]) then
  return 0
end

local time = now()
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'version', '0', 'owner', ARGV[2], 'recalled', '1', 'owned_at', digits(time))
redis.call('PEXPIREAT', KEYS[1], digits(time + ARGV[3]))
redis.call('SET', KEYS[2], ARGV[1], 'PXAT', digits(time + ARGV[4]))
return 1
