-- Move one message into the worker's own in-flight list, and show that the worker lives.
-- What already lies in that list comes first: the reply of an earlier fetch, or an ack, was lost.
--
-- KEYS  1 messages   2 ready   3 delayed   4 the worker's in-flight (list)
--       5 workers (set)   6 the worker's sign of life (string)
-- ARGV  1 worker   2 alive_ms
-- Returns {id, payload, 1 if it lay there already else 0}, or nil
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
redis.call('SET', KEYS[6], '1', 'PX', ARGV[2])
redis.call('SADD', KEYS[5], ARGV[1])
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now, 'LIMIT', 0, 50)) do
  redis.call('LPUSH', KEYS[2], id)
  redis.call('ZREM', KEYS[3], id)
end

local id = redis.call('LINDEX', KEYS[4], -1)
local lay_there = id and 1 or 0
while true do
  id = id or redis.call('LMOVE', KEYS[2], KEYS[4], 'RIGHT', 'LEFT')
  if not id then
    return nil
  end
  local payload = redis.call('HGET', KEYS[1], id)
  if payload then
    return {id, payload, lay_there}
  end
  redis.call('LREM', KEYS[4], 0, id) -- a copy of what was acked meanwhile
  id, lay_there = nil, 0
end
