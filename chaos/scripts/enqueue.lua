-- Take a message, now or for later. A repeat while the message is still there changes nothing.
--
-- KEYS  1 messages (hash: id -> payload)   2 ready (list of ids)   3 delayed (sorted set, ms)
-- ARGV  1 id   2 payload   3 delay_ms
-- Returns 1 if it was taken now, 0 if it was there
local delay = tonumber(ARGV[3])
if not delay or delay < 0 then
  return redis.error_reply('CHAOS delay_ms must be a number from 0')
end
if redis.call('HSETNX', KEYS[1], ARGV[1], ARGV[2]) == 0 then
  return 0
end
if delay > 0 then
  local time = redis.call('TIME')
  local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  redis.call('ZADD', KEYS[3], now + math.floor(delay), ARGV[1])
else
  redis.call('LPUSH', KEYS[2], ARGV[1])
end
return 1
