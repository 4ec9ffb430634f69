-- Does a list of writes, or none of them.
--
-- KEYS[i]        the record (a hash: v = value, n = version) or the index (a sorted set) of write i; all in one slot
-- ARGV[4i-3]     what to do with it: put | remove | add | drop
-- ARGV[4i-2]     the version a record must have (0: absent), the number of members an index must be below unless it has this one;
--                '' for any
-- ARGV[4i-1]     lifetime in milliseconds, or '': a record for ever, an index as it was
-- ARGV[4i]       the value to put, or the member to add or drop
-- returns        1, or 0 when a condition does not hold
--
-- Invariant: every condition is checked against the state before the first write, and nothing is written when one fails.

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
