-- The fence, before every write of a room's owner. Returns the room's record, {epoch, version, owner, contested, creator}, or nil if the
-- writer does not own the room. Then the script writes nothing and returns 0.
--
-- KEYS[1]   the room's record, a hash: epoch, version, owner ('': released), contested, creator (owner.lua)
-- ARGV[1]   epoch of the writer
-- ARGV[2]   latest version that the writer has seen
local function owned()
  local record = redis.call('HMGET', KEYS[1], 'epoch', 'version', 'owner', 'contested', 'creator')
  if record[1] == ARGV[1] and record[2] == ARGV[2] and record[3] ~= '' then
    return record
  end
end
