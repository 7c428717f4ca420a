-- Push the end of our own lease out to now + ttl, but never beyond max_hold. Never re-creates it.
-- Sending it again does the same again. Works under OOM. Touches one key only.
--
-- KEYS  1 lock (string)
-- ARGV  1 token: 32 hex digits   2 ttl_ms
-- Returns server_ms if renewed, else 0 the lock is gone, -1 it is another's, -2 max_hold is over
local lock, token, ttl = KEYS[1], ARGV[1], tonumber(ARGV[2])
if not ttl or ttl < 1000 or ttl > 86400000 or ttl ~= math.floor(ttl) then
  return redis.error_reply('GILIRAN ttl_ms must be a whole number from 1000 to 86400000')
end

local value = redis.pcall('GET', lock)
if type(value) == 'table' and not string.find(value.err, 'WRONGTYPE', 1, true) then
  return value -- No right to read, or a stale replica: that says nothing about the lock.
end
if not value then
  return 0
elseif type(value) == 'table' or string.sub(value, 1, 33) ~= token .. ';' then
  return -1
end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local acquired = tonumber(string.match(value, ';acquired=(%d+)'))
local left = acquired + tonumber(string.match(value, ';max_hold=(%d+)')) - now
if left <= 0 then
  return -2
end
redis.call('PEXPIRE', lock, math.min(ttl, left))
return now
