-- Appends one entry to the journal of an owned room.
--
-- KEYS[1]   the room's record, a hash: epoch, version, owner ('' when released)
-- KEYS[2]   the room's epoch, which outlives the record
-- KEYS[3]   its snapshot
-- KEYS[4]   its journal, a list
-- ARGV[1]   the writer's epoch
-- ARGV[2]   the version the writer saw last
-- ARGV[3]   lifetime of the record in milliseconds
-- ARGV[4]   lifetime of the epoch in milliseconds
-- ARGV[5]   the entry
-- returns   1, or 0 when fenced
--
-- Invariant: only the owner of the stored epoch, having seen every commit so far, appends; so at most one epoch of a room commits,
-- and no entry is appended twice. Record, snapshot and journal expire at one moment: none is ever found without the others.

local record = redis.call('HMGET', KEYS[1], 'epoch', 'version', 'owner')
if record[1] ~= ARGV[1] or record[2] ~= ARGV[2] or record[3] == '' then
  return 0
end

redis.call('RPUSH', KEYS[4], ARGV[5])
redis.call('HINCRBY', KEYS[1], 'version', 1)

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
redis.call('PEXPIREAT', KEYS[2], string.format('%.0f', now + ARGV[4]))
for _, key in ipairs({ KEYS[1], KEYS[3], KEYS[4] }) do
  redis.call('PEXPIREAT', key, string.format('%.0f', now + ARGV[3]))
end
return 1
