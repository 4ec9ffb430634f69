-- Makes a node the owner of a room under a new epoch.
--
-- KEYS[1]   the room's record, a hash: epoch, version, owner, recalled, contested ('1': an earlier owner may not know that it is none),
--           quarantined ('1': not to be claimed)
-- KEYS[2]   the room's epoch, which outlives the record
-- KEYS[3]   its snapshot
-- KEYS[4]   its journal, a list
-- KEYS[5]   its notes of stuck turns: see note_stuck.lua
-- ARGV[1]   the epoch the claimant saw; 0: none
-- ARGV[2]   the claimant
-- ARGV[3]   lifetime of the record in milliseconds
-- ARGV[4]   lifetime of the epoch in milliseconds
-- returns   {epoch, version, snapshot or nil, {journal entries, oldest first}, {{epoch, age in milliseconds, note}, oldest first}},
--           or nil when the epoch is another by now or the room may not be claimed for now
--
-- Invariant: of all that claim over the same epoch exactly one wins, and the new epoch is larger than every earlier one: at
-- least the old one + 1, and at least this store's clock in milliseconds, so that epochs grow even when the store lost its data.
-- What is kept for ever stays so: the node that claims it says by the next write whether it is to be.
-- A record is contested from the first claim on that was made over an owner who had not released it, or over an epoch without a record.
-- What is damaged keeps no one from claiming: an epoch or a version that is no number is none (see inspect.lua), a note that is none is
-- dropped, and where record, snapshot or journal are of another kind, the claimant gets the reason in place of the snapshot or the journal,
-- and finds it unreadable.

local record = read('HMGET', KEYS[1], 'epoch', 'version', 'owner', 'contested', 'quarantined')
local epoch = whole(record[1]) or whole(read('GET', KEYS[2])) or '0'
if epoch ~= ARGV[1] or record[5] then
  return false
end
if record.err then
  redis.call('DEL', KEYS[1])
elseif not record[1] then
  redis.call('DEL', KEYS[3], KEYS[4])
end

local kept = redis.call('PTTL', KEYS[1]) == -1
local time = now()
local next_epoch = digits(math.max(epoch + 1, time))
local version = whole(record[2]) or '0'
local released = epoch == '0' or record[3] == ''
local contested = (record[4] == '1' or not released) and '1' or ''

redis.call('HSET', KEYS[1], 'epoch', next_epoch, 'version', version, 'owner', ARGV[2], 'recalled', '', 'contested', contested)
redis.call('SET', KEYS[2], next_epoch)
if not kept then
  prolong()
end

local stuck = {}
for _, entry in ipairs(read('LRANGE', KEYS[5], 0, -1)) do
  local at, of, note = entry:match('^(%d+):(%d+):(.*)$')
  if note then
    table.insert(stuck, { of, digits(time - at), note })
  end
end

local snapshot = record.err and record or read('GET', KEYS[3])
local journal = read('LRANGE', KEYS[4], 0, -1)
return {
  next_epoch,
  version,
  type(snapshot) == 'table' and snapshot.err or snapshot,
  journal.err and { journal.err } or journal,
  stuck,
}
