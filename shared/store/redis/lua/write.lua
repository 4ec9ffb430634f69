-- Carries out all writes of a list, or none.
--
-- KEYS[i]        record (a hash: v = value, n = version) or index (a sorted set) of write i; all in one slot
-- ARGV[4i-3]     operation: put | remove | add | drop
-- ARGV[4i-2]     required version of a record (0: absent); for an index without this member, the number of members that it must be below;
--                '': no condition
-- ARGV[4i-1]     lifetime in milliseconds; '': a record without expiry, an index with its previous lifetime
-- ARGV[4i]       value to put, or member to add or drop
-- returns        1, or 0 if a condition does not hold
--
-- Invariant: every condition is checked against the state before the first write, and nothing is written if one fails.

for i = 1, #KEYS do
  local key, action, expected, member = KEYS[i], ARGV[4 * i - 3], ARGV[4 * i - 2], ARGV[4 * i]
  if expected ~= '' then
    if action == 'add' then
      if redis.call('ZCARD', key) >= tonumber(expected) and not redis.call('ZSCORE', key, member) then
        return 0
      end
    elseif (redis.call('HGET', key, 'n') or '0') ~= expected then
      return 0
    end
  end
end

for i = 1, #KEYS do
  local key, action, ttl, payload = KEYS[i], ARGV[4 * i - 3], ARGV[4 * i - 1], ARGV[4 * i]
  if action == 'put' then
    redis.call('HSET', key, 'v', payload)
    redis.call('HINCRBY', key, 'n', 1)
    if ttl == '' then
      redis.call('PERSIST', key)
    else
      redis.call('PEXPIRE', key, ttl)
    end
  elseif action == 'remove' then
    redis.call('DEL', key)
  elseif action == 'add' then
    redis.call('ZADD', key, 0, payload)
    if ttl ~= '' then
      redis.call('PEXPIRE', key, ttl)
    end
  else
    redis.call('ZREM', key, payload)
  end
end

return 1
