-- End our own lease and settle the job's record, in one step, and call the next in line. Changes
-- nothing if the lease is not ours; that of several resources is ours if all of them are.
--
-- KEYS  1 lock (string)   2 line (sorted set)   3 parked (hash)
--       the same three of each further resource, and last
--       record or delivery (hash), optional
-- ARGV  1 token: 32 hex digits
--       2 resend: "1" if an earlier send may have been applied, else "0"
--       3 ending: "done" or "failed" (written down), "forget" (our running record goes away)
--         or "release" (the record is left as it is)
--       4 fingerprint   5 result, "" if it is not kept   6 retain_ms
--       7 ticket: our own in the line, or ""   8 routes this process can publish: "|a|b|"
--       9 fence, or left out: the lease is ours only if it has this one
-- Returns {server_ms, answer, reason, called, ...}, answer being one of
--   done      the lease was ours and is over, or an earlier send had done so
--   released  a repeated send that wrote no record found a lock not ours: nothing is left of it
--   lost      nothing was written; reason "expired" (no lock) or "taken" (another's)
-- called is who was called, as `call_next` tells it; a repeated send tells it again; then those of
-- further resources
local token, resend, ending, retain = ARGV[1], ARGV[2] == '1', ARGV[3], tonumber(ARGV[6])
local recorded = ending == 'done' or ending == 'failed'
local record = #KEYS % 3 == 1 and KEYS[#KEYS]
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
local grant = token .. ';' .. (ARGV[9] and 'v=1;fence=' .. ARGV[9] .. ';' or '')
local each, reason, fence = {}, nil, nil
local reply = {now, 'done', ''}
for at = 1, #KEYS - 2, 3 do
  local value = redis.pcall('GET', KEYS[at])
  if type(value) == 'table' and not string.find(value.err, 'WRONGTYPE', 1, true) then
    return value -- No right to read, or a stale replica: that says nothing about the lock.
  end
  local ours = type(value) == 'string' and string.sub(value, 1, #grant) == grant
  if not ours then
    reason = reason or (value and 'taken' or 'expired')
  elseif at == 1 then
    fence = string.match(value, ';fence=(%d+)')
  end
  each[#each + 1] = ours
  reply[#reply + 1] = called_before(value, token, KEYS[at + 1], KEYS[at + 2])
end
local noted = record and redis.call('HMGET', record, 'token', 'state') or {}

if reason and recorded and noted[1] == token and noted[2] == ending then
  return reply
elseif reason and (recorded or not resend) then
  return {now, 'lost', reason, {}}
elseif reason then
  reply[2] = 'released'
end

-- What may be refused for want of memory comes first, what frees memory last.
if recorded then
  redis.call('HSET', record, 'state', ending, 'fingerprint', ARGV[4], 'token', token,
    'fence', fence, 'result', ARGV[5], 'finished', now)
  local kept = redis.pcall('PEXPIRE', record, retain)
  if type(kept) == 'table' and not noted[2] then
    redis.call('DEL', record) -- Without the right to give it an end it must not stay.
    return kept
  end
elseif fence and ending == 'forget' and noted[1] == token and noted[2] == 'running' then
  redis.call('DEL', record)
end
for number, ours in ipairs(each) do
  local lock, line, parked = KEYS[3 * number - 2], KEYS[3 * number - 1], KEYS[3 * number]
  if ours then
    redis.call('DEL', lock)
  end
  if ours and redis.call('EXISTS', parked) == 1 then
    -- What is wrong with the line does not undo the end; sweeps and claims tell of it.
    local ok, told = pcall(function()
      if ARGV[7] ~= '' then
        take_out(line, parked, ARGV[7], entry_of(parked, ARGV[7]))
      end
      return call_next(lock, line, parked, token, ARGV[8], now)
    end)
    reply[3 + number] = ok and told or {}
  end
end
return reply
