-- The index of lines that sweeps look after; a hint, never the truth. One of each route.
--
-- KEYS  1 marked (sorted set): lock key -> server ms when somebody last parked there
--       2 looks (sorted set): lock key -> server ms when a sweep looks there next
-- ARGV  1 what: "mark" a lock key · "hurry": mark it and let it be looked at now ·
--         "look": take up to 100 whose look is due · "clear" a lock key found empty
--       2 lock key, or "" for look   3 for clear: server ms at which it was found empty
-- Returns {server_ms, lock key ...}: those to look at
local marked, looks, what, key = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local at, later = string.format('%.0f', now), string.format('%.0f', now + 1000)
if what == 'mark' then
  redis.call('ZADD', marked, at, key)
  redis.call('ZADD', looks, 'NX', later, key)
elseif what == 'hurry' then
  redis.call('ZADD', marked, at, key)
  redis.call('ZADD', looks, at, key)
elseif what == 'look' then
  local due = redis.call('ZRANGEBYSCORE', looks, '-inf', at, 'LIMIT', 0, 100)
  for _, each in ipairs(due) do
    redis.call('ZADD', looks, later, each)
  end
  return {now, unpack(due)}
elseif what == 'clear' then
  -- Who parks marks first: leave it for a while, so that no parking is overtaken. And what was
  -- found long ago says nothing: somebody may have parked since.
  local last, found = redis.call('ZSCORE', marked, key), tonumber(ARGV[3])
  if not found then
    return redis.error_reply('GILIRAN clear needs the server ms at which the line was empty')
  elseif last and tonumber(last) < now - 60000 and found > now - 5000 then
    redis.call('ZREM', marked, key)
    redis.call('ZREM', looks, key)
  end
else
  return redis.error_reply('GILIRAN what must be mark, hurry, look or clear')
end
return {now}
