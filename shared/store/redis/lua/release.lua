-- Gives an owned room up.
--
-- KEYS[1]   the room's record, a hash: epoch, version, owner ('' when released), contested (claim.lua)
-- KEYS[2]   the room's epoch, which outlives the record
-- KEYS[3]   its snapshot
-- KEYS[4]   its journal, a list
-- ARGV[1]   the writer's epoch
-- ARGV[2]   the version the writer saw last
-- ARGV[3]   lifetime of the record in milliseconds
-- ARGV[4]   lifetime of the epoch in milliseconds
-- ARGV[5]   '': the room goes on elsewhere; otherwise it has ended: lifetime of what is left of it in milliseconds
-- returns   1, or 0 when fenced
--
-- Invariant: only the owner gives up; after that no one writes before a new claim, and the epoch stays to be exceeded by it: of a room
-- that has ended for as long as anyone can be late (shared/store/rules.ts).

local record = redis.call('HMGET', KEYS[1], 'epoch', 'version', 'owner', 'contested')
if record[1] ~= ARGV[1] or record[2] ~= ARGV[2] or record[3] == '' then
  return 0
end

redis.call('HSET', KEYS[1], 'owner', '')
if ARGV[5] ~= '' then
  redis.call('DEL', KEYS[3], KEYS[4])
  if record[4] ~= '1' then
    redis.call('DEL', KEYS[2])
    redis.call('PEXPIRE', KEYS[1], ARGV[5])
    return 1
  end
end

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
redis.call('PEXPIREAT', KEYS[2], string.format('%.0f', now + ARGV[4]))
for _, key in ipairs({ KEYS[1], KEYS[3], KEYS[4] }) do
  redis.call('PEXPIREAT', key, string.format('%.0f', now + ARGV[3]))
end
return 1
