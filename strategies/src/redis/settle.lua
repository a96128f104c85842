-- The sections that the scripts share. A script includes the text of a section where it names it.
-- Most are plain statements on the local variables that their first lines name: a function is
-- created in each run, which costs a fifth of a command.
--
-- KEYS[1]  token counter of the bucket, the only key without an expiry
-- KEYS[2]  nonces remembered in the bucket: sorted set, nonce -> forgotten at (ms)
-- KEYS[3] to KEYS[6]  of the key of the request:
--   lock   "nonce q token enqueued granted owner"; its expiry is the lease
--   queue  sorted set, nonce -> position
--   asked  hash of the waiters:
--          nonce -> "wait duration memory enqueued q process owner"
--          "@process" -> alive until (ms)
--          "#" -> last position, "#c" -> cursor of the search for silent processes,
--          "#r" -> "last_heartbeat silence_start grace_until", see the section heartbeats
--   grant  the holder's nonce, if copies of its LOCK may be in flight; outlives the lease by
--          nonce_memory, and is then moved to the nonces
-- ARGV[1]  the calling process
-- ARGV[2]  "memory waiter_ttl waiters nonces topics": nonce_memory (ms), waiter_ttl (ms), limits of
--          the waiters of a key and the nonces in the bucket, and the prefix of the topics
--
-- Times are microseconds of this server's clock: `now` is the number, `stamp` its sixteen digits,
-- because formatting numbers is a script's greatest cost; `now_ms` is in milliseconds. The letter q
-- is constant: the scripts of 0.2.0 expect a letter there.
-- A reply is a text, or an array that begins with one: "now result", and for each grant to a waiter
-- of the calling process a line "nonce token enqueued granted lease". Texts, because an array costs
-- a tenth of a script.
--
-- A server whose memory is full refuses the first write of a script if it needs memory, and no
-- later one. So scripts that free, extend or grant begin with a write that needs none.

--- clock: sets now, stamp, now_ms
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local stamp = time[1] .. string.sub('00000' .. time[2], -6)
local now_ms = math.floor(now / 1000)

--- grant_of: takes value; sets token, enqueued, granted, owner; nil if the value is not a lock
local token, enqueued, granted, owner =
  string.match(value, '^%x+ %S (%d+) (%d+) (%d+) (.*)$')

--- grant: takes nonce, enqueued, duration, owner; sets token, value
local token, last = stamp, tonumber(call('SET', KEYS[1], stamp, 'GET')) or 0
if last >= now then
  token = string.format('%.0f', last + 1)
  call('SET', KEYS[1], token)
end
local value = nonce .. ' q ' .. token .. ' ' .. enqueued .. ' ' .. stamp .. ' ' .. owner
call('SET', KEYS[3], value, 'PX', duration)

--- remaining: sets left, how long the lease still lasts (ms)
local left = call('PTTL', KEYS[3])
if left < 0 then
  -- No script of ours sets a lease without an end: report 1 ms more than the longest (24 h).
  left = left == -1 and 86400001 or 0
end

--- settings: sets memory, waiter_ttl, waiters_max, nonces_max, topics
local memory, waiter_ttl, waiters_max, nonces_max, topics =
  string.match(ARGV[2], '^(%d+) (%d+) (%d+) (%d+) (.*)$')

--- remember: takes nonce, till (ms)
-- At the limit the one to be forgotten first gives way.
call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now_ms)
call('ZADD', KEYS[2], till, nonce)
-- include settings
if call('ZCARD', KEYS[2]) > tonumber(nonces_max) then
  call('ZPOPMIN', KEYS[2])
end
call('PEXPIREAT', KEYS[2], call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2])

--- heartbeats: takes record, a "#r", waiter_ttl; sets last_heartbeat, silence_start, grace_until
-- All times (ms) concern the processes that wait for a key: the latest heartbeat of any, the begin
-- of a silence of all, and the time until which those alive at that begin may stay silent. The
-- server itself may have stood still. A silence of all before `grace_until` moves the begin by half
-- of waiter_ttl. Otherwise a process with too rare heartbeats would keep dead waiters.
local last_heartbeat, silence_start, grace_until =
  string.match(record or '', '^(%d+) (%d+) (%d+)$')
last_heartbeat = tonumber(last_heartbeat) or now_ms
silence_start, grace_until = tonumber(silence_start) or 0, tonumber(grace_until) or 0
if now_ms - last_heartbeat > waiter_ttl / 2 then
  silence_start = grace_until > last_heartbeat and silence_start + math.floor(waiter_ttl / 2)
    or last_heartbeat
  grace_until = now_ms + math.floor(waiter_ttl / 2)
end

--- heartbeat: of the calling process; takes waiter_ttl, alive, the end of its latest one
-- Refreshed at most every waiter_ttl/16, so a heartbeat is valid for 17/16 waiter_ttl. A queue
-- without heartbeats expires.
if not alive or tonumber(alive) < now_ms + waiter_ttl then
  -- Never sooner: a process with a longer waiter_ttl may wait here as well.
  for part = 4, 5 do
    if call('PEXPIRE', KEYS[part], 4 * waiter_ttl, 'NX') == 0 then
      call('PEXPIRE', KEYS[part], 4 * waiter_ttl, 'GT')
    end
  end
  local record = call('HGET', KEYS[5], '#r')
  -- include heartbeats
  call('HSET', KEYS[5], '@' .. ARGV[1], now_ms + math.floor(waiter_ttl * 17 / 16),
    '#r', string.format('%.0f %.0f %.0f', now_ms, silence_start, grace_until))
end

--- hand_off: a function
-- Grants the key, which has no holder or loses it in this script, to the first live waiter.
-- Dead waiters before it are dropped, at most 1,000 in one script, so that no script blocks the
-- server for long. `head` is the first two waiters, if they were read already.
-- Returns the lock's new value and, for a waiter of the calling process, a line for the reply;
-- other processes are notified on their topics. Returns false otherwise. If waiters are left, it
-- also returns when to try again (ms): zero after dead waiters, more if the head is silent and may
-- be alive. The third value says whether all waiters were silent for waiter_ttl.
local function hand_off(head)
  local queue, asked, process = KEYS[4], KEYS[5], ARGV[1]
  for _ = 1, 1000 do
    head = head or call('ZRANGE', queue, 0, 1)
    local nonce, behind = head[1], head[2]
    head = nil
    if not nonce then
      return false
    end
    local wait, duration, memory, enqueued, requester, owner = string.match(
      call('HGET', asked, nonce) or '', '^(%S+) (%d+) (%d+) (%d+) %S (%S+) (.*)$')
    local waits = requester and (wait == '-1' or enqueued + wait * 1000 > now)
    if waits then
      local alive = tonumber(call('HGET', asked, '@' .. requester)) or 0
      if alive < now_ms then
        -- include settings
        local record = call('HGET', asked, '#r')
        -- include heartbeats
        if alive >= silence_start and grace_until > now_ms then
          local silent = last_heartbeat + math.floor(waiter_ttl * 17 / 16) - now_ms
          if now_ms - last_heartbeat > waiter_ttl / 2 then
            -- All processes may be dead: the queue expires unless one sends a heartbeat by then,
            -- and not before the last of them is silent.
            for part = 4, 5 do
              call('PEXPIRE', KEYS[part], math.max(math.floor(waiter_ttl / 2), silent), 'LT')
            end
          end
          return false, math.ceil(waiter_ttl / 16), silent < 0
        end
        waits = false
      end
    end
    call('ZREM', queue, nonce)
    if behind then
      call('HDEL', asked, nonce)
    else
      call('DEL', asked)
    end
    if waits then
      -- include grant
      call('SET', KEYS[6], nonce, 'PX', duration + memory)
      local words = nonce .. ' ' .. token .. ' ' .. enqueued .. ' ' .. stamp .. ' ' .. duration
      if requester == process then
        return value, '\n' .. words
      end
      -- Where this user may not publish, the waiter finds its grant by a POLL.
      -- include settings
      redis.pcall('PUBLISH', topics .. requester, '1 ' .. words)
      return value
    end
  end
  return false, 0
end

--- settle: takes value, own; sets value, own, rest, silent
-- If the lease has expired, remembers the holder if copies of its LOCK may be in flight, and grants
-- the key to the next waiter.
local rest, silent
if not value and call('EXISTS', KEYS[4], KEYS[6]) > 0 then
  local nonce = call('GET', KEYS[6])
  if nonce then
    local till = now_ms + 1 + call('PTTL', KEYS[6])
    -- include remember
    call('DEL', KEYS[6])
  end
  value, rest, silent = hand_off()
  if value then
    own, rest = rest or '', nil
  end
end
