-- End the lease of a holder that is proven dead, and call the next in line.
--
-- KEYS  1 lock (string)   2 fence (integer)   3 line (sorted set)   4 parked (hash)
-- ARGV  1 token: 32 hex digits, new   2 told: what a busy answer told of the dead holder
--       3 routes this process can publish: "|a|b|"
-- Returns {server_ms, answer, called}, answer being one of
--   reclaimed  its lease is over, and the fence is above its own
--   changed    somebody else has the lock by now, or nobody: nothing was done
-- called is who was called, as `call_next` tells it; a repeated send tells it again
local lock, fence_key, line, parked = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token, told, routes = ARGV[1], ARGV[2], ARGV[3]
if not string.match(token, '^%x+$') or #token ~= 32 then
  return redis.error_reply('GILIRAN token must be 32 hex digits')
elseif not string.match(told, '^v=1;') then
  return redis.error_reply('GILIRAN told must be of a holder of ours')
end
local time = redis.call('TIME')
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now = math.floor(now_us / 1000)
local value = redis.pcall('GET', lock)
if type(value) == 'table' and not string.find(value.err, 'WRONGTYPE', 1, true) then
  return value -- No right to read, or a stale replica: that says nothing about the lock.
end
if type(value) ~= 'string' or string.sub(value, 34) ~= told then
  return {now, 'changed', called_before(value, token, line, parked)}
end
local last = tonumber(redis.call('GET', fence_key) or 0) or 0
redis.call('SET', fence_key, string.format('%.0f', math.max(last + 1, now_us)), 'PX', 172800000)
redis.call('DEL', lock)
-- What is wrong with the line does not undo the end; sweeps and claims tell of it.
local ok, called = pcall(call_next, lock, line, parked, token, routes, now)
return {now, 'reclaimed', ok and called or {}}
