-- Says who owns a room.
--
-- KEYS[1]   the room's record, a hash: epoch, version, owner ('' when released), quarantined ('1': not to be claimed)
-- KEYS[2]   the room's epoch, which outlives the record
-- returns   {epoch, version, owner, quarantined or nil}, or nil when neither is known
--
-- Invariant: record and epoch are read at one moment; a room whose record has expired belongs to nobody.

local record = redis.call('HMGET', KEYS[1], 'epoch', 'version', 'owner', 'quarantined')
if record[1] then
  return record
end

local epoch = redis.call('GET', KEYS[2])
if epoch then
  return { epoch, '0', '' }
end
return false
