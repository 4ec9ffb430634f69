-- Restores a room from quarantine: docs/runbooks.md#a-room-was-put-in-quarantine. KEYS[1] is `roomful:{room:<project>/<type>:<key>}`.
-- The epoch is new, so a running room of this name ends at its next write. A join must open the restored room within ten minutes.
local room, aside = KEYS[1], KEYS[1] .. ":quarantine"
if redis.call("EXISTS", aside) == 0 then
  return redis.error_reply("nothing of this room is in quarantine")
end
local epoch = redis.call("HGET", room .. ":record", "epoch")
  or redis.call("GET", room .. ":epoch")
  or redis.call("HGET", aside, "epoch")
local next_epoch = string.format("%.0f", epoch + 1)
redis.call("DEL", room .. ":record")
redis.call("HSET", room .. ":record",
  "epoch", next_epoch, "version", "0", "owner", "", "contested", "1")
redis.call("SET", room .. ":epoch", next_epoch, "EX", 7800)
for _, part in ipairs({ ":snapshot", ":journal" }) do
  redis.call("DEL", room .. part)
  if redis.call("EXISTS", aside .. part) == 1 then
    redis.call("RENAME", aside .. part, room .. part)
  end
end
for _, part in ipairs({ ":record", ":snapshot", ":journal" }) do
  redis.call("EXPIRE", room .. part, 600)
end
redis.call("DEL", aside)
return "restored"
