-- UNLOCK: frees the acquisition of a nonce, whether it holds or waits, and hands the key on.
--
-- ARGV[3]  nonce
-- ARGV[4]  "c" if a LOCK of this nonce may still be under way: its end is remembered, so that the
--          LOCK grants nothing when it arrives (else "-")
--
-- Answers {now, own grants, 'held' | 'waited' | 'gone'}: what the nonce was. Or 1: it held, and nobody
-- waits. Or "held now", with the grant behind it if it is own: it held, and the next has the key.

local call = redis.call
local nonce, copies = ARGV[3], ARGV[4]
local value = call('GET', KEYS[3])

-- The shortest way.
if value and copies == '-' and string.sub(value, 1, 34) == nonce .. ' -'
  and call('EXISTS', KEYS[4]) == 0 then
  call('DEL', KEYS[3])
  return 1
end

local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local stamp = time[1] .. string.sub('00000' .. time[2], -6)

-- The next: the nonce holds, and the first in the queue gets the key: alive, and of it no copies under
-- way. As `hand_over` does it, without what that needs of the others.
local head = value and copies == '-' and string.sub(value, 1, 34)
head = head and (head == nonce .. ' q' or head == nonce .. ' -') and call('ZRANGE', KEYS[4], 0, 1)
local next = head and head[1]
if next then
  local found = call('HMGET', KEYS[5], next, '@' .. ARGV[1])
  local wait, duration, enqueued, process, owner =
    string.match(found[1] or '', '^(%S+) (%d+) (%d+) q (%S+) (.*)$')
  local ours = process == ARGV[1]
  if process and (wait == '-1' or enqueued + wait * 1000 > now) then
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

local was = 'gone'
if value and holder(value) == nonce then
  was = 'held'
  -- The next grant puts its own in their places.
  local next = hand_over(3)
  local flag = string.sub(value, 34, 34)
  if not next then
    call('DEL', KEYS[3], KEYS[6])
  elseif flag == 'q' and string.sub(next, 34, 34) ~= 'q' then
    call('DEL', KEYS[6])
  end
  if flag == 'c' then
    copies = 'c'
  end
else
  if call('ZREM', KEYS[4], nonce) == 1 then
    was = 'waited'
    if not sweep(3) then
      call('HDEL', KEYS[5], nonce)
    end
  end
  settle(3)
end
if copies == 'c' then
  remember(nonce, now_ms + 1 + memory_ms())
end
return {now, own, was}
