-- Says who owns a room, and makes a node its owner if it is free: released, recorded as of this node, or nowhere.
--
-- KEYS, ARGV   as make_owner
-- ARGV[1]      '1': the node may claim; '': it only asks
-- ARGV[5]      the account that a room without content is created for; '': the room must have a record
-- ARGV[6]      the latest version of the state that the claimant has code for
-- returns      as make_owner, or {what owner_reply says}, or nil when the room is nowhere
--
-- Invariant: a room is never taken from another owner. Of all that open a free room at once exactly one gets it.

local record = owner_record()
local is_free = record.owner == '' or record.owner == ARGV[2]
local may_be_made = record.is_known or ARGV[5] ~= ''
local has_code = tonumber(record.state_version or '1') <= tonumber(ARGV[6])
if ARGV[1] == '1' and is_free and may_be_made and has_code then
  local claim = make_owner(record)
  if ARGV[5] ~= '' and redis.call('EXISTS', KEYS[3], KEYS[4]) == 0 then
    redis.call('HSET', KEYS[1], 'creator', ARGV[5])
  end
  return claim
end
local reply = owner_reply(record)
return reply and { reply }
