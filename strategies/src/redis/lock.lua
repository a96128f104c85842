-- LOCK: grants, queues or refuses one request.
--
-- ARGV[3]  a time of this server (µs) after which the LOCK may be older than the nonce memory
-- ARGV[4]  nonce
-- ARGV[5]  duration (ms)
-- ARGV[6]  wait (ms; 0 not at all, -1 without end)
-- ARGV[7]  "c" if copies of this LOCK may be in flight, "g" if other calls have its nonce (else "-")
-- ARGV[8]  owner
--
-- Replies one of
--   granted TOKEN           the key was free
--   again TOKEN REMAINING   this nonce holds it already; its lease ends in REMAINING ms
--   queued REMAINING        it waits; the holder's lease ends in REMAINING ms
--   held                    another holds it, or waits before it and sent a heartbeat within
--                           waiter_ttl, and the request does not wait
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
  local enqueued = stamp
  -- include grant
  return stamp .. ' granted ' .. token
end

-- include hand_off
-- include settings

-- Enqueues the nonce. If it waits already, it keeps its position, and a copy of its LOCK is a sign
-- of life, with a wait that has the same end. Returns whether there was capacity.
local function enqueue()
  local queue, asked, process = KEYS[4], KEYS[5], ARGV[1]
  local found = call('HMGET', asked, nonce, '@' .. process, '#')
  local alive = found[2]
  local terms = wait .. ' ' .. duration .. ' ' .. memory .. ' ' .. stamp
  terms = terms .. ' q ' .. process .. ' ' .. owner
  if not (found[1] and call('ZSCORE', queue, nonce)) then
    if call('ZCARD', queue) >= tonumber(waiters_max) then
      return false
    end
    local number = (found[3] or 0) + 1
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
  return true
end

local own, reply = '', nil
-- include settle
local holder = value and string.sub(value, 1, 32)
if holder == nonce then
  -- include grant_of
  -- include remaining
  reply = 'again ' .. token .. ' ' .. left
  if copies ~= '-' then
    -- Before the SET, which needs memory.
    call('DEL', KEYS[6])
    call('SET', KEYS[6], nonce, 'PX', left + memory)
  end
elseif call('EXISTS', KEYS[2]) == 1 then
  -- Of as many as the limit, the one to be forgotten first.
  local first = call('ZRANGE', KEYS[2], -nonces_max, -nonces_max, 'WITHSCORES')[2]
  if tonumber(call('ZSCORE', KEYS[2], nonce) or 0) > now_ms then
    reply = 'spent'
  elseif tonumber(first or 0) > now_ms and not call('ZSCORE', KEYS[4], nonce) then
    reply = 'nonces ' .. nonces_max
  end
end
if reply then
  -- Judged.
elseif not value and (not rest or wait == '0' and silent) then
  local enqueued = stamp
  -- include grant
  if copies ~= '-' then
    call('SET', KEYS[6], nonce, 'PX', duration + memory)
  end
  reply = 'granted ' .. token
elseif wait == '0' then
  reply = rest == 0 and 'stale' or 'held'
elseif enqueue() then
  -- include remaining
  reply = 'queued ' .. (rest or left)
else
  reply = 'waiters ' .. waiters_max
end
return stamp .. ' ' .. reply .. own
