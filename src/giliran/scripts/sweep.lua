-- Look after the line of one resource: call the next if it is free, and end what has no time left.
-- Safe when many do it at once.
--
-- KEYS  1 lock (string)   2 line (sorted set)   3 parked (hash)   4 due (sorted set)
--       5 dead (list)
-- ARGV  1 token: 32 hex digits, new   2 routes this process can publish: "|a|b|"
-- Returns {server_ms, left, holder, called, ended ...}
--   left    how many entries there are still
--   holder  what the lock tells of its holder; "": none, or not one of ours
--   called  who was called, as `call_next` tells it; a repeated send tells it again
--   ended   a job to publish with its verdict, likewise, or of kind "dead": one called so often
--           that it was set aside; at most 17
local lock, line, parked, due, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local token, routes = ARGV[1], ARGV[2]
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local value = redis.pcall('GET', lock)
if type(value) == 'table' and not string.find(value.err, 'WRONGTYPE', 1, true) then
  return value -- No right to read, or a stale replica: that says nothing about the lock.
end
if type(value) == 'table' then
  value = 'no lock'
end
local reply = {now, 0, '', {}}
local function end_it(ticket, entry)
  local told = turn_of(line, parked, ticket, entry)
  reply[#reply + 1] = told
  if is_hopeless(entry) then
    told[1] = 'dead'
    set_aside(line, parked, due, dead, ticket, entry, now)
  end
end
-- More than can be told, because some of them only other processes can publish.
local over = redis.call('ZRANGEBYSCORE', due, '-inf', string.format('%.0f', now), 'LIMIT', 0, 100)
for _, ticket in ipairs(over) do
  local entry = entry_of(parked, ticket)
  if not entry or entry.kind ~= 'job' then
    redis.call('ZREM', due, ticket)
  elseif value and is_reserved_for(value, ticket) then
    redis.call('ZADD', due, string.format('%.0f', now + FOR_JOB), ticket) -- Its turn has come.
  else
    redis.call('ZREM', line, ticket) -- So that others can go on, whoever can publish it.
    if entry.verdict == '' then
      entry.verdict = 'gave_up'
      write_entry(parked, ticket, entry)
    end
    if #reply < 4 + AT_ONCE and string.find(routes, '|' .. entry.route .. '|', 1, true) then
      entry.called, entry.by = entry.called + 1, token
      write_entry(parked, ticket, entry)
      redis.call('ZADD', due, string.format('%.0f', now + FOR_JOB), ticket)
      end_it(ticket, entry)
    end
  end
end
local head = redis.call('ZRANGE', line, 0, 0)[1]
local first = not value and head and entry_of(parked, head)
if first and is_hopeless(first) then
  end_it(head, first)
end
reply[3] = value and string.match(value, '^%x+;(v=1;.*)') or ''
reply[4] = value and called_before(value, token, line, parked)
  or call_next(lock, line, parked, token, routes, now)
reply[2] = redis.call('HLEN', parked)
if reply[2] == 0 then
  redis.call('DEL', due) -- Who claimed in time left its deadline behind.
end
return reply
