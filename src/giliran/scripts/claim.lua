-- Ask for the lease of a resource on behalf of one job, looking at the job's record first; or of
-- several resources: all of them or none. The record belongs to the first.
-- Sending it again with the same token gives the same answer; TTL and max_hold count from then.
--
-- KEYS  1 lock (string)   2 fence (integer)   3 line (sorted set)   4 parked (hash)
--       the same four of each further resource, and last
--       record or delivery (hash), optional
-- ARGV  1 token: 32 hex digits           2 ttl_ms            3 max_hold_ms
--       4 holder: ";name=value" pairs    5 publication, or ""
--       6 kind of record: "", "record" (written when taken) or "delivery" (only read)
--       7 fingerprint   8 record_ms: life of a running record
--       9 after_crash: "retry" or "hold"   10 attempts: how many may start in all
--       11 elder: the publication that this one is a retry of, or ""
--       12 ticket: what it has in the line, if it is there, or ""   13 rank it had there, or ""
--       14 alive_ms: wait in line, for as long as the process is known to be alive; "" to not
--          Who asks for several resources has no ticket: it stands in no line, and takes none of
--          them while others stand in one.
-- Returns {server_ms, answer, ...}, answer being one of
--   held fence attempt [fence ...]      the lease is ours; then the fences of further resources
--   busy remaining_ms holder line       another's; -1: without an end; "": not one of our holders
--   duplicate remaining_ms holder line  held by this very publication
--   elder remaining_ms holder line      held by the publication that this one is a retry of
--   queued line                         free, but others were first: sweep, so that they come
--      line: waiting position rank: how many stand there, and where we do: 0 is first, -1 not;
--      then the number of the resource, from 1, if it is a further one
--   done state result attempt      finished before: state "done", "failed" or "superseded" by a
--                                  newer job; result "" if not kept
--   mismatch                       this idempotency key came with another fingerprint
--   in_doubt attempt               an attempt crashed and after_crash is "hold"
--   gave_up attempt                as many attempts as allowed have started
--   wrongtype type                 the lock key holds something that is no lock; number as above
local token, holder, publication = ARGV[1], ARGV[4], ARGV[5]
local kind, fingerprint = ARGV[6], ARGV[7]
local ttl, max_hold, record_ms = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[8])
local attempts, ticket, had = tonumber(ARGV[10]), ARGV[12], tonumber(ARGV[13])
local record = #KEYS % 4 == 1 and KEYS[#KEYS]

-- Validate first: an error after the first write would leave half of it behind.
local function whole(n, least, most)
  return n and n >= least and n <= most and n == math.floor(n)
end
if not string.match(token, '^%x+$') or #token ~= 32 then
  return redis.error_reply('GILIRAN token must be 32 hex digits')
elseif not whole(ttl, 1000, 86400000) then
  return redis.error_reply('GILIRAN ttl_ms must be a whole number from 1000 to 86400000')
elseif not whole(max_hold, 1000, 604800000) then
  return redis.error_reply('GILIRAN max_hold_ms must be a whole number from 1000 to 604800000')
elseif not whole(record_ms, 1000, 2 ^ 45) or not whole(attempts, 1, 2 ^ 31) then
  return redis.error_reply('GILIRAN record_ms and attempts must be whole numbers from 1000 and 1')
elseif ARGV[14] ~= '' and (ticket == '' or not whole(tonumber(ARGV[14]), 1, 2 ^ 45)) then
  return redis.error_reply('GILIRAN to wait takes a ticket and a whole alive_ms from 1')
elseif ARGV[13] ~= '' and not whole(had, 0, 2 ^ 53) then
  return redis.error_reply('GILIRAN rank must be a whole number')
elseif #KEYS % 4 > 1 or (kind ~= '' and not record) or (#KEYS > 5 and ticket ~= '') then
  return redis.error_reply('GILIRAN a resource has four keys, a record one, several no ticket')
end

local time = redis.call('TIME')
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now = math.floor(now_us / 1000)

-- Nobody goes before those who were here first. Who was called and has not come yet may lie in
-- its queue for long: it does not keep those away who were here before it.
local each = {}
for at = 1, #KEYS - 3, 4 do
  local one = {lock = KEYS[at], fence_key = KEYS[at + 1], line = KEYS[at + 2],
    parked = KEYS[at + 3]}
  local value = redis.pcall('GET', one.lock)
  if type(value) == 'table' and not string.find(value.err, 'WRONGTYPE', 1, true) then
    return value -- No right to read, or a stale replica: that says nothing about the lock.
  elseif type(value) == 'table' then
    return {now, 'wrongtype', redis.call('TYPE', one.lock).ok, (at > 1) and #each or nil}
  end
  one.value = value
  one.ours = value and string.sub(value, 1, 37) == token .. ';v=1;'
  one.called = value and is_reserved_for(value, ticket)
  one.waits = redis.call('EXISTS', one.parked) == 1
  one.entry = one.waits and ticket ~= '' and entry_of(one.parked, ticket)
  local first = one.waits and redis.call('ZRANGE', one.line, 0, 0, 'WITHSCORES') or {}
  local in_front = not first[1] or first[1] == ticket or (had and had <= tonumber(first[2]))
  local after_us = value and had and is_reserved(value)
    and had < tonumber(string.match(value, ';rank=(%d+)') or 0)
  one.free = one.called or (in_front and (not value or after_us))
  each[#each + 1] = one
end
-- A parked job stays on its shelf until it has ended or the broker has it: this may be a late
-- request of a delivery that was parked since, and then nobody else would know of the job.
local function come(one)
  if one.waits and ticket ~= '' and (not one.entry or one.entry.kind == 'wait') then
    take_out(one.line, one.parked, ticket, one.entry)
  end
end
local function pass()
  for _, one in ipairs(each) do
    -- It was this job's turn, and it does not need it; of several it keeps none.
    if one.called or (one.ours and #each > 1) then
      redis.call('DEL', one.lock)
    end
    come(one)
  end
end
local fields = kind ~= ''
  and redis.call('HMGET', record, 'state', 'fingerprint', 'token', 'attempt', 'result') or {}
local state, attempt = fields[1], tonumber(fields[4] or 0)

if state and fields[2] ~= fingerprint then
  pass()
  return {now, 'mismatch'}
elseif state == 'done' or state == 'failed' or state == 'superseded' then
  pass()
  return {now, 'done', state, fields[5] or '', attempt}
elseif kind == 'record' and publication ~= '' and is_superseded(each[1].parked, publication) then
  pass() -- That does not stand in its own record, which is of the request, not of the message.
  return {now, 'done', 'superseded', '', attempt}
end

-- Answer what `line` is in a reply, waiting there if that is asked for.
local function in_line(one, wanted)
  local alive = wanted and tonumber(ARGV[14])
  if alive then
    local rank = string.format('%.0f', rank_of(one.line, ticket, ARGV[13], now_us))
    write_entry(one.parked, ticket, {kind = 'wait', called = 0, by = '', ends = now + alive,
      verdict = '', group = '', route = ''})
    redis.call('ZADD', one.line, rank, ticket)
    for _, key in ipairs({one.line, one.parked}) do -- Without parked jobs it ends with its waiters.
      local left = redis.call('PTTL', key)
      if left >= 0 or not one.waits then
        redis.call('PEXPIRE', key, math.max(left, alive))
      end
    end
    return redis.call('ZCARD', one.line), redis.call('ZRANK', one.line, ticket), rank
  end
  return one.waits and redis.call('ZCARD', one.line) or 0, -1, '0'
end

-- What a resource answers that is not to be had, and what it tells of its holder.
local function answer_of(value)
  if not value then
    return 'queued'
  elseif is_reserved(value) then
    return 'busy', ';type=next in line'
  end
  local told = string.match(value, '^%x+;v=1;') and string.sub(value, 34) or ''
  local function is_by(id)
    return told ~= '' and id ~= '' and string.find(told, ';pub=' .. id .. ';', 1, true)
  end
  return is_by(publication) and 'duplicate' or is_by(ARGV[11]) and 'elder' or 'busy', told
end
local which, why, told
for number, one in ipairs(each) do
  if not one.ours and not one.free then
    local answer, of_whom = answer_of(one.value)
    -- The first is told; but a job that meets itself on any of them is told that.
    if not which or ((why == 'busy' or why == 'queued')
        and (answer == 'duplicate' or answer == 'elder')) then
      which, why, told = number, answer, of_whom
    end
  end
end
if which then
  for _, one in ipairs(each) do
    if one.ours then
      redis.call('DEL', one.lock) -- All or none: what an earlier send got is not enough any more.
    end
  end
  local one = each[which]
  local reply = {now, why}
  if why ~= 'queued' then
    reply[3], reply[4] = redis.call('PTTL', one.lock), told
  end
  local waiting, position, rank = in_line(one, why == 'busy' or why == 'queued')
  local n = #reply
  reply[n + 1], reply[n + 2], reply[n + 3] = waiting, position, rank
  reply[n + 4] = which > 1 and which - 1 or nil
  return reply
end

-- A record still running belongs to an attempt that crashed or lost its lease.
if fields[3] ~= token then
  if state and ARGV[9] == 'hold' then
    pass()
    return {now, 'in_doubt', attempt}
  elseif attempt >= attempts then
    pass()
    return {now, 'gave_up', attempt}
  end
  attempt = attempt + 1
end

-- Floored by server time, so that it rises even when the stored number was lost.
local fresh = fields[3] ~= token
for _, one in ipairs(each) do
  if one.ours then
    one.fence = string.match(one.value, ';fence=(%d+)')
  else
    local last = tonumber(redis.call('GET', one.fence_key) or 0) or 0
    one.fence = string.format('%.0f', math.max(last + 1, now_us))
    fresh = true
  end
end
for _, one in ipairs(each) do
  if not one.ours then
    redis.call('SET', one.fence_key, one.fence, 'PX', 86400000 + max_hold)
  end
end
if kind == 'record' and fresh then
  redis.call('PEXPIRE', record, record_ms) -- Without this right no record must be written.
  redis.call('HSET', record, 'state', 'running', 'fingerprint', fingerprint, 'token', token,
    'fence', each[1].fence, 'attempt', attempt, 'started', now)
  redis.call('PEXPIRE', record, record_ms)
end
local reply = {now, 'held', each[1].fence, math.max(attempt, 1)}
for number, one in ipairs(each) do
  if not one.ours then
    come(one)
  end
  -- The asker counts max_hold from its last send; it must not count on more than we do.
  redis.call('SET', one.lock, token .. ';v=1;fence=' .. one.fence .. ';acquired=' .. now .. holder,
    'PX', math.min(ttl, max_hold))
  if number > 1 then
    reply[3 + number] = one.fence
  end
end
return reply
