-- Makes a node the owner of a room under a new epoch.
--
-- KEYS[1]   the room's record, a hash: epoch, version, owner, recalled, contested ('1': an earlier owner may not know that it is none),
--           creator (on whose account it was made; '': not known)
-- KEYS[2]   the room's epoch, which outlives the record
-- KEYS[3]   its snapshot
-- KEYS[4]   its journal, a list
-- KEYS[5]   its notes of stuck turns: see note_stuck.lua
-- KEYS[6]   outcomes of requests, which an earlier room of this name has left
-- ARGV[1]   the epoch the claimant saw; 0: none
-- ARGV[2]   the claimant
-- ARGV[3]   least lifetime of the record in milliseconds
-- ARGV[4]   lifetime of the epoch in milliseconds
-- ARGV[5]   on whose account the room is made if it has no content; '': not known
-- returns   {epoch, version, snapshot or nil, {journal entries, oldest first}, {{epoch, age in milliseconds, note}, oldest first}, outcomes or nil},
--           or nil when the epoch is another by now or the room may not be claimed for now
--
-- Invariant: of all that claim over the same epoch exactly one wins, and the new epoch is larger than every earlier one: at
-- least the old one + 1, and at least this store's clock in milliseconds, so that epochs grow even when the store lost its data.
-- A claim never shortens the life of a room: one that sleeps must not be lost when its claimant ends before its first write.
-- A record is contested from the first claim on that was made over an owner who had not released it, or over an epoch without a record.
-- What is damaged keeps no one from claiming: an epoch or a version that is no number is none (see inspect.lua), a note that is none is
-- dropped, and where record, snapshot or journal are of another kind, the claimant gets the reason in place of the snapshot or the journal,
-- and finds it unreadable.

local record = read('HMGET', KEYS[1], 'epoch', 'version', 'owner', 'contested')
local epoch = whole(record[1]) or whole(read('GET', KEYS[2])) or '0'
if epoch ~= ARGV[1] then
  return false
end
if record.err then
  redis.call('DEL', KEYS[1])
elseif not record[1] then
  redis.call('DEL', KEYS[3], KEYS[4])
end

local left = redis.call('PTTL', KEYS[1])
local time = now()
local next_epoch = digits(math.max(epoch + 1, time))
local version = whole(record[2]) or '0'
local released = epoch == '0' or record[3] == ''
local contested = (record[4] == '1' or not released) and '1' or ''

redis.call('HSET', KEYS[1], 'epoch', next_epoch, 'version', version, 'owner', ARGV[2], 'recalled', '', 'contested', contested)
if ARGV[5] ~= '' and redis.call('EXISTS', KEYS[3], KEYS[4]) == 0 then
  redis.call('HSET', KEYS[1], 'creator', ARGV[5])
end
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
local snapshot = record.err and record or read('GET', KEYS[3])
local journal = read('LRANGE', KEYS[4], 0, -1)
return {
  next_epoch,
  version,
  type(snapshot) == 'table' and snapshot.err or snapshot,
  journal.err and { journal.err } or journal,
  stuck,
  type(outcomes) == 'string' and outcomes,
}
