-- Returns the owner of a room.
--
-- KEYS[1]   the room's record: see owner.lua
-- KEYS[2]   epoch of the room
-- returns   as owner_reply

return owner_reply(owner_record())
