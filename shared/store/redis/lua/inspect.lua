-- Says who owns a room.
--
-- KEYS[1]   the room's record, a hash: epoch, version, owner ('' when released), state_version ('': 1),
--           recalled ('1' until the next claim)
-- KEYS[2]   the room's epoch, which outlives the record
-- returns   {epoch, version, owner, state_version or nil, 1 when recalled}, or nil when neither is known
--
-- Invariant: record and epoch are read at one moment; a room whose record has expired belongs to no one. An epoch or a version that is
-- no number, or has more than 15 digits, is damaged: the epoch is then the one that outlives the record, or 0, over which the room can be
-- claimed. So can one whose record is no hash.

local record = read('HMGET', KEYS[1], 'epoch', 'version', 'owner', 'state_version', 'recalled')
local epoch = whole(read('GET', KEYS[2]))
if record.err then
  return { epoch or '0', '0', '' }
end
if record[1] then
  return { whole(record[1]) or epoch or '0', whole(record[2]) or '0', record[3], whole(record[4]) or false, record[5] == '1' }
end

if epoch then
  return { epoch, '0', '' }
end
return false
