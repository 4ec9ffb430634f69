-- Makes a node the owner of a room, if its epoch is still the one that the node saw.
--
-- KEYS, ARGV   as make_owner
-- ARGV[1]      the epoch the claimant saw; 0: none
-- returns      as make_owner, or nil when the epoch is another by now
--
-- Invariant: of all that claim over the same epoch exactly one wins.

local record = owner_record()
return record.epoch == ARGV[1] and make_owner(record)
