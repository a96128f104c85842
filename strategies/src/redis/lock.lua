-- LOCK: grants, queues or refuses a key.
--
-- too_late  a time of this server (µs) after which the LOCK may be older than the nonce memory
-- nonce
-- duration  (ms)
-- wait      (ms; 0 not at all, -1 without end)
-- copies    "c" if copies of this LOCK may be in flight, "g" if other calls have its nonce (else "-")
-- owner
--
-- Results:
--   granted TOKEN           the key was free
--   again TOKEN REMAINING   this nonce holds it already; its lease ends in REMAINING ms
--   queued REMAINING        it waits; the holder's lease ends in REMAINING ms
--   held                    another holds it, or waits before it and sent a heartbeat within
--                           waiter_ttl, and the request does not wait
--   spent                   this nonce was unlocked, withdrawn, or its lease expired
--   stale                   too late, or more dead waiters than one script drops: send it again
--   waiters N, nonces N     a limit is reached

-- include begin
local too_late, nonce, duration, wait, copies, owner = unpack(ARGV, argument, argument + 5)
-- include clock
if now > tonumber(too_late) then
  return 'stale'
end
local value, enqueued = call('GET', lock), stamp
-- The fast path: a key that is free, with no waiters, and no nonces remembered.
if not value and copies == '-' and call('EXISTS', queue, copied_nonce, nonces) == 0 then
  -- include grant
  return 'granted ' .. token
end

-- include settings
-- include settle
if value and string.sub(value, 1, 32) == nonce then
  -- include grant_of
  -- include remaining
  if copies ~= '-' then
    -- Before the SET, which needs memory.
    call('DEL', copied_nonce)
    call('SET', copied_nonce, nonce, 'PX', left + memory)
  end
  return 'again ' .. token .. ' ' .. left
end
if call('EXISTS', nonces) == 1 then
  -- Of as many as the limit, the one to be forgotten first.
  local first = call('ZRANGE', nonces, -nonces_max, -nonces_max, 'WITHSCORES')[2]
  if tonumber(call('ZSCORE', nonces, nonce) or 0) > now_ms then
    return 'spent'
  elseif tonumber(first or 0) > now_ms and not call('ZSCORE', queue, nonce) then
    return 'nonces ' .. nonces_max
  end
end
if not value and (not rest or wait == '0' and silent) then
  -- include grant
  if copies ~= '-' then
    call('SET', copied_nonce, nonce, 'PX', duration + memory)
  end
  return 'granted ' .. token
elseif wait == '0' then
  return rest == 0 and 'stale' or 'held'
end

-- Enqueues the nonce. If it waits already, it keeps its position, and a copy of its LOCK is a sign
-- of life, with a wait that has the same end.
-- include process
local found = call('HMGET', asked, nonce, '#', '@' .. process, '#r')
local alive, record = found[3], found[4]
local terms = wait .. ' ' .. duration .. ' ' .. memory .. ' ' .. stamp .. ' q '
  .. process .. ' ' .. owner
if not (found[1] and call('ZSCORE', queue, nonce)) then
  if call('ZCARD', queue) >= tonumber(waiters_max) then
    return 'waiters ' .. waiters_max
  end
  local number = (found[2] or 0) + 1
  local position = string.format('%.0f', number)
  call('ZADD', queue, position, nonce)
  if number % 32 == 0 then
    -- Drops the next part of the expired signs of life: a queue that is never empty would else
    -- keep every process that ever waited. A part is more than 32 waiters can add.
    local cursor = call('HGET', asked, '#c') or '0'
    local over = 4 * waiter_ttl
    local part = call('HSCAN', asked, cursor, 'MATCH', '@*', 'COUNT', 256)
    for field = 1, #part[2], 2 do
      if part[2][field + 1] + over < now_ms then
        call('HDEL', asked, part[2][field])
      end
    end
    call('HSET', asked, '#c', part[1])
  end
  call('HSET', asked, '#', position, nonce, terms)
elseif copies ~= 'c' then
  -- Another call with this nonce counts its wait and its lease from here, and gets the grant.
  call('HSET', asked, nonce, terms)
end
-- include heartbeat
-- include remaining
return 'queued ' .. (rest or left)
-- include run
