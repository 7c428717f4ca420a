-- Park a job in the line of a resource that is not free, or keep the place it has there.
-- Sending it again with the same ticket gives the same place.
--
-- KEYS  1 lock (string)   2 line (sorted set)   3 parked (hash)   4 due (sorted set)
-- ARGV  1 ticket   2 route: who can publish the job again   3 payload to publish it with
--       4 rank it had before, or ""   5 ends: server ms at which its time is over
--       6 most: how many may be parked
--       7 group, or "": of each group one job waits; an older one is to end, as superseded
--       8 durable: "1" to refuse where Redis does not write down what it is told
--       9 token: 32 hex digits of who publishes the one that is superseded
--       10 retain_ms: how long a copy of that one may still come
-- Returns {server_ms, answer, ...}, answer being one of
--   parked position rank [ticket route payload]   position 0 is first; then the job that is
--                                                 superseded, if any: this one, if it is older
--   free       the resource is free and it is this ticket's turn: claim it
--   full       as many are parked as may be
local lock, line, parked, due = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local ticket, route, payload, rank = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local ends, most, group, token = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7], ARGV[9]
local retain = tonumber(ARGV[10])
local function whole(word, least)
  local n = tonumber(word)
  return n and n >= least and n <= 2 ^ 53 and n == math.floor(n)
end
if ticket == '' or string.find(ticket, '[|;]') or string.find(group .. route, '|', 1, true) then
  return redis.error_reply('GILIRAN ticket, group and route must be written without separators')
elseif not (whole(ends, 1) and whole(most, 1) and (rank == '' or whole(rank, 0))) then
  return redis.error_reply('GILIRAN ends, most and rank must be whole numbers')
elseif not whole(retain, 1000) then
  return redis.error_reply('GILIRAN retain_ms must be a whole number from 1000')
elseif not string.match(token, '^%x+$') or #token ~= 32 then
  return redis.error_reply('GILIRAN token must be 32 hex digits')
end
if ARGV[8] == '1' then
  local info = redis.pcall('INFO', 'persistence')
  if type(info) ~= 'string' or not string.find(info, 'aof_enabled:1', 1, true) then
    return redis.error_reply('NOTDURABLE no append-only file, or no right to ask for it')
  end
end

local time = redis.call('TIME')
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now = math.floor(now_us / 1000)
local value = redis.pcall('GET', lock)
if type(value) == 'table' and not string.find(value.err, 'WRONGTYPE', 1, true) then
  return value -- No right to read, or a stale replica: that says nothing about the lock.
end
local known = entry_of(parked, ticket)
local score = older(redis.call('ZSCORE', line, ticket), rank)
if type(value) == 'string' and is_reserved_for(value, ticket) then
  return {now, 'free'}
elseif not value then
  local first = redis.call('ZRANGE', line, 0, 0, 'WITHSCORES')
  if not first[1] or first[1] == ticket or (score and score <= tonumber(first[2])) then
    return {now, 'free'}
  end
end
if known and known.verdict ~= '' then -- It is about to end: a copy of it ends with it.
  return {now, 'parked', -1, rank == '' and '0' or rank}
end
if is_superseded(parked, ticket) then
  return {now, 'parked', -1, rank == '' and '0' or rank} -- It ended since this copy claimed.
end
if not known and rank == '' and redis.call('HLEN', parked) >= 2 * most then
  return {now, 'full'}
end

-- Of a group the newest waits, in the best place of them: that which met the busy resource last,
-- whatever the order in which they come here. Who has been called waits no more; if it comes too
-- late and is parked again, the one that waits since then is the newer.
local rival = group ~= '' and redis.call('HGET', parked, '/' .. group)
local other = rival and rival ~= ticket and entry_of(parked, rival)
if other and not (other.kind == 'job' and other.by == '' and other.verdict == '') then
  other = nil
end
local theirs = other and tonumber(redis.call('ZSCORE', line, rival))
local late = other and (ends < other.ends or (theirs and score and score < theirs))
score = math.min(score or math.huge, theirs or math.huge)
if score == math.huge then
  score = rank_of(line, ticket, rank, now_us)
end
local entry = {kind = 'job', called = 0, by = '', ends = ends,
  verdict = '', group = group, route = route}

-- What may be refused for want of memory comes first, and the entry last: without one, a place
-- in line is passed over.
local stays = late and rival or ticket
redis.call('ZADD', line, string.format('%.0f', score), stays)
redis.call('ZADD', due, string.format('%.0f', ends), ticket)
redis.call('HSET', parked, '+' .. ticket, payload)
if group ~= '' then
  redis.call('HSET', parked, '/' .. group, stays)
end
write_entry(parked, ticket, entry)
redis.call('PERSIST', line) -- Waiters had given them an end.
redis.call('PERSIST', parked)
local reply = {now, 'parked', 0, string.format('%.0f', score)}
if other then
  local superseded, loser = late and ticket or rival, late and entry or other
  loser.verdict, loser.called, loser.by = 'superseded', 1, token
  write_entry(parked, superseded, loser)
  redis.call('ZREM', line, superseded)
  local delivered = delivery_of(parked, superseded)
  if not redis.call('HGET', delivered, 'state') then
    redis.call('HSET', delivered, 'state', 'superseded', 'fingerprint', '', 'attempt', 1)
    redis.call('PEXPIRE', delivered, retain)
  end
  redis.call('ZADD', due, string.format('%.0f', now + FOR_JOB), superseded)
  reply[5], reply[6] = superseded, loser.route
  reply[7] = redis.call('HGET', parked, '+' .. superseded) or ''
end
reply[3] = redis.call('ZRANK', line, stays)
return reply
