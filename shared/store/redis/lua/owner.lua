-- Reads the owner of a room, and makes a node the owner.
--
-- KEYS[1]   the room's record, a hash: epoch, version, owner ('': released), state_version ('': 1), recalled ('1' until the next claim),
--           contested ('1': an earlier owner may not know that it lost the room), creator (account that created the room; '': unknown),
--           owned_at (last time at which an owner claimed, wrote, refreshed, recalled or released the room: milliseconds since 1970)
-- KEYS[2]   epoch of the room, which outlives the record

-- Returns the record and the epoch of a room. A room whose record has expired belongs to no node. An epoch or a version that is not a number
-- of at most 15 digits is damaged. Then the epoch is the one that outlives the record, or 0, and the room can be claimed over it. The same
-- holds if the record is not a hash.
local function owner_record()
  local fields = read('HMGET', KEYS[1], 'epoch', 'version', 'owner', 'state_version', 'recalled', 'contested', 'owned_at')
  local epoch = not fields.err and whole(fields[1]) or whole(read('GET', KEYS[2]))
  if fields.err or not fields[1] then
    return { damaged = fields.err, epoch = epoch or '0', version = '0', owner = '', is_known = fields.err or epoch }
  end
  return {
    epoch = epoch or '0',
    version = whole(fields[2]) or '0',
    owner = fields[3],
    state_version = whole(fields[4]),
    recalled = fields[5] == '1',
    contested = fields[6] == '1',
    owned_at = whole(fields[7]),
    is_known = true,
    is_there = true,
  }
end

-- Returns an owner for a reply: {epoch, version, owner, state_version or nil, 1 if recalled}, or nil if neither record nor epoch is known.
local function owner_reply(record)
  if not record.is_known then
    return false
  end
  return { record.epoch, record.version, record.owner, record.state_version or false, record.recalled }
end

-- Makes a node the owner of a room under a new epoch.
--
-- KEYS[3]   snapshot of the room
-- KEYS[4]   journal of the room, a list
-- KEYS[5]   outcomes of requests to an earlier room of this name
-- ARGV[2]   claimant
-- ARGV[3]   minimum lifetime of the record in milliseconds
-- ARGV[4]   lifetime of the epoch in milliseconds

-- returns   {epoch, version, snapshot or nil, {journal entries, oldest first}, outcomes or nil, milliseconds since owned_at or nil}
--
-- Invariant: the new epoch is larger than every earlier one: at least the old one + 1, and at least this store's clock in milliseconds, so
-- that epochs grow even if the store has lost its data.
-- A claim never shortens the lifetime of a room: a sleeping room must not be lost if its claimant crashes before its first write.
-- A record is contested after a claim over an owner that had not released the room, or over an epoch without a record.
-- Damaged data does not prevent a claim. An invalid epoch or version counts as missing. If the record, the snapshot or the journal has a wrong
-- type, the claimant gets the error instead of the snapshot or the journal, and finds it unreadable.
local function make_owner(record)
  if record.damaged then
    redis.call('DEL', KEYS[1])
  elseif not record.is_there then
    redis.call('DEL', KEYS[3], KEYS[4])
  end

  local left = redis.call('PTTL', KEYS[1])
  local time = now()
  local next_epoch = digits(math.max(record.epoch + 1, time))
  local released = record.epoch == '0' or (record.is_there and record.owner == '')
  local contested = (record.contested or not released) and '1' or ''

  redis.call('HSET', KEYS[1], 'epoch', next_epoch, 'version', record.version, 'owner', ARGV[2], 'recalled', '', 'contested', contested,
    'owned_at', digits(time))

  if left == -1 or left > tonumber(ARGV[3]) then
    redis.call('SET', KEYS[2], next_epoch, 'KEEPTTL')
  else
    redis.call('SET', KEYS[2], next_epoch)
    prolong()
  end

  local outcomes = read('GET', KEYS[5])
  local snapshot = record.damaged and { err = record.damaged } or read('GET', KEYS[3])
  local journal = read('LRANGE', KEYS[4], 0, -1)
  return {
    next_epoch,
    record.version,
    type(snapshot) == 'table' and snapshot.err or snapshot,
    journal.err and { journal.err } or journal,
    type(outcomes) == 'string' and outcomes,
    record.owned_at and digits(math.max(0, time - record.owned_at)) or false,
  }
end
