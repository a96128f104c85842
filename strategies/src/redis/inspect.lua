-- INSPECT: the present holder of the key, for diagnostics.
--
-- Replies free, foreign for a value that is not a lock, or {"now held NONCE TOKEN GRANTED REMAINING
-- WAITERS", owner}: the time of the grant (µs), the remaining lease (ms), and how many wait.

local call = redis.call
-- include clock
-- include hand_off
local own, value = '', call('GET', KEYS[3])
-- include settle
if not value then
  return stamp .. ' free' .. own
end
local holder = value and string.sub(value, 1, 32)
-- include grant_of
if not token then
  return stamp .. ' foreign' .. own
end
-- include remaining
local waiters = call('ZCARD', KEYS[4])
local stamps = token .. ' ' .. granted
return {stamp .. ' held ' .. holder .. ' ' .. stamps .. ' ' .. left .. ' ' .. waiters .. own, owner}
