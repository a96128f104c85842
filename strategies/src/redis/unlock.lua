-- UNLOCK: frees the acquisition of a nonce, whether it holds or waits, and grants the key to the
-- next waiter.
--
-- ARGV[3]  nonce
-- ARGV[4]  "c" if a LOCK of this nonce may still be in flight: its end is remembered, so that the
--          LOCK grants nothing when it arrives (else "-")
-- ARGV[5]  token of the lock; 0 for a withdrawal
-- ARGV[6]  for a force-unlock: the topic on which the holder is notified, and the payload, ARGV[7];
--          another acquisition of the nonce is left alone
--
-- Replies held or gone: whether the nonce held with this token. A server that was flushed may have
-- granted the nonce again, with another token: that grant is freed, too. Where it reads no clock it
-- replies 0 for now.

local call = redis.call
local nonce, copies = ARGV[3], ARGV[4]
local value = call('GET', KEYS[3])
local holder = value and string.sub(value, 1, 32)
local holds = holder == nonce
-- The token follows the nonce, a letter and two spaces.
local result = holds and string.find(value, ARGV[5] .. ' ', 36, true) == 36 and 'held' or 'gone'
if ARGV[6] and result == 'gone' then
  return '0 gone'
end
local head = holds and call('ZRANGE', KEYS[4], 0, 1)

if ARGV[6] then
  -- A write without effect: a server that refuses writes refuses the first one of a script, and the
  -- holder must not be notified of an unlock that is refused.
  call('ZREM', KEYS[4], '')
  redis.pcall('PUBLISH', ARGV[6], ARGV[7])
end

-- The fast path without waiters: it holds, and nothing is remembered of it.
if holds and not head[1] and copies == '-' then
  call('DEL', KEYS[3], KEYS[6])
  return '0 ' .. result
end

-- include clock
-- include hand_off
local own, longest = '', 0
if holds then
  if copies == 'c' then
    -- As long as the process of its LOCK asked for.
    longest = call('PTTL', KEYS[6]) - call('PTTL', KEYS[3])
  end
  local next, grant = hand_off(head)
  if not next then
    call('DEL', KEYS[3], KEYS[6])
  else
    own = grant or ''
  end
else
  call('ZREM', KEYS[4], nonce)
  call('HDEL', KEYS[5], nonce)
  if call('EXISTS', KEYS[4]) == 0 then
    call('DEL', KEYS[5])
  end
  -- include settle
end
if copies == 'c' then
  local till = now_ms + 1 + math.max(longest, string.match(ARGV[2], '^%d+'))
  -- include remember
end
return stamp .. ' ' .. result .. own
