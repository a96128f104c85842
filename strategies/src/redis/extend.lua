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
-- include read
local nonce = ARGV[3]
if holder ~= nonce then
  return stamp .. ' gone' .. own
end
-- include grant_of
if token ~= ARGV[5] then
  return stamp .. ' gone' .. own
end
-- include remaining
local before = left
call('PEXPIRE', KEYS[3], ARGV[4], 'GT')
-- include remaining
-- The memory of its nonce is extended by as much.
if flag == 'q' then
  call('PEXPIRE', KEYS[6], call('PTTL', KEYS[6]) + left - before)
elseif flag == 'c' then
  local least = now_ms + 1 + before + string.match(ARGV[2], '^%d+')
  local till = math.max(call('ZSCORE', KEYS[2], nonce) or 0, least) + left - before
  -- include remember
end
return stamp .. ' held' .. own
