-- LOCK: grants, queues or refuses one request.
--
-- ARGV[3]  a time of this server (µs) after which the LOCK may be older than the nonce memory
-- ARGV[4]  nonce
-- ARGV[5]  duration (ms)
-- ARGV[6]  wait (ms; 0 not at all, -1 without end)
-- ARGV[7]  "c" if copies of this LOCK may be in flight (else "-")
-- ARGV[8]  owner
--
-- Replies one of
--   granted TOKEN           the key was free
--   again TOKEN REMAINING   this nonce holds it already; its lease ends in REMAINING ms
--   queued REMAINING        it waits; the holder's lease ends in REMAINING ms
--   held                    another holds it, or is before it, and the request does not wait
--   spent                   this nonce was unlocked, withdrawn, or its lease expired
--   stale                   too late, or more dead waiters than one script drops: send it again
--   waiters N, nonces N     a limit is reached

local call = redis.call
-- include clock
if now > tonumber(ARGV[3]) then
  return stamp .. ' stale'
end

local nonce, duration, wait, copies, owner = unpack(ARGV, 4, 8)
local value = call('GET', KEYS[3])
-- The fast path: a key that is free, with no waiters, and no nonces remembered.
if not value and copies == '-' and call('EXISTS', KEYS[4], KEYS[6], KEYS[2]) == 0 then
  local flag, enqueued = '-', stamp
  -- include grant
  return stamp .. ' granted ' .. token
end

-- include hand_off

-- Enqueues the nonce, or keeps its position. A repeated LOCK may lengthen the wait, and counts its
-- wait from now, so that the latest sender's deadline is right. Of two requested leases the longer
-- is granted: each sender counts on its own. Returns whether there was capacity.
local function enqueue()
  -- include times
  local queue, asked, process = KEYS[4], KEYS[5], ARGV[1]
  local found = call('HMGET', asked, nonce, '@' .. process, '#', '#m')
  local alive, position, flag = found[2], found[3], copies == 'c' and 'c' or 'q'
  if found[1] and call('ZSCORE', queue, nonce) then
    local waits, lease, enqueued, before = string.match(found[1], '^(%S+) (%d+) %d+ (%d+) (%S)')
    if waits == '-1' then
      wait = waits
    elseif wait ~= '-1' then
      wait = math.max(wait, math.ceil((enqueued + waits * 1000 - now) / 1000))
    end
    duration = math.max(duration, lease)
    flag = before == 'c' and before or flag
  else
    local number = (position or 0) + 1
    if number >= (tonumber(found[4]) or 0) then
      -- include limits
      local capacity = waiters_max - call('ZCARD', queue)
      if capacity <= 0 then
        return false
      end
      call('HSET', asked, '#m', number + capacity)
    end
    position = string.format('%.0f', number)
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
  end
  local terms = wait .. ' ' .. duration .. ' ' .. memory .. ' ' .. stamp
  call('HSET', asked, '#', position, nonce,
    terms .. ' ' .. flag .. ' ' .. process .. ' ' .. owner)
  -- include refresh
  return true
end

local own, reply = '', nil
-- include settle
-- include read
if holder == nonce then
  -- It holds already. Where copies are in flight its end must be remembered.
  -- include grant_of
  -- include remaining
  reply = 'again ' .. token .. ' ' .. left
  if copies == 'c' and flag ~= 'c' then
    local till = now_ms + 1 + left + string.match(ARGV[2], '^%d+')
    -- include flag_copies
    call('DEL', KEYS[6])
    -- include remember
  end
elseif call('EXISTS', KEYS[2]) == 1 then
  -- include limits
  if tonumber(call('ZSCORE', KEYS[2], nonce) or 0) > now_ms then
    reply = 'spent'
  elseif call('ZCARD', KEYS[2]) >= nonces_max and not call('ZSCORE', KEYS[4], nonce) then
    call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now_ms)
    reply = call('ZCARD', KEYS[2]) >= nonces_max and 'nonces ' .. nonces_max
  end
end
if reply then
  -- Judged.
elseif not value and not rest then
  local flag, enqueued = copies, stamp
  -- include grant
  if copies == 'c' then
    local till = now_ms + 1 + duration + string.match(ARGV[2], '^%d+')
    -- include remember
  end
  reply = 'granted ' .. token
elseif wait == '0' then
  reply = rest == 0 and 'stale' or 'held'
elseif enqueue() then
  -- include remaining
  reply = 'queued ' .. (rest or left)
else
  -- include limits
  reply = 'waiters ' .. waiters_max
end
return stamp .. ' ' .. reply .. own
