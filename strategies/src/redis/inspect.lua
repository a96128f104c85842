-- INSPECT: who holds the key now, for people.
--
-- Answers {now, own grants, false} or {now, own grants, value, remaining (ms), waiters}.

read_time()
read_settings()
local value = settle(3)
if not value then
  return {now, own, false}
end
return {now, own, value, remaining(3), call('ZCARD', KEYS[4])}
