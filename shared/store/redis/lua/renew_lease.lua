-- Acquires or renews a lease, unless another holder has it.
--
-- KEYS[1]   record of the lease, a hash: v (value), n (version), holder, since
-- KEYS[2]   index (a sorted set) that lists the lease, in the same slot; absent: it is not listed
-- ARGV[1]   holder
-- ARGV[2]   value
-- ARGV[3]   lifetime in milliseconds
-- ARGV[4]   with an index: its member for the lease
-- returns   {holder, since}: the current holder, and the start of the uninterrupted lease by this store's clock, in milliseconds
--
-- Invariant: only the holder renews a valid lease, and `since` changes whenever the lease has expired in between.

local lease = redis.call('HMGET', KEYS[1], 'holder', 'since')
if lease[1] and lease[1] ~= ARGV[1] then
  return lease
end

local since = lease[2]
if not since then
  since = digits(now())
end
redis.call('HSET', KEYS[1], 'v', ARGV[2], 'holder', ARGV[1], 'since', since)
redis.call('HINCRBY', KEYS[1], 'n', 1)
redis.call('PEXPIRE', KEYS[1], ARGV[3])
if KEYS[2] then
  redis.call('ZADD', KEYS[2], 0, ARGV[4])
end
return { ARGV[1], since }
