-- UNLOCK: frees the acquisitions of nonces, whether they hold or wait, and hands the key on. Several are
-- heirs that had the key one after the other; before them LOCKs take their places that came meanwhile.
--
-- ARGV[3]  nonce
-- ARGV[4]  "c" if a LOCK of this nonce may still be under way: its end is remembered, so that the
--          LOCK grants nothing when it arrives (else "-")
-- ARGV[5]  the token of the last heir that the process knows for this key (else 0); left out by one that
--          wants to know of none
-- then, if there is more than one nonce or any LOCK: how many nonces there are (ARGV[3] is the first, if
-- any), a time as LOCK has it, and the further nonces; then four for each LOCK: nonce, duration, wait,
-- owner; no copies of these are under way
--
-- A grant to a waiter of the calling process carries on: "after nonce token nonce token ...", its
-- heirs, who are next after the one with the token `after` and wait one behind the other, all of them
-- this process'. Their tokens are theirs from then on: the place of each plus `add` of "#h". There
-- stands also up to which place the heirs go, and until when (ms) the queue is kept if nobody asks.
--
-- Answers {now, own grants, 'held' | 'heir' | 'waited' | 'gone' for each nonce}: what it was; where there are LOCKs,
-- then how many of them, from the first, have a place, the shortest way of LOCK being all that is done
-- for them, and how long the holder's lease lasts. Or 1: the only nonce held, and nobody waits. Or
-- "held now", with the grant behind it if it is own: the only nonce held, and the next has the key.

local call = redis.call
local nonce, copies = ARGV[3], ARGV[4]
local value = call('GET', KEYS[3])

-- The shortest way.
if value and #ARGV <= 5 and copies == '-' and string.sub(value, 1, 34) == nonce .. ' -'
  and call('EXISTS', KEYS[4]) == 0 then
  call('DEL', KEYS[3])
  return 1
end

local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local stamp = time[1] .. string.sub('00000' .. time[2], -6)

-- The next: the only nonce holds, and the first in the queue gets the key: alive, without heirs, and of it no
-- copies under way. As `hand_over` does it, without what that needs of the others.
local head = value and #ARGV <= 5 and copies == '-' and string.sub(value, 1, 34)
head = head and (head == nonce .. ' q' or head == nonce .. ' -') and call('ZRANGE', KEYS[4], 0, 1)
local next = head and head[1]
if next then
  local found = call('HMGET', KEYS[5], next, '@' .. ARGV[1], '#h')
  local wait, duration, enqueued, process, owner =
    string.match(found[1] or '', '^(%S+) (%d+) (%d+) q (%S+) (.*)$')
  local ours = process == ARGV[1]
  if process and not found[3] and not (ours and ARGV[5]) and (wait == '-1' or enqueued + wait * 1000 > now) then
    local alive = ours and found[2] or call('HGET', KEYS[5], '@' .. process)
    if alive and tonumber(alive) >= math.floor(now / 1000) then
      -- First of all that is written, because a server that is full refuses no ZREM, and nothing after it.
      call('ZREM', KEYS[4], next)
      if head[2] then
        call('HDEL', KEYS[5], next)
      else
        call('DEL', KEYS[5])
      end
      local token, last = stamp, tonumber(call('SET', KEYS[1], stamp, 'GET')) or 0
      if last >= now then
        token = string.format('%.0f', last + 1)
        call('SET', KEYS[1], token)
      end
      local memory, bucket, topics = string.match(ARGV[2], '^(%d+) (%d+) %d+ %d+ %d+ (.*)$')
      local words = ' ' .. token .. ' ' .. enqueued .. ' ' .. stamp
      call('SET', KEYS[3], next .. ' q' .. words .. ' ' .. owner, 'PX', duration)
      call('SET', KEYS[6], next, 'PX', duration + memory)
      words = next .. words
      if ours then
        return 'held ' .. stamp .. ' ' .. words
      end
      call('PUBLISH', topics .. process, '1 ' .. bucket .. ' ' .. words)
      return 'held ' .. stamp
    end
  end
end

-- include settle.lua

-- What a grant tells of heirs. Nonces that other processes may know, or of which copies may be under
-- way, are none: what becomes of them is not this process' alone.
local function heirs(value, place, duration, found)
  local token, known = grant_of(value), tonumber(ARGV[5])
  place = tonumber(place)
  local last, add, kept = string.match(found or '', '^(%d+) (%d+) (%d+)$')
  last, add, kept = tonumber(last), tonumber(add), tonumber(kept)
  local new = not last or place > last or token ~= place + add
  if new then
    last, add, kept = place, token - place, 0
  end
  if new or known < token or known > last + add then
    known = token
  end
  local words = ' ' .. whole(known)
  local behind = call('ZRANGEBYSCORE', KEYS[4], '(' .. whole(known - add), '+inf', 'WITHSCORES',
    'LIMIT', 0, 16)
  local before = last
  if behind[1] then
    local nonces = {}
    for at = 1, #behind, 2 do
      nonces[#nonces + 1] = behind[at]
    end
    for at, asked in ipairs(call('HMGET', KEYS[5], unpack(nonces))) do
      local flag, process = string.match(asked or '', '^%S+ %d+ %d+ (%S) (%S+)')
      if flag ~= 'q' or process ~= ARGV[1] then
        break
      end
      local place = tonumber(behind[2 * at])
      words = words .. ' ' .. nonces[at] .. ' ' .. whole(place + add)
      last = math.max(last, place)
    end
  end
  if last > before and (tonumber(call('GET', KEYS[1])) or 0) < last + add then
    call('SET', KEYS[1], whole(last + add))
  end
  if last > place then
    -- The lease of who has the key now is what its heirs rely on.
    local lasts = kept >= now_ms + duration
    if not lasts then
      local longer = math.ceil(duration * 1.25)
      kept = now_ms + longer
      call('PEXPIRE', KEYS[4], longer, 'GT')
      call('PEXPIRE', KEYS[5], longer, 'GT')
    end
    if last > before or not lasts then
      call('HSET', KEYS[5], '#h', string.format('%d %.0f %.0f', last, add, kept))
    end
  end
  return words
end

-- Places for the LOCKs from `arg` on, while there is room and nothing else to be done.
local function enqueue(arg)
  local count = (#ARGV + 1 - arg) / 4
  if not value or now > tonumber(ARGV[7]) or call('EXISTS', KEYS[2]) == 1 then
    return 0
  end
  local fields = {'@' .. ARGV[1], '#m', '#'}
  for at = 0, count - 1 do
    fields[#fields + 1] = ARGV[arg + 4 * at]
  end
  local found = call('HMGET', KEYS[5], unpack(fields))
  local alive, place = found[1], tonumber(found[3]) or 0
  local most = found[2] or string.match(ARGV[2], '^%d+ %d+ %d+ (%d+)')
  local places, asked, queued = {}, {}, 0
  for at = 0, count - 1 do
    local nonce, duration, wait, owner = unpack(ARGV, arg + 4 * at, arg + 4 * at + 3)
    place = place + 1
    if found[4 + at] or place >= tonumber(most) or holder(value) == nonce then
      break
    end
    if place % 32 == 0 then
      forget_silent(3)
    end
    local text = string.format('%d', place)
    places[#places + 1] = text
    places[#places + 1] = nonce
    asked[#asked + 1] = nonce
    asked[#asked + 1] = wait .. ' ' .. duration .. ' ' .. stamp .. ' q ' .. ARGV[1] .. ' ' .. owner
    queued = queued + 1
  end
  if queued > 0 then
    call('ZADD', KEYS[4], unpack(places))
    call('HSET', KEYS[5], '#m', most, '#', places[#places - 1], unpack(asked))
    refresh(3, alive)
  end
  return queued
end

local answers, others, at_others = {now, own}, {}, {}
local held, nonces, queued = false, {nonce}
if ARGV[6] then
  local count = tonumber(ARGV[6])
  nonces = count > 0 and {nonce, unpack(ARGV, 8, 6 + count)} or {}
  local first = 7 + math.max(count, 1)
  queued = ARGV[first] and enqueue(first)
end
for at, nonce in ipairs(nonces) do
  if value and holder(value) == nonce then
    held = true
    answers[2 + at] = 'held'
  else
    others[#others + 1] = nonce
    at_others[#others] = 2 + at
  end
end
if others[1] then
  local last = tonumber(string.match(call('HGET', KEYS[5], '#h') or '', '^%d+')) or 0
  for at, place in ipairs(call('ZMSCORE', KEYS[4], unpack(others))) do
    local waited = place and (tonumber(place) <= last and 'heir' or 'waited')
    answers[at_others[at]] = waited or 'gone'
  end
  call('ZREM', KEYS[4], unpack(others))
  if not sweep(3) then
    call('HDEL', KEYS[5], unpack(others))
  end
end
if held then
  -- The next grant puts its own in their places.
  local next, place, lease, found = hand_over(3, grant_of(value))
  local flag = string.sub(value, 34, 34)
  if not next then
    call('DEL', KEYS[3], KEYS[6])
  elseif flag == 'q' and string.sub(next, 34, 34) ~= 'q' then
    call('DEL', KEYS[6])
  end
  if flag == 'c' then
    remember(holder(value), now_ms + 1 + memory_ms())
  end
  if own[1] and ARGV[5] then
    own[1] = own[1] .. heirs(next, place, lease, found)
  end
else
  settle(3)
end
if copies == 'c' then
  remember(nonce, now_ms + 1 + memory_ms())
end
if queued then
  answers[#answers + 1] = queued
  answers[#answers + 1] = remaining(3)
end
return answers
