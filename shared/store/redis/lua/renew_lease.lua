-- Takes a lease for a holder, or renews it, unless another holder has it.
--
-- KEYS[1]   the lease's record, a hash: v (value), n (version), holder, since
-- KEYS[2]   absent, or the index (a sorted set) that lists it; in the same slot
-- ARGV[1]   the holder
-- ARGV[2]   the value
-- ARGV[3]   lifetime in milliseconds
-- ARGV[4]   with an index, the member of the index
-- returns   {holder, since}: who has the lease now, and since which time of this store, in milliseconds, without a break
--
-- Invariant: a lease that stands is renewed by its holder only, and `since` changes whenever it has run out in between.

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
