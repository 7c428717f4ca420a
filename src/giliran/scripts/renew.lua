-- Push the end of our own lease out to now + ttl, but never beyond max_hold. Never re-creates it.
-- Sending it again does the same again. Works under OOM. Touches its locks only.
--
-- KEYS  1 lock (string); then those of further resources: all are renewed, or none
-- ARGV  1 token: 32 hex digits   2 ttl_ms
-- Returns server_ms if renewed, else 0 a lock is gone, -1 it is another's, -2 max_hold is over
local token, ttl = ARGV[1], tonumber(ARGV[2])
if not ttl or ttl < 1000 or ttl > 86400000 or ttl ~= math.floor(ttl) then
  return redis.error_reply('GILIRAN ttl_ms must be a whole number from 1000 to 86400000')
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local left = {}
for n, lock in ipairs(KEYS) do
  local value = redis.pcall('GET', lock)
  if type(value) == 'table' and not string.find(value.err, 'WRONGTYPE', 1, true) then
    return value -- No right to read, or a stale replica: that says nothing about the lock.
  elseif not value then
    return 0
  elseif type(value) == 'table' or string.sub(value, 1, 33) ~= token .. ';' then
    return -1
  end
  local acquired = tonumber(string.match(value, ';acquired=(%d+)'))
  left[n] = acquired + tonumber(string.match(value, ';max_hold=(%d+)')) - now
  if left[n] <= 0 then
    return -2
  end
end
for n, lock in ipairs(KEYS) do
  redis.call('PEXPIRE', lock, math.min(ttl, left[n]))
end
return now
