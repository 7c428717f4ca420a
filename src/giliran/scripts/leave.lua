-- Give up a place in line; if the resource is reserved for it, call the next.
--
-- KEYS  1 lock (string)   2 line (sorted set)   3 parked (hash)
-- ARGV  1 ticket   2 token: 32 hex digits, new   3 routes this process can publish: "|a|b|"
-- Returns {server_ms, ...}: who was called, as `call_next` tells it; a repeated send tells it again
local lock, line, parked = KEYS[1], KEYS[2], KEYS[3]
local ticket, token, routes = ARGV[1], ARGV[2], ARGV[3]
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local value = redis.pcall('GET', lock)
if type(value) == 'table' and not string.find(value.err, 'WRONGTYPE', 1, true) then
  return value -- No right to read, or a stale replica: that says nothing about the lock.
end
take_out(line, parked, ticket, entry_of(parked, ticket))
redis.call('DEL', parked .. ':' .. ticket)
if type(value) == 'string' and is_reserved_for(value, ticket) then
  redis.call('DEL', lock)
  return {now, unpack(call_next(lock, line, parked, token, routes, now))}
end
return {now, unpack(called_before(value, token, line, parked))}
