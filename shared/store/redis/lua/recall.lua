-- Says that a node owned a room which the store has lost.
--
-- KEYS[1]   the room's record, a hash: epoch, version, owner, recalled ('1' until the next claim)
-- KEYS[2]   the room's epoch, which outlives the record
-- ARGV[1]   the epoch the node had
-- ARGV[2]   the node
-- ARGV[3]   lifetime of the record in milliseconds
-- ARGV[4]   lifetime of the epoch in milliseconds
-- returns   1, or 0 when the room has a record, or was recalled under a higher epoch
--
-- Invariant: of all that recall a room, the last owner stands in the end, whatever the order; a record that was not recalled is
-- never touched. Nothing can be committed under a recalled record that was committed to the lost one: its version is 0.

local record = redis.call('HMGET', KEYS[1], 'epoch', 'recalled')
local epoch = record[1] or redis.call('GET', KEYS[2]) or '0'
if record[1] and record[2] ~= '1' then
  return 0
end
if tonumber(epoch) > tonumber(ARGV[1]) then
  return 0
end

local time = now()
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'version', '0', 'owner', ARGV[2], 'recalled', '1')
redis.call('PEXPIREAT', KEYS[1], digits(time + ARGV[3]))
redis.call('SET', KEYS[2], ARGV[1], 'PXAT', digits(time + ARGV[4]))
return 1
