-- UNLOCK: frees the acquisition of a nonce, whether it holds or waits, and hands the key on.
--
-- ARGV[3]  nonce
-- ARGV[4]  "c" if a LOCK of this nonce may still be under way: its end is remembered, so that the
--          LOCK grants nothing when it arrives (else "-")
--
-- Answers {now, own grants, 'held' | 'waited' | 'gone'}: what the nonce was; or 1: it held, and
-- nobody waits.

local call = redis.call
local nonce, copies = ARGV[3], ARGV[4]
local value = call('GET', KEYS[3])

-- The shortest way.
if value and copies == '-' and string.sub(value, 1, 34) == nonce .. ' -'
  and call('EXISTS', KEYS[4]) == 0 then
  call('DEL', KEYS[3])
  return 1
end

local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local stamp = time[1] .. string.sub('00000' .. time[2], -6)

-- include settle.lua

local was = 'gone'
if value and holder(value) == nonce then
  was = 'held'
  -- The next grant puts its own in their places.
  local next = hand_over(3)
  local flag = string.sub(value, 34, 34)
  if not next then
    call('DEL', KEYS[3], KEYS[6])
  elseif flag == 'q' and string.sub(next, 34, 34) ~= 'q' then
    call('DEL', KEYS[6])
  end
  if flag == 'c' then
    copies = 'c'
  end
else
  if call('ZREM', KEYS[4], nonce) == 1 then
    was = 'waited'
    call('HDEL', KEYS[5], nonce)
    sweep(3)
  end
  settle(3)
end
if copies == 'c' then
  remember(nonce, now_ms + 1 + memory_ms())
end
return {now, own, was}
