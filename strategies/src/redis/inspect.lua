-- INSPECT: the present holder of the key, for diagnostics. It has no arguments.
--
-- Results: free, foreign for a value that is not a lock, or "held NONCE TOKEN GRANTED REMAINING
-- WAITERS OWNER": the time of the grant (µs), the remaining lease (ms), and how many wait. In the
-- owner, "%0A" is a new line, and "%25" a percent sign.

-- include begin
-- include clock
local value = call('GET', lock)
-- include settle
if not value then
  return 'free'
end
-- include grant_of
if not token then
  return 'foreign'
end
-- include remaining
local waiters = call('ZCARD', queue)
local holder = string.match(value, '^%x+') .. ' ' .. token .. ' ' .. granted_at
owner = string.gsub(owner, '[%%\n]', {['%'] = '%25', ['\n'] = '%0A'})
return 'held ' .. holder .. ' ' .. left .. ' ' .. waiters .. ' ' .. owner
-- include run
