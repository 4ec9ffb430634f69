-- Sets the lifetime of an owned room's record.
--
-- KEYS[1] to KEYS[4], ARGV[1] to ARGV[4]: those of `owned` in fence.lua and `prolong` in prelude.lua
-- returns   account of the room's creator ('': unknown), or 0 if fenced
--
-- Invariant: only the owner extends the lifetime of a room. All keys of the room have the same lifetime, and only the epoch lives longer.

local record = owned()
if not record then
  return 0
end

redis.call('HSET', KEYS[1], 'owned_at', digits(now()))
prolong()
return record[5] or ''
