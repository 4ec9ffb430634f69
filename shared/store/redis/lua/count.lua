-- Extends the time for which a room counts as one of its project and of its creator's lasting rooms.
--
-- KEYS[1]   rooms of the project: see `count_room` in prelude.lua
-- KEYS[2]   lasting rooms of the room's creator in that project, a set of the same kind; absent: the creator is unknown
-- ARGV[1], ARGV[2]: those of `count_room`
-- ARGV[3]   '1': the room is lasting
--
-- Invariant: each set lives as long as the room in it that counts longest.

count_room(KEYS[1])
if KEYS[2] then
  if ARGV[3] == '1' then
    count_room(KEYS[2])
  else
    redis.call('ZREM', KEYS[2], ARGV[1])
  end
end
