-- Ask for the lease of one resource on behalf of one job, looking at the job's record first.
-- Sending it again with the same token gives the same answer; TTL and max_hold count from then.
--
-- KEYS  1 lock (string)   2 fence (integer)   3 record or delivery (hash), optional
-- ARGV  1 token: 32 hex digits           2 ttl_ms            3 max_hold_ms
--       4 holder: ";name=value" pairs    5 publication, or ""
--       6 kind of KEYS[3]: "", "record" (written when taken) or "delivery" (only read)
--       7 fingerprint   8 record_ms: life of a running record
--       9 after_crash: "retry" or "hold"   10 attempts: how many may start in all
--       11 elder: the publication that this one is a retry of, or ""
-- Returns {server_ms, answer, ...}, answer being one of
--   held fence attempt             the lease is ours
--   busy remaining_ms holder       another's; -1: without an end; "": not one of our holders
--   duplicate remaining_ms holder  held by this very publication
--   elder remaining_ms holder      held by the publication that this one is a retry of
--   done state result attempt      finished before: state "done" or "failed", result "" if not kept
--   mismatch                       this idempotency key came with another fingerprint
--   in_doubt attempt               an attempt crashed and after_crash is "hold"
--   gave_up attempt                as many attempts as allowed have started
--   wrongtype type                 the lock key holds something that is no lock
local lock, fence_key, record = KEYS[1], KEYS[2], KEYS[3]
local token, holder, publication = ARGV[1], ARGV[4], ARGV[5]
local kind, fingerprint = ARGV[6], ARGV[7]
local ttl, max_hold, record_ms = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[8])
local attempts = tonumber(ARGV[10])

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
end

local time = redis.call('TIME')
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now = math.floor(now_us / 1000)

local value = redis.pcall('GET', lock)
if type(value) == 'table' and not string.find(value.err, 'WRONGTYPE', 1, true) then
  return value -- No right to read, or a stale replica: that says nothing about the lock.
end
if type(value) == 'table' then
  return {now, 'wrongtype', redis.call('TYPE', lock).ok}
end
local fields = kind ~= ''
  and redis.call('HMGET', record, 'state', 'fingerprint', 'token', 'attempt', 'result') or {}
local state, attempt = fields[1], tonumber(fields[4] or 0)

if state and fields[2] ~= fingerprint then
  return {now, 'mismatch'}
elseif state == 'done' or state == 'failed' then
  return {now, 'done', state, fields[5] or '', attempt}
end

if value then
  local ours = string.match(value, '^%x+;v=1;')
  if ours and string.sub(value, 1, 32) == token then
    -- The asker counts max_hold from its last send; it must not count on more than we do.
    local renewed = string.gsub(value, ';acquired=%d+', ';acquired=' .. now, 1)
    redis.call('SET', lock, renewed, 'PX', math.min(ttl, max_hold))
    return {now, 'held', string.match(value, ';fence=(%d+)'), math.max(attempt, 1)}
  end
  local told = ours and string.sub(value, 34) or ''
  local function held_by(id)
    return ours and id ~= '' and string.find(value, ';pub=' .. id .. ';', 1, true)
  end
  local answer = held_by(publication) and 'duplicate' or held_by(ARGV[11]) and 'elder' or 'busy'
  return {now, answer, redis.call('PTTL', lock), told}
end

-- The lock is free. A record still running belongs to an attempt that crashed or lost its lease.
if fields[3] ~= token then
  if state and ARGV[9] == 'hold' then
    return {now, 'in_doubt', attempt}
  elseif attempt >= attempts then
    return {now, 'gave_up', attempt}
  end
  attempt = attempt + 1
end

-- Floored by server time, so that it rises even when the stored number was lost.
local last = tonumber(redis.call('GET', fence_key) or 0) or 0
local fence = string.format('%.0f', math.max(last + 1, now_us))
redis.call('SET', fence_key, fence, 'PX', 86400000 + max_hold)
if kind == 'record' then
  redis.call('PEXPIRE', record, record_ms) -- Without this right no record must be written.
  redis.call('HSET', record, 'state', 'running', 'fingerprint', fingerprint, 'token', token,
    'fence', fence, 'attempt', attempt, 'started', now)
  redis.call('PEXPIRE', record, record_ms)
end
redis.call('SET', lock, token .. ';v=1;fence=' .. fence .. ';acquired=' .. now .. holder,
  'PX', math.min(ttl, max_hold))
return {now, 'held', fence, math.max(attempt, 1)}
