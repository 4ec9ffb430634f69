-- Gives an owned room up.
--
-- KEYS[1] to KEYS[4], ARGV[1] to ARGV[4]: those of `owned` in fence.lua and `prolong` in prelude.lua; ARGV[3] '0': the room keeps
--           the lifetime it has
-- KEYS[5]   its notices
-- KEYS[6]   outcomes of requests, which a room that has ended leaves
-- ARGV[5]   '': the room goes on elsewhere; otherwise it has ended: lifetime of what is left of it in milliseconds
-- ARGV[6]   outcomes of requests, for later rooms of this name; '': what is there stays
-- ARGV[7]   their lifetime in milliseconds
-- ARGV[8…]  notices of its last turn
-- returns   who made the room ('': not known), or 0 when fenced
--
-- Invariant: only the owner gives up; after that no one writes before a new claim, and the epoch stays to be exceeded by it: of a room
-- that has ended for as long as anyone can be late (ENDED_ROOM_MS in shared/store/port.ts).

local record = owned()
if not record then
  return 0
end

add_notices(8)
redis.call('HSET', KEYS[1], 'owner', '')
if ARGV[5] ~= '' then
  redis.call('HSET', KEYS[1], 'state_version', '', 'creator', '')
  redis.call('DEL', KEYS[3], KEYS[4])
  if ARGV[6] ~= '' then
    redis.call('SET', KEYS[6], ARGV[6], 'PX', ARGV[7])
  end
  if record[4] ~= '1' then
    redis.call('DEL', KEYS[2])
    redis.call('PEXPIRE', KEYS[1], ARGV[5])
    return record[5] or ''
  end
end

if ARGV[3] ~= '0' then
  prolong()
end
return record[5] or ''
