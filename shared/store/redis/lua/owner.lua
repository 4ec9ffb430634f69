-- The owner of a room: who it is, and how a node becomes it.
--
-- KEYS[1]   the room's record, a hash: epoch, version, owner ('' when released), state_version ('': 1), recalled ('1' until the next
--           claim), contested ('1': an earlier owner may not know that it is none), creator (on whose account it was made; '': not known)
-- KEYS[2]   the room's epoch, which outlives the record

-- The record and the epoch of a room, read at one moment. A room whose record has expired belongs to no node. An epoch or a version that is
-- no number, or has more than 15 digits, is damaged: the epoch is then the one that outlives the record, or 0, over which the room can be
-- claimed. So can one whose record is no hash.
local function owner_record()
  local fields = read('HMGET', KEYS[1], 'epoch', 'version', 'owner', 'state_version', 'recalled', 'contested')
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
    is_known = true,
    is_there = true,
  }
end

-- What a script tells of an owner: {epoch, version, owner, state_version or nil, 1 when recalled}, or nil when neither record nor epoch is
-- known.
local function owner_reply(record)
  if not record.is_known then
    return false
  end
  return { record.epoch, record.version, record.owner, record.state_version or false, record.recalled }
end

-- Makes a node the owner of a room under a new epoch.
--
-- KEYS[3]   its snapshot
-- KEYS[4]   its journal, a list
-- KEYS[5]   its notes of stuck turns: see note_stuck.lua
-- KEYS[6]   outcomes of requests, which an earlier room of this name has left
-- ARGV[2]   the claimant
-- ARGV[3]   least lifetime of the record in milliseconds
-- ARGV[4]   lifetime of the epoch in milliseconds

-- returns   {epoch, version, snapshot or nil, {journal entries, oldest first}, {{epoch, age in milliseconds, note}, oldest first}, outcomes
--           or nil, the epoch that was claimed over}
--
-- Invariant: the new epoch is larger than every earlier one: at least the old one + 1, and at least this store's clock in milliseconds, so
-- that epochs grow even when the store lost its data.
-- A claim never shortens the life of a room: one that sleeps must not be lost when its claimant ends before its first write.
-- A record is contested from the first claim on that was made over an owner who had not released it, or over an epoch without a record.
-- What is damaged keeps no one from claiming: an epoch or a version that is no number is none, a note that is none is dropped, and where
-- record, snapshot or journal are of another kind, the claimant gets the reason in place of the snapshot or the journal, and finds it
-- unreadable.
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

  redis.call('HSET', KEYS[1], 'epoch', next_epoch, 'version', record.version, 'owner', ARGV[2], 'recalled', '', 'contested', contested)

  if left == -1 or left > tonumber(ARGV[3]) then
    redis.call('SET', KEYS[2], next_epoch, 'KEEPTTL')
  else
    redis.call('SET', KEYS[2], next_epoch)
    prolong()
  end

  local stuck = {}
  for _, entry in ipairs(read('LRANGE', KEYS[5], 0, -1)) do
    local at, of, note = entry:match('^(%d+):(%d+):(.*)$')
    if note then
      table.insert(stuck, { of, digits(time - at), note })
    end
  end

  local outcomes = read('GET', KEYS[6])
  local snapshot = record.damaged and { err = record.damaged } or read('GET', KEYS[3])
  local journal = read('LRANGE', KEYS[4], 0, -1)
  return {
    next_epoch,
    record.version,
    type(snapshot) == 'table' and snapshot.err or snapshot,
    journal.err and { journal.err } or journal,
    stuck,
    type(outcomes) == 'string' and outcomes,
    record.epoch,
  }
end
