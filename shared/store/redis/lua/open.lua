-- Returns the owner of a room, or makes a node the owner of a free room: one that is released, names this node, or has no record.
--
-- KEYS, ARGV   as make_owner
-- ARGV[1]      '1': the node may claim the room; '': it only reads the owner
-- ARGV[5]      account for which a room without content is created; '': the room must have a record
-- ARGV[6]      latest version of the state that the claimant has code for
-- returns      as make_owner, or {result of owner_reply}, or nil if there is no record
--
-- Invariant: a room is never taken from another owner. Of all nodes that open a free room at the same time exactly one gets it.

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
