-- Adds or removes a note about a turn of a room's owner that runs for long or did not end.
--
-- KEYS[1]   the room's record, a hash: epoch, version, owner ('': released)
-- KEYS[2]   notes of stuck turns, a list of "<milliseconds since 1970>:<epoch>:<note>", oldest first
-- ARGV[1]   epoch of the owner
-- ARGV[2]   note
-- ARGV[3]   lifetime of the notes in milliseconds
-- ARGV[4]   maximum number of notes
-- ARGV[5]   '1' adds the note, '0' removes it
-- returns   1, or 0 if fenced
--
-- Invariant: only the owner of the stored epoch adds and removes notes, so none changes after another node has claimed the room. Equal notes
-- are stored once.

local record = redis.call('HMGET', KEYS[1], 'epoch', 'owner')
if record[1] ~= ARGV[1] or record[2] == '' then
  return 0
end

local time = now()
local own = ':' .. ARGV[1] .. ':' .. ARGV[2]
local notes = {}
-- Of another kind: none.
for _, entry in ipairs(redis.pcall('LRANGE', KEYS[2], 0, -1)) do
  if entry:sub(-#own) ~= own then
    table.insert(notes, entry)
  end
end
if ARGV[5] == '1' then
  table.insert(notes, digits(time) .. own)
end
redis.call('DEL', KEYS[2])
if #notes > 0 then
  redis.call('RPUSH', KEYS[2], unpack(notes, math.max(1, #notes + 1 - ARGV[4])))
  redis.call('PEXPIREAT', KEYS[2], digits(time + ARGV[3]))
end
return 1
