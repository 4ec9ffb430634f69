-- Keeps a note about a turn of a room's owner that does not end.
--
-- KEYS[1]   the room's record, a hash: epoch, version, owner ('' when released)
-- KEYS[2]   its notes of stuck turns, a list of "<milliseconds since 1970>:<epoch>:<note>", oldest first
-- ARGV[1]   the owner's epoch
-- ARGV[2]   the note
-- ARGV[3]   lifetime of the notes in milliseconds
-- ARGV[4]   how many notes are kept
-- returns   1, or 0 when fenced
--
-- Invariant: only the owner of the stored epoch is told of, so no note comes after another has claimed the room.

local record = redis.call('HMGET', KEYS[1], 'epoch', 'owner')
if record[1] ~= ARGV[1] or record[2] == '' then
  return 0
end

local time = now()
-- Of another kind: none.
local notes = redis.pcall('LRANGE', KEYS[2], 1 - ARGV[4], -1)
table.insert(notes, digits(time) .. ':' .. ARGV[1] .. ':' .. ARGV[2])
redis.call('DEL', KEYS[2])
redis.call('RPUSH', KEYS[2], unpack(notes))
redis.call('PEXPIREAT', KEYS[2], digits(time + ARGV[3]))
return 1
