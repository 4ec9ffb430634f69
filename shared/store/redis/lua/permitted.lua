-- Tries every command that the scripts use on a separate key, and removes the key.
--
-- KEYS[1]   a key that nothing else uses
-- returns   names of the commands that the user may not run, or not on this key
--
-- Invariant: the script leaves no data.

local trials = {
  { 'HSET', KEYS[1], 'n', 1 }, { 'HINCRBY', KEYS[1], 'n', 1 }, { 'HGET', KEYS[1], 'n' }, { 'HMGET', KEYS[1], 'n' },
  { 'HDEL', KEYS[1], 'none' },
  { 'PEXPIRE', KEYS[1], 1000 }, { 'PEXPIREAT', KEYS[1], '99999999999999' }, { 'PERSIST', KEYS[1] }, { 'PTTL', KEYS[1] },
  { 'EXISTS', KEYS[1] }, { 'DEL', KEYS[1] },
  { 'ZADD', KEYS[1], 0, 'm' }, { 'ZSCORE', KEYS[1], 'm' }, { 'ZCARD', KEYS[1] }, { 'ZRANGE', KEYS[1], 0, 0 },
  { 'ZREMRANGEBYSCORE', KEYS[1], 1, 2 }, { 'ZREM', KEYS[1], 'm' },
  { 'RPUSH', KEYS[1], 'e' }, { 'LRANGE', KEYS[1], 0, -1 }, { 'DEL', KEYS[1] },
  { 'SET', KEYS[1], 'v' }, { 'GET', KEYS[1] }, { 'DEL', KEYS[1] },
  { 'TIME' },
}

local refused = {}
for _, trial in ipairs(trials) do
  local reply = redis.pcall(unpack(trial))
  local reason = type(reply) == 'table' and reply.err or ''
  if string.find(reason, 'NOPERM') or string.find(reason, "can't run this command") then
    table.insert(refused, string.lower(trial[1]))
  end
end
return refused
