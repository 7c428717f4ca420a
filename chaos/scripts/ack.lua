-- Forget a message: its end was decided. A repeat changes nothing.
--
-- KEYS  1 messages   2 the worker's in-flight
-- ARGV  1 id
-- Returns 1 if it was there
redis.call('LREM', KEYS[2], 0, ARGV[1])
return redis.call('HDEL', KEYS[1], ARGV[1])
