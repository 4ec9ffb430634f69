-- Puts the record of an owned room aside, so that the room can be made again.
--
-- KEYS[1]   the room's record, a hash: epoch, version, owner, quarantined ('1': not to be claimed for as long as the record lives)
-- KEYS[2]   the room's epoch, which outlives the record
-- KEYS[3]   its snapshot
-- KEYS[4]   its journal, a list
-- KEYS[5]   what is put aside, a hash: epoch, owner, reason, at (milliseconds since 1970)
-- KEYS[6]   the snapshot that is put aside
-- KEYS[7]   the journal that is put aside, a list
-- ARGV[1]   the writer's epoch
-- ARGV[2]   the version the writer saw last
-- ARGV[3]   for how long no one may claim the room, in milliseconds; 0: it can be claimed at once
-- ARGV[4]   lifetime of the epoch in milliseconds
-- ARGV[5]   lifetime of what is put aside in milliseconds
-- ARGV[6]   the reason, a text
-- returns   who made the room ('': not known), or 0 when fenced
--
-- Invariant: only the owner puts a record aside, whole and unchanged; afterwards no one writes before a new claim, which finds nothing
-- of it but the epoch. One record of a room is aside at a time: the last.

local record = owned()
if not record then
  return 0
end

local time = now()

-- Copied, not renamed: that needs no right that a user of the store does not have anyway.
redis.call('DEL', KEYS[5], KEYS[6], KEYS[7])
redis.call('HSET', KEYS[5], 'epoch', ARGV[1], 'owner', record[3], 'reason', ARGV[6], 'at', digits(time))
-- What is no string, or no list, cannot be put aside: the reason says so.
local snapshot = redis.pcall('GET', KEYS[3])
if type(snapshot) == 'string' then
  redis.call('SET', KEYS[6], snapshot)
end
for _, entry in ipairs(redis.pcall('LRANGE', KEYS[4], 0, -1)) do
  redis.call('RPUSH', KEYS[7], entry)
end
for _, key in ipairs({ KEYS[5], KEYS[6], KEYS[7] }) do
  redis.call('PEXPIREAT', key, digits(time + ARGV[5]))
end

redis.call('DEL', KEYS[1], KEYS[3], KEYS[4])
if ARGV[3] ~= '0' then
  redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'version', '0', 'owner', '', 'quarantined', '1')
  redis.call('PEXPIREAT', KEYS[1], digits(time + ARGV[3]))
end
redis.call('PEXPIREAT', KEYS[2], digits(time + ARGV[4]))
return record[5] or ''
