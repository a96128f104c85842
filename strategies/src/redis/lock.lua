-- LOCK: grants, queues or refuses each of several requests.
--
-- ARGV[3]  a time of this server (µs): later, the sender's knowledge of it is too old for what is
--          remembered
-- then five for each request: nonce, duration (ms), wait (ms; 0 not at all, -1 without end),
-- "c" if copies of this LOCK may be in flight (else "-"), owner
--
-- Answers {now, own grants, an answer for each request}:
--   {'granted', token}            the key was free
--   {'again', token, remaining}   this nonce holds it already, for so many ms more
--   {'queued', remaining}         it waits; the holder's lease ends in so many ms
--   {'held', remaining}           another holds it, or is before it, and the request does not wait
--   {'spent'}                     this nonce was unlocked, withdrawn, or its lease expired
--   {'stale'}                     more dead waiters than one script drops: to be sent again at once
--   {'waiters', n} {'nonces', n}  a limit is reached
-- or {now, {}, {'stale'}}, if it is too late. Where the only request was granted with `now` as its
-- token, `now` alone; where the only request waits, "queued now remaining".

local call = redis.call
-- include clock
if now > tonumber(ARGV[3]) then
  return {now, {}, {'stale'}}
end

-- What is remembered counts four times, because it is looked at below as well.
local there = 4
if #KEYS == 6 then
  there = call('EXISTS', KEYS[3], KEYS[4], KEYS[6], KEYS[2], KEYS[2], KEYS[2], KEYS[2])
end
-- The fast path: a key that is free, with no waiters, and no nonces remembered.
if there == 0 and ARGV[7] == '-' then
  local at, nonce, flag, enqueued, duration, owner = 3, ARGV[4], '-', stamp, ARGV[5], ARGV[8]
  -- include grant
  return token == stamp and now or {now, {}, {'granted', tonumber(token)}}
end

-- include hand_over

-- Takes a place, or keeps the one it has. A repeated LOCK may lengthen the wait, and counts its
-- wait from now, so that the latest sender's deadline is right. Of two leases asked for the longer
-- is granted: each sender counts on its own. Returns whether there was room.
local function enqueue(at, nonce, duration, wait, copies, owner)
  local queue, asked, process = KEYS[at + 1], KEYS[at + 2], ARGV[1]
  local found = call('HMGET', asked, nonce, '@' .. process, '#', '#m')
  local alive, place, flag = found[2], found[3], copies == 'c' and 'c' or 'q'
  if found[1] and call('ZSCORE', queue, nonce) then
    local waits, lease, enqueued, before = string.match(found[1], '^(%S+) (%d+) (%d+) (%S)')
    if waits == '-1' then
      wait = waits
    elseif wait ~= '-1' then
      wait = math.max(wait, math.ceil((enqueued + waits * 1000 - now) / 1000))
    end
    duration = math.max(duration, lease)
    flag = before == 'c' and before or flag
  else
    local number = (place or 0) + 1
    if number >= (tonumber(found[4]) or 0) then
      -- include limits
      local room = waiters_max - call('ZCARD', queue)
      if room <= 0 then
        return false
      end
      call('HSET', asked, '#m', number + room)
    end
    place = string.format('%.0f', number)
    call('ZADD', queue, place, nonce)
    if number % 32 == 0 then
      -- Drops the next part of the signs of life that are long over: a queue that is never empty
      -- would else keep every process that ever waited. A part is more than 32 places can add.
      local cursor = call('HGET', asked, '#c') or '0'
      local over = 4 * string.match(ARGV[2], '^%d+ %d+ (%d+)')
      local part = call('HSCAN', asked, cursor, 'MATCH', '@*', 'COUNT', 256)
      for field = 1, #part[2], 2 do
        if part[2][field + 1] + over < now_ms then
          call('HDEL', asked, part[2][field])
        end
      end
      call('HSET', asked, '#c', part[1])
    end
  end
  call('HSET', asked, '#', place, nonce,
    wait .. ' ' .. duration .. ' ' .. stamp .. ' ' .. flag .. ' ' .. process .. ' ' .. owner)
  -- include refresh
  return true
end

local own = {}
local answers = {now, own}
for arg = 4, #ARGV, 5 do
  local at = 3 + (arg - 4) / 5 * 4
  local nonce, duration, wait, copies, owner = unpack(ARGV, arg, arg + 4)
  local answer
  -- include settle
  -- include read
  if holder == nonce then
    -- It holds already. Where copies are in flight its end must be remembered.
    -- include grant_of
    -- include remaining
    answer = {'again', tonumber(token), left}
    if copies == 'c' and flag ~= 'c' then
      local till = now_ms + 1 + left + string.match(ARGV[2], '^%d+')
      -- include flag_copies
      call('DEL', KEYS[at + 3])
      -- include remember
    end
  elseif there > 3 or ended == nonce then
    -- include limits
    if tonumber(call('ZSCORE', KEYS[2], nonce) or 0) > now_ms then
      answer = {'spent'}
    elseif call('ZCARD', KEYS[2]) >= nonces_max and not call('ZSCORE', KEYS[at + 1], nonce) then
      call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now_ms)
      answer = call('ZCARD', KEYS[2]) >= nonces_max and {'nonces', nonces_max}
    end
  end
  if answer then
    -- Judged.
  elseif not value and not rest then
    local flag, enqueued = copies, stamp
    -- include grant
    if copies == 'c' then
      local till = now_ms + 1 + duration + string.match(ARGV[2], '^%d+')
      -- include remember
    end
    answer = {'granted', tonumber(token)}
  elseif wait == '0' then
    -- include remaining
    answer = rest == 0 and {'stale'} or {'held', rest or left}
  elseif enqueue(at, nonce, duration, wait, copies, owner) then
    -- include remaining
    answer = {'queued', rest or left}
    if #KEYS == 6 and not own[1] then
      return 'queued ' .. stamp .. ' ' .. answer[2]
    end
  else
    -- include limits
    answer = {'waiters', waiters_max}
  end
  answers[#answers + 1] = answer
end
return answers
