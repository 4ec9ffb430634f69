-- Goes on counting a room as one of its project.
--
-- KEYS[1], ARGV[1], ARGV[2]: those of `count_room` in prelude.lua
--
-- Invariant: the set lives as long as the room in it that is counted longest.

count_room()
