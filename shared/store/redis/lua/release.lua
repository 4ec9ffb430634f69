-- Releases an owned room.
--
-- KEYS[1] to KEYS[4], ARGV[1] to ARGV[4]: those of `owned` in fence.lua and `prolong` in prelude.lua; ARGV[3] '0': the lifetime is unchanged
-- KEYS[5]   notices of the room
-- KEYS[6]   outcomes of requests, for later rooms of this name
-- ARGV[5]   '': the room continues; otherwise it has ended: lifetime of its remaining keys in milliseconds
-- ARGV[6]   outcomes of requests, for later rooms of this name; '': unchanged
-- ARGV[7]   lifetime of the outcomes in milliseconds
-- ARGV[8…]  notices of the last turn
-- returns   account of the room's creator ('': unknown), or 0 if fenced
--
-- Invariant: only the owner releases a room. Afterwards no node can write before a new claim, which exceeds the kept epoch. The epoch of an
-- ended room is kept for as long as messages can be late (ENDED_ROOM_MS in shared/store/port.ts).

local record = owned()
if not record then
  return 0
end

add_notices(8)
redis.call('HSET', KEYS[1], 'owner', '', 'owned_at', digits(now()))
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
