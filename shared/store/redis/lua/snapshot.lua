-- Replaces the snapshot of an owned room and empties the journal that it covers.
--
-- KEYS[1]   the room's record, a hash: epoch, version, owner ('' when released)
-- KEYS[2]   the room's epoch, which outlives the record
-- KEYS[3]   its snapshot
-- KEYS[4]   its journal, a list
-- ARGV[1]   the writer's epoch
-- ARGV[2]   the version the writer saw last
-- ARGV[3]   lifetime of the record in milliseconds
-- ARGV[4]   lifetime of the epoch in milliseconds
-- ARGV[5]   the snapshot
-- returns   1, or 0 when fenced
--
-- Invariant: the snapshot covers exactly what was committed before it, because its writer has seen every commit so far; no
-- moment shows the new snapshot beside the old journal.

local record = redis.call('HMGET', KEYS[1], 'epoch', 'version', 'owner')
if record[1] ~= ARGV[1] or record[2] ~= ARGV[2] or record[3] == '' then
  return 0
end

redis.call('SET', KEYS[3], ARGV[5])
redis.call('DEL', KEYS[4])
redis.call('HINCRBY', KEYS[1], 'version', 1)

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
redis.call('PEXPIREAT', KEYS[2], string.format('%.0f', now + ARGV[4]))
for _, key in ipairs({ KEYS[1], KEYS[3], KEYS[4] }) do
  redis.call('PEXPIREAT', key, string.format('%.0f', now + ARGV[3]))
end
return 1
