-- Answer for a parked job that was called: what became of publishing it.
-- Does nothing if the job was called again meanwhile: then another caller answers for it.
--
-- KEYS  1 line (sorted set)   2 parked (hash)   3 due (sorted set)   4 dead (list)
-- ARGV  1 ticket   2 token of the caller
--       3 what became of it: "taken" by the broker, "refused": it cannot be published, or
--         "unreachable": the broker, so that this call does not count
-- Returns {server_ms, answer}, answer being one of
--   noted   as told
--   dead    it was refused too often and is set aside; a repeated send tells it again
--   not ours   another caller answers for it, or nobody has to any more
local line, parked, due, dead, ticket = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1]
local became = ARGV[3]
if became ~= 'taken' and became ~= 'refused' and became ~= 'unreachable' then
  return redis.error_reply('GILIRAN what became of it must be taken, refused or unreachable')
end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local entry = entry_of(parked, ticket)
local last_dead = string.match(redis.call('LINDEX', dead, -1) or '', '^[^|]*')
if not entry then
  redis.call('ZREM', due, ticket) -- It came before we could note that it was published.
  return {now, last_dead == ticket and 'dead' or 'not ours'}
elseif string.sub(entry.by, 1, 32) ~= ARGV[2] then
  return {now, 'not ours'}
elseif became == 'taken' then
  take_out(line, parked, ticket, entry)
  redis.call('ZREM', due, ticket)
elseif #entry.by > 32 then
  return {now, 'noted'} -- A repeated send: this call has been answered for.
elseif became == 'unreachable' then
  entry.by = entry.by .. '0'
  entry.called = math.max(0, entry.called - 1)
  write_entry(parked, ticket, entry)
else
  -- Five refusals are enough. A call that nobody answered for says less: the caller may have been
  -- killed, or Redis' answer lost. But if there are many, the job may be what kills its callers.
  entry.called, entry.by = entry.called + 19, entry.by .. '0'
  if is_hopeless(entry) then
    set_aside(line, parked, due, dead, ticket, entry, now)
    return {now, 'dead'}
  end
  write_entry(parked, ticket, entry)
end
return {now, 'noted'}
