-- INSPECT: who holds the key now, for people.
--
-- Answers {now, own grants, false} or {now, own grants, value, remaining (ms), waiters}.

local call = redis.call
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local stamp = time[1] .. string.sub('00000' .. time[2], -6)

-- include settle.lua

local value = settle(3)
if not value then
  return {now, own, false}
end
return {now, own, value, remaining(3), call('ZCARD', KEYS[4])}
