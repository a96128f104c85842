-- INSPECT: who holds the key now, for people.
--
-- Replies {now, own grants, false} or {now, own grants, value, remaining (ms), waiters}.

local call = redis.call
-- include clock
-- include hand_off
local at, own = 3, {}
-- include settle
if not value then
  return {now, own, false}
end
-- include remaining
return {now, own, value, left, call('ZCARD', KEYS[4])}
