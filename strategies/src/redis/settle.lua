-- What the scripts of one bucket share, from where they say "include settle.lua": what a key looks like, and how
-- it is settled. Before that stand `call`, `now`, `stamp`, and the shortest way through the script.
--
-- KEYS[1]  token counter of the bucket, the only key without an expiry
-- KEYS[2]  nonces remembered in the bucket: sorted set, nonce -> forgotten at (ms)
-- KEYS[n] to KEYS[n+3]  of each key asked about, n = 3, 7, ...:
--   lock   "nonce flag token enqueued granted owner"; its expiry is the lease
--   queue  sorted set, nonce -> place
--   asked  hash, nonce -> "wait duration enqueued flag process owner",
--          "@process" -> alive until (ms), "#" -> last place, "#m" -> a place before which nobody
--          need count the waiters, "#c" -> up to where silent processes were looked for
--   grant  the holder's nonce, if it was granted from the queue; it outlives the lease by nonce_memory
-- ARGV[1]  the calling process
-- ARGV[2]  "memory bucket waiter_ttl waiters nonces topics": nonce_memory (ms), the bucket's
--          number, waiter_ttl (ms), how many may wait for a key and be remembered in the bucket,
--          and what stands before a process in its topic's name
--
-- Times are microseconds of this server's clock, read once, before they are used: `now` is the
-- number, `stamp` its sixteen digits, because printing numbers is what costs a script most. A flag
-- says what is remembered of a grant: "-" nothing, "q" that it was made while its process was not
-- asking (its `grant`, and among the nonces only once its lease has run out), "c" the same among the
-- nonces from the grant on, because copies of its LOCK may be under way.
-- Every reply but the shortest, which are no arrays, begins {now, own grants: those to waiters of the
-- calling process}.

local own = {}
local now_ms = math.floor(now / 1000)

-- Numbers below 2^53 are exact; %.0f prints them whole where tostring would not.
local function whole(number)
  return string.format('%.0f', number)
end

local function memory_ms()
  return tonumber(string.match(ARGV[2], '^%d+'))
end

-- Remembers a nonce until `till` (ms); the memory goes with its last member.
local function remember(nonce, till)
  local memory = KEYS[2]
  call('ZREMRANGEBYSCORE', memory, '-inf', whole(now_ms))
  call('ZADD', memory, whole(till), nonce)
  call('PEXPIREAT', memory, call('ZRANGE', memory, -1, -1, 'WITHSCORES')[2])
end

-- Gives the key at `at`, which nobody else has, to a nonce, with a new token.
local function grant(at, nonce, flag, enqueued, duration, owner)
  local token, last = stamp, tonumber(call('SET', KEYS[1], stamp, 'GET')) or 0
  if last >= now then
    token = whole(last + 1)
    call('SET', KEYS[1], token)
  end
  local value = nonce .. ' ' .. flag .. ' ' .. token .. ' ' .. enqueued .. ' ' .. stamp .. ' ' .. owner
  call('SET', KEYS[at], value, 'PX', duration)
  if flag == 'q' then
    call('SET', KEYS[at + 3], nonce, 'PX', duration + memory_ms())
  elseif flag == 'c' then
    remember(nonce, now_ms + 1 + duration + memory_ms())
  end
  return token, value
end

-- Drops what was asked with the last place of the queue.
local function sweep(at)
  if call('EXISTS', KEYS[at + 1]) == 0 then
    call('DEL', KEYS[at + 2])
    return true
  end
end

-- Hands the key at `at` to the first live waiter, whose process is told: in the reply if it is the
-- one that asks, else on its topic. The dead before it are dropped. Returns the lock's new value; or
-- false, and then whether waiters are left all the same: one script drops at most 1,000 dead, so that
-- none keeps the server for long.
local function hand_over(at)
  for _ = 1, 1000 do
    local nonce = call('ZPOPMIN', KEYS[at + 1])[1]
    if not nonce then
      break
    end
    local found = call('HMGET', KEYS[at + 2], nonce, '@' .. ARGV[1])
    if found[1] then
      local wait, duration, enqueued, flag, process, owner =
        string.match(found[1], '^(%S+) (%d+) (%d+) (%S) (%S+) (.*)$')
      local alive = found[2]
      if process ~= ARGV[1] then
        alive = call('HGET', KEYS[at + 2], '@' .. process)
      end
      if not sweep(at) then
        call('HDEL', KEYS[at + 2], nonce)
      end
      local waits = wait == '-1' or enqueued + wait * 1000 > now
      if waits and alive and tonumber(alive) >= now_ms then
        local token, value = grant(at, nonce, flag, enqueued, duration, owner)
        local words = nonce .. ' ' .. token .. ' ' .. enqueued .. ' ' .. stamp
        if process == ARGV[1] then
          own[#own + 1] = words
        else
          local bucket, topics = string.match(ARGV[2], '^%d+ (%d+) %d+ %d+ %d+ (.*)$')
          call('PUBLISH', topics .. process, '1 ' .. bucket .. ' ' .. words)
        end
        return value
      end
    end
  end
  return false, not sweep(at)
end

-- A sign of life of the calling process in the queue at `at`, if the last one, `alive`, is older
-- than a sixteenth of waiter_ttl: so much longer each one counts. A queue that nobody refreshes goes.
local function refresh(at, alive)
  local waiter_ttl = tonumber(string.match(ARGV[2], '^%d+ %d+ (%d+)'))
  local till = now_ms + waiter_ttl
  if not alive or tonumber(alive) < till then
    -- Never sooner: a process with a longer waiter_ttl may wait here as well. And before what a server that is full
    -- would refuse: after this it refuses nothing.
    for part = at + 1, at + 2 do
      if call('PEXPIRE', KEYS[part], 2 * waiter_ttl, 'NX') == 0 then
        call('PEXPIRE', KEYS[part], 2 * waiter_ttl, 'GT')
      end
    end
    call('HSET', KEYS[at + 2], '@' .. ARGV[1], whole(till + math.floor(waiter_ttl / 16)))
  end
end

-- Drops signs of life that are over from the next part of what was asked. A queue that is never
-- empty would else keep every process that ever waited. Each part is more than the 32 places taken
-- since can have added.
local function forget_silent(at)
  local cursor = call('HGET', KEYS[at + 2], '#c') or '0'
  local found = call('HSCAN', KEYS[at + 2], cursor, 'MATCH', '@*', 'COUNT', 256)
  for field = 1, #found[2], 2 do
    if tonumber(found[2][field + 1]) < now_ms then
      call('HDEL', KEYS[at + 2], found[2][field])
    end
  end
  call('HSET', KEYS[at + 2], '#c', found[1])
end

-- If the lease at `at` has run out, remembers a holder that came from the queue, and hands the key
-- over. Returns the lock's value, or false, and then whether waiters are left.
local function settle(at)
  local value = call('GET', KEYS[at])
  if value or call('EXISTS', KEYS[at + 1], KEYS[at + 3]) == 0 then
    return value, false
  end
  local ended = call('GET', KEYS[at + 3])
  if ended then
    remember(ended, now_ms + 1 + call('PTTL', KEYS[at + 3]))
    call('DEL', KEYS[at + 3])
  end
  return hand_over(at)
end

local function is_remembered(nonce)
  local till = call('ZSCORE', KEYS[2], nonce)
  return till and tonumber(till) > now_ms
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
