-- UNLOCK: frees the acquisition of a nonce, whether it holds or waits, and grants the key to the
-- next waiter.
--
-- nonce
-- held_token  the token of the lock; 0 for a withdrawal
-- copies      "c" if a LOCK of this nonce may still be in flight: its end is remembered, so that
--             the LOCK grants nothing when it arrives (else "-")
-- notice      for a force-unlock: what is published to all processes; another acquisition of the
--             nonce is left alone (else empty)
--
-- Results: held or gone: whether the nonce held with this token. A server that was flushed may have
-- granted the nonce again, with another token: that grant is freed, too.

-- include begin
local nonce, held_token, copies, notice = unpack(ARGV, argument, argument + 3)
local value = call('GET', lock)
local holds = value and string.sub(value, 1, 32) == nonce
-- The token follows the nonce, a letter and two spaces.
local is_token = holds and string.find(value, held_token .. ' ', 36, true) == 36
local result = is_token and 'held' or 'gone'
-- The fast path without waiters: it holds, and nothing is remembered of it.
if holds and copies == '-' and notice == '' and call('EXISTS', queue) == 0 then
  call('DEL', lock, copied_nonce)
  return result
end

if notice ~= '' then
  if result == 'gone' then
    return result
  end
  -- A write without effect: a server that refuses writes refuses the first one of a script, and the
  -- holder must not be notified of an unlock that is refused.
  call('ZREM', queue, '')
  -- include settings
  redis.pcall('PUBLISH', topics .. 'forced', notice)
end
-- include clock
local longest = 0
if holds then
  if copies == 'c' then
    -- As long as the process of its LOCK asked for.
    longest = call('PTTL', copied_nonce) - call('PTTL', lock)
  end
  local rest, silent
  -- include hand_off
  if not value then
    call('DEL', lock, copied_nonce)
  end
else
  call('ZREM', queue, nonce)
  call('HDEL', asked, nonce)
  if call('EXISTS', queue) == 0 then
    call('DEL', asked)
  end
  -- include settle
end
if copies == 'c' then
  -- include settings
  local till = now_ms + 1 + math.max(longest, memory)
  -- include remember
end
return result
-- include run
