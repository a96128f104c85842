-- EXTEND: ends the lease of a nonce at the later of its present end and `duration` from now.
-- It never creates a lock again, and never shortens one.
--
-- ARGV[3]  nonce
-- ARGV[4]  duration (ms)
-- ARGV[5]  token: a later acquisition of the nonce is left alone
--
-- Replies held or gone.

local call = redis.call
-- include clock
-- include hand_off
local own, value = '', call('GET', KEYS[3])
-- include settle
local holder = value and string.sub(value, 1, 32)
if holder ~= ARGV[3] then
  return stamp .. ' gone' .. own
end
-- include grant_of
if token ~= ARGV[5] then
  return stamp .. ' gone' .. own
end
-- The memory of its nonce, if it has one, is extended by as much.
local memory = call('PTTL', KEYS[6]) - call('PTTL', KEYS[3])
call('PEXPIRE', KEYS[3], ARGV[4], 'GT')
call('PEXPIRE', KEYS[6], memory + call('PTTL', KEYS[3]))
return stamp .. ' held' .. own
