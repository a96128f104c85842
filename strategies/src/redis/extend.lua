-- EXTEND: ends the lease of a nonce at the later of its present end and `duration` from now.
-- It never creates a lock again, and never shortens one.
--
-- nonce, duration (ms), and held_token: a later acquisition of the nonce is left alone.
--
-- Results: held or gone.

-- include begin
local nonce, duration, held_token = unpack(ARGV, argument, argument + 2)
-- include clock
local value = call('GET', lock)
-- include settle
if not value or string.sub(value, 1, 32) ~= nonce then
  return 'gone'
end
-- include grant_of
if token ~= held_token then
  return 'gone'
end
-- The memory of its nonce, if it has one, is extended by as much.
local memory = call('PTTL', copied_nonce) - call('PTTL', lock)
call('PEXPIRE', lock, duration, 'GT')
call('PEXPIRE', copied_nonce, memory + call('PTTL', lock))
return 'held'
-- include run
