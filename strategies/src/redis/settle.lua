-- What every script shares, from where it says "include settle.lua": what a key looks like, and how
-- it is settled. Before that stand `call`, `now`, and the shortest way through the script.
--
-- KEYS[1]  token counter of the bucket, the only key without an expiry
-- KEYS[2]  nonces remembered in the bucket: sorted set, nonce -> forgotten at (ms)
-- KEYS[n], KEYS[n+1], KEYS[n+2]  of each key asked about, n = 3, 6, ...:
--   lock     "nonce flag token enqueued granted owner"; its expiry is the lease
--   queue    sorted set, nonce -> place
--   waiters  hash, nonce -> "deadline duration enqueued flag process owner",
--            "@process" -> alive until (ms), "#" -> last place,
--            "#c" -> up to where silent processes were looked for
-- ARGV[1]  the calling process
-- ARGV[2]  "memory bucket waiter_ttl waiters nonces topics": nonce_memory (ms), the bucket's
--          number, waiter_ttl (ms), how many may wait for a key and be remembered in the bucket,
--          and what stands before a process in its topic's name
--
-- Times are microseconds of this server's clock, read once, before they are used. A flag says what
-- is remembered of a grant: "-" nothing, "q" that it was made while its process was not asking,
-- "c" the same, and that copies of its LOCK may be under way, so that its end is remembered too.
-- Every reply but the shortest begins {now, own grants: those to waiters of the calling process}.

local own = {}
local now_ms = math.floor(now / 1000)
local memory_ms, bucket, waiter_ttl, waiters_max, nonces_max, topics =
  string.match(ARGV[2], '^(%d+) (%d+) (%d+) (%d+) (%d+) (.*)$')
memory_ms, waiter_ttl = tonumber(memory_ms), tonumber(waiter_ttl)
waiters_max, nonces_max = tonumber(waiters_max), tonumber(nonces_max)

-- Numbers below 2^53 are exact; %.0f prints them whole where tostring would not.
local function whole(number)
  return string.format('%.0f', number)
end

-- Remembers a nonce until nonce_memory after `from`; the memory goes with its last member.
local function remember(nonce, from)
  local memory = KEYS[2]
  call('ZREMRANGEBYSCORE', memory, '-inf', whole(now_ms))
  call('ZADD', memory, whole(math.ceil(from / 1000) + memory_ms), nonce)
  call('PEXPIREAT', memory, call('ZRANGE', memory, -1, -1, 'WITHSCORES')[2])
end

local function is_remembered(nonce)
  local till = call('ZSCORE', KEYS[2], nonce)
  return till and tonumber(till) > now_ms
end

-- Gives the free key at `at` to a nonce.
local function grant(at, nonce, flag, enqueued, duration, owner)
  local token = math.max((tonumber(call('GET', KEYS[1])) or 0) + 1, now)
  local value = nonce .. ' ' .. flag .. ' ' .. whole(token) .. ' ' .. whole(enqueued) .. ' '
    .. whole(now) .. ' ' .. owner
  call('SET', KEYS[1], whole(token))
  call('SET', KEYS[at], value, 'NX', 'PX', duration)
  if flag ~= '-' then
    remember(nonce, now + duration * 1000)
  end
  return token, value
end

-- Tells a process of a grant: in the reply if it is the one that asks, else on its topic.
local function tell(process, nonce, token, enqueued)
  local words = nonce .. ' ' .. whole(token) .. ' ' .. enqueued .. ' ' .. whole(now)
  if process == ARGV[1] then
    own[#own + 1] = words
  else
    call('PUBLISH', topics .. process, '1 ' .. bucket .. ' ' .. words)
  end
end

local function sweep(at)
  if call('EXISTS', KEYS[at + 1]) == 0 then
    call('DEL', KEYS[at + 2])
  end
end

-- If the key is free or expired, hands it to the first live waiter; the dead before it are
-- dropped. Returns the lock's value, or false, and then whether waiters are left all the same:
-- one script drops at most 1,000 dead, so that none keeps the server for long.
local function settle(at)
  local value = call('GET', KEYS[at])
  if value or call('EXISTS', KEYS[at + 1]) == 0 then
    return value, false
  end
  for _ = 1, 1000 do
    local nonce = call('ZPOPMIN', KEYS[at + 1])[1]
    if not nonce then
      call('DEL', KEYS[at + 2])
      return false, false
    end
    local record = call('HGET', KEYS[at + 2], nonce)
    call('HDEL', KEYS[at + 2], nonce)
    if record then
      local deadline, duration, enqueued, flag, process, owner =
        string.match(record, '^(%d+) (%d+) (%d+) (%S) (%S+) (.*)$')
      local alive = call('HGET', KEYS[at + 2], '@' .. process)
      if tonumber(deadline) > now and alive and tonumber(alive) >= now_ms then
        local token, granted = grant(at, nonce, flag, tonumber(enqueued), duration, owner)
        sweep(at)
        tell(process, nonce, token, enqueued)
        return granted, false
      end
    end
  end
  sweep(at)
  return false, call('EXISTS', KEYS[at + 1]) == 1
end

-- A sign of life of the calling process in the queue at `at`; a queue that nobody refreshes goes.
local function refresh(at)
  call('HSET', KEYS[at + 2], '@' .. ARGV[1], whole(now_ms + waiter_ttl))
  if call('PTTL', KEYS[at + 1]) < 2 * waiter_ttl then
    call('PEXPIRE', KEYS[at + 1], 2 * waiter_ttl)
    call('PEXPIRE', KEYS[at + 2], 2 * waiter_ttl)
  end
end

-- What a lock's value says of its grant.
local function grant_of(value)
  local token, enqueued, granted = string.match(value, '^%x+ %S (%d+) (%d+) (%d+) ')
  return tonumber(token), tonumber(enqueued), tonumber(granted)
end

-- How long the lease of the key at `at` still lasts (ms); an hour where it never ends, which is
-- not our doing.
local function remaining(at)
  local ttl = call('PTTL', KEYS[at])
  return ttl == -1 and 3600000 or math.max(ttl, 0)
end

local function holder(value)
  return string.sub(value, 1, 32)
end
