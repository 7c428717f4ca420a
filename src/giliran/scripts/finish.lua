-- End our own lease and settle the job's record, in one step. Changes nothing if it is not ours.
--
-- KEYS  1 lock (string)   2 record or delivery (hash), optional
-- ARGV  1 token: 32 hex digits
--       2 resend: "1" if an earlier send may have been applied, else "0"
--       3 ending: "done" or "failed" (written down), "forget" (our running record goes away)
--         or "release" (the record is left as it is)
--       4 fingerprint   5 result, "" if it is not kept   6 retain_ms
-- Returns {server_ms, answer, reason}, answer being one of
--   done      the lease was ours and is over, or an earlier send had done so
--   released  a repeated send that wrote no record found the lock not ours: nothing left to do
--   lost      nothing was written; reason "expired" (no lock) or "taken" (another's)
local lock, record = KEYS[1], KEYS[2]
local token, resend, ending, retain = ARGV[1], ARGV[2] == '1', ARGV[3], tonumber(ARGV[6])
local recorded = ending == 'done' or ending == 'failed'
if not string.match(token, '^%x+$') or #token ~= 32 then
  return redis.error_reply('GILIRAN token must be 32 hex digits')
elseif recorded and not (record and retain and retain >= 1000 and retain <= 2 ^ 45
    and retain == math.floor(retain)) then
  return redis.error_reply('GILIRAN a record needs its key and a whole retain_ms from 1000')
elseif not recorded and ending ~= 'forget' and ending ~= 'release' then
  return redis.error_reply('GILIRAN ending must be done, failed, forget or release')
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local value = redis.pcall('GET', lock)
if type(value) == 'table' and not string.find(value.err, 'WRONGTYPE', 1, true) then
  return value -- No right to read, or a stale replica: that says nothing about the lock.
end
local ours = type(value) == 'string' and string.sub(value, 1, 33) == token .. ';'
local noted = record and redis.call('HMGET', record, 'token', 'state') or {}

if not ours then
  if recorded and noted[1] == token and noted[2] == ending then
    return {now, 'done', ''}
  elseif resend and not recorded then
    return {now, 'released', ''}
  end
  return {now, 'lost', value and 'taken' or 'expired'}
end

-- What may be refused for want of memory comes first, what frees memory last.
if recorded then
  redis.call('HSET', record, 'state', ending, 'fingerprint', ARGV[4], 'token', token,
    'fence', string.match(value, ';fence=(%d+)'), 'result', ARGV[5], 'finished', now)
  local kept = redis.pcall('PEXPIRE', record, retain)
  if type(kept) == 'table' and not noted[2] then
    redis.call('DEL', record) -- Without the right to give it an end it must not stay.
    return kept
  end
elseif ending == 'forget' and noted[1] == token and noted[2] == 'running' then
  redis.call('DEL', record)
end
redis.call('DEL', lock)
return {now, 'done', ''}
