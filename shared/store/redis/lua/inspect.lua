-- Says who owns a room.
--
-- KEYS[1]   the room's record: see owner.lua
-- KEYS[2]   its epoch
-- returns   as owner_reply

return owner_reply(owner_record())
