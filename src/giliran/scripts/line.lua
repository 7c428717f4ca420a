-- The line of a resource: who comes next. It stands in front of the scripts that move the line.
--
-- line (sorted set)  ticket -> rank: the order of first arrival
-- parked (hash)      "=" .. ticket -> kind|called|by|until|verdict|group|route
--                    "+" .. ticket -> what the queue needs to publish a parked job again
--                    "/" .. group  -> the one ticket of that group that waits
-- due (sorted set)   ticket of a parked job -> server ms at which its time is over
-- kind is "job" (parked: it costs nothing) or "wait" (a process waits; until: ms it is alive).
-- called counts the calls that nobody answered for, and more for refusals, see `offer.lua`; by is
-- the token of the last caller, with a 0 behind it once that has answered; verdict is "" or how the
-- job is to end. A lock value that begins with "reserved;" keeps the resource for one ticket, for a
-- moment.
local FOR_JOB, FOR_WAITER, AT_ONCE = 5000, 1000, 16

local function entry_of(parked, ticket)
  local text = redis.call('HGET', parked, '=' .. ticket)
  if not text then
    return nil
  end
  local kind, called, by, ends, verdict, group, route =
    string.match(text, '^(%l+)|(%d+)|(%x*)|(%d+)|([%l_]*)|([^|]*)|(.*)$')
  return {kind = kind, called = tonumber(called), by = by, ends = tonumber(ends),
    verdict = verdict, group = group, route = route}
end

local function write_entry(parked, ticket, entry)
  redis.call('HSET', parked, '=' .. ticket, table.concat({entry.kind,
    string.format('%.0f', entry.called), entry.by, string.format('%.0f', entry.ends),
    entry.verdict, entry.group, entry.route}, '|'))
end

local function take_out(line, parked, ticket, entry)
  redis.call('ZREM', line, ticket)
  redis.call('HDEL', parked, '=' .. ticket, '+' .. ticket)
  if entry and entry.group ~= '' and redis.call('HGET', parked, '/' .. entry.group) == ticket then
    redis.call('HDEL', parked, '/' .. entry.group)
  end
end

-- The record of a delivery: there stands that a newer job superseded it, so that no copy of it,
-- however late, takes the place of the newest.
local function delivery_of(parked, ticket)
  return string.sub(parked, 1, -7) .. 'delivered:' .. ticket
end

local function is_superseded(parked, ticket)
  return redis.call('HGET', delivery_of(parked, ticket), 'state') == 'superseded'
end

local function is_hopeless(entry)
  return entry.kind == 'job' and entry.called >= 100
end

-- A job that cannot be published lies on a list of its own until somebody looks at it: the last
-- 1000 of a resource, for 30 days.
local function set_aside(line, parked, due, dead, ticket, entry, now)
  local payload = redis.call('HGET', parked, '+' .. ticket) or ''
  redis.call('RPUSH', dead, table.concat({ticket, string.format('%.0f', now), entry.verdict,
    entry.route, payload}, '|'))
  redis.call('LTRIM', dead, -1000, -1)
  redis.call('PEXPIRE', dead, 2592000000)
  take_out(line, parked, ticket, entry)
  redis.call('ZREM', due, ticket)
end

-- What a caller is told of whom it called; rank "0" if that left the line.
local function turn_of(line, parked, ticket, entry)
  return {entry.kind, ticket, redis.call('ZSCORE', line, ticket) or '0', entry.verdict,
    entry.route, redis.call('HGET', parked, '+' .. ticket) or ''}
end

-- The older of the rank that a ticket has and the one it had: a copy of it may stand further back.
local function older(has, had)
  has, had = tonumber(has or ''), tonumber(had)
  return has and had and math.min(has, had) or has or had
end

-- The rank of a ticket, else one behind everybody.
local function rank_of(line, ticket, had, now_us)
  local rank = older(redis.call('ZSCORE', line, ticket), had)
  if rank then
    return rank
  end
  local last = tonumber(redis.call('ZRANGE', line, -1, -1, 'WITHSCORES')[2] or 0)
  return math.max(last + 1, now_us)
end

local function is_reserved(value)
  return string.sub(value, 1, 13) == 'reserved;v=1;'
end

local function is_reserved_for(value, ticket)
  return ticket ~= '' and is_reserved(value)
    and string.find(value, ';pub=' .. ticket .. ';', 1, true) ~= nil
end

local function reserve(lock, token, ticket, rank, now, life)
  redis.call('SET', lock, 'reserved;v=1;by=' .. token .. ';pub=' .. ticket .. ';rank=' .. rank
    .. ';acquired=' .. string.format('%.0f', now) .. ';type=next in line', 'PX', life)
end

-- Who was called by an earlier send of the same script and has not come yet, else {}.
local function called_before(value, token, line, parked)
  local by_us = 'reserved;v=1;by=' .. token .. ';'
  if type(value) ~= 'string' or string.sub(value, 1, #by_us) ~= by_us then
    return {}
  end
  local ticket = string.match(value, ';pub=([^;]*);')
  local entry = entry_of(parked, ticket)
  return entry and turn_of(line, parked, ticket, entry) or {}
end

-- Call whoever is first and reserve the free lock for it. `routes` are the jobs this process can
-- publish, as "|route|route|". Returns {} if nobody was called, else what `turn_of` says, or
-- {'elsewhere', route}: only another process can; {'more'}: too many are gone, go on later.
local function call_next(lock, line, parked, token, routes, now)
  for _ = 1, AT_ONCE do
    local first = redis.call('ZRANGE', line, 0, 0, 'WITHSCORES')
    local ticket, rank = first[1], first[2]
    if not ticket then
      return {}
    end
    local entry = entry_of(parked, ticket)
    if not entry or (entry.kind == 'wait' and (entry.ends <= now or entry.called > 0)) then
      take_out(line, parked, ticket, entry) -- It is gone, or did not come when it was called.
    elseif entry.kind == 'wait' then
      entry.called = 1
      write_entry(parked, ticket, entry)
      reserve(lock, token, ticket, rank, now, FOR_WAITER)
      local bell = parked .. ':' .. ticket
      redis.call('RPUSH', bell, '1')
      redis.call('PEXPIRE', bell, FOR_WAITER)
      return turn_of(line, parked, ticket, entry)
    elseif not string.find(routes, '|' .. entry.route .. '|', 1, true) then
      return {'elsewhere', entry.route}
    else
      entry.called, entry.by = entry.called + 1, token
      write_entry(parked, ticket, entry)
      reserve(lock, token, ticket, rank, now, FOR_JOB)
      return turn_of(line, parked, ticket, entry)
    end
  end
  return {'more'}
end
