-- The fence, before every write of a room's owner: whether the writer still owns the room. Gives the room's record,
-- {epoch, version, owner, contested, creator}, or nil: then the script writes nothing and returns 0.
--
-- KEYS[1]   the room's record, a hash: epoch, version, owner ('' when released), contested, creator (owner.lua)
-- ARGV[1]   the writer's epoch
-- ARGV[2]   the version the writer saw last
local function owned()
  local record = redis.call('HMGET', KEYS[1], 'epoch', 'version', 'owner', 'contested', 'creator')
  if record[1] == ARGV[1] and record[2] == ARGV[2] and record[3] ~= '' then
    return record
  end
end
