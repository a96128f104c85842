-- EXTEND: ends the lease of a nonce at the later of its present end and `duration` from now.
-- It never creates a lock again, and never shortens one.
--
-- ARGV[3]  nonce
-- ARGV[4]  duration (ms)
-- ARGV[5]  token: a later acquisition of the nonce is left alone; any, if it is left out
--
-- Answers {now, own grants, 'held' | 'gone'}.

local call = redis.call
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local stamp = time[1] .. string.sub('00000' .. time[2], -6)

-- include settle.lua

local nonce, duration, token = ARGV[3], ARGV[4], tonumber(ARGV[5])
local value = settle(3)
if not value or holder(value) ~= nonce or token and grant_of(value) ~= token then
  return {now, own, 'gone'}
end
call('PEXPIRE', KEYS[3], duration, 'GT')
local flag = string.sub(value, 34, 34)
if flag == 'q' then
  call('PEXPIRE', KEYS[6], remaining(3) + memory_ms(), 'GT')
elseif flag == 'c' then
  remember(nonce, now_ms + 1 + remaining(3) + memory_ms())
end
return {now, own, 'held'}
