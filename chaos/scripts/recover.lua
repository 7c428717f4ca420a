-- Give the in-flight messages of workers that show no sign of life to the others, first in line.
-- Names keys it was not given, so it needs a server that is no cluster.
--
-- KEYS  1 workers   2 ready
-- ARGV  1 prefix of in-flight lists   2 prefix of signs of life
-- Returns how many messages were moved
local moved = 0
for _, worker in ipairs(redis.call('SMEMBERS', KEYS[1])) do
  if redis.call('EXISTS', ARGV[2] .. worker) == 0 then
    while redis.call('LMOVE', ARGV[1] .. worker, KEYS[2], 'LEFT', 'RIGHT') do
      moved = moved + 1
    end
    redis.call('SREM', KEYS[1], worker)
  end
end
return moved
