-- INSPECT: who holds the key now, for people.
--
-- Replies {text, false} or {text, value, remaining (ms), waiters}.

local call = redis.call
-- include clock
-- include hand_off
local own, value = '', call('GET', KEYS[3])
-- include settle
if not value then
  return {stamp .. own, false}
end
-- include remaining
return {stamp .. own, value, left, call('ZCARD', KEYS[4])}
