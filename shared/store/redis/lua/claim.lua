-- Makes a node the owner of a room, if the epoch is still the one that the node has read.
--
-- KEYS, ARGV   as make_owner
-- ARGV[1]      epoch that the claimant has read; 0: none
-- returns      as make_owner, or nil if the epoch has changed
--
-- Invariant: of all claims over the same epoch exactly one succeeds.

local record = owner_record()
return record.epoch == ARGV[1] and make_owner(record)
