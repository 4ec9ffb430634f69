-- Moves the record of an owned room to the quarantine, so that the room can be created again.
--
-- KEYS[1]   the room's record, a hash: epoch, version, owner
-- KEYS[2]   epoch of the room, which outlives the record
-- KEYS[3]   snapshot of the room
-- KEYS[4]   journal of the room, a list
-- KEYS[5]   the quarantine, a hash: epoch, owner, reason, at (milliseconds since 1970)
-- KEYS[6]   snapshot in the quarantine
-- KEYS[7]   journal in the quarantine, a list
-- ARGV[1]   epoch of the writer
-- ARGV[2]   latest version that the writer has seen
-- ARGV[3]   lifetime of the epoch in milliseconds
-- ARGV[4]   lifetime of the quarantine in milliseconds
-- ARGV[5]   reason, a text
-- returns   account of the room's creator ('': unknown), or 0 if fenced
--
-- Invariant: only the owner moves a record, complete and unchanged. Afterwards no node can write before a new claim, which finds only the
-- epoch. The quarantine holds only the last record of a room.

local record = owned()
if not record then
  return 0
end

local time = now()

-- Copied, not renamed, because that needs no additional permission.
redis.call('DEL', KEYS[5], KEYS[6], KEYS[7])
redis.call('HSET', KEYS[5], 'epoch', ARGV[1], 'owner', record[3], 'reason', ARGV[5], 'at', digits(time))
-- A snapshot that is not a string, or a journal that is not a list, cannot be copied. The reason says so.
local snapshot = redis.pcall('GET', KEYS[3])
if type(snapshot) == 'string' then
  redis.call('SET', KEYS[6], snapshot)
end
for _, entry in ipairs(redis.pcall('LRANGE', KEYS[4], 0, -1)) do
  redis.call('RPUSH', KEYS[7], entry)
end
for _, key in ipairs({ KEYS[5], KEYS[6], KEYS[7] }) do
  redis.call('PEXPIREAT', key, digits(time + ARGV[4]))
end

redis.call('DEL', KEYS[1], KEYS[3], KEYS[4])
redis.call('PEXPIREAT', KEYS[2], digits(time + ARGV[3]))
return record[5] or ''
