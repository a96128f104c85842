-- POLL: the backstop. A sign of life of the calling process, and what became of its nonces.
--
-- ARGV[3] and on: the nonces
--
-- Replies {"now remaining", ...}, the remaining lease of the holder (ms), and for each nonce that
-- does not simply wait one of
--   N granted NONCE TOKEN ENQUEUED GRANTED LEASE   as in the lines of grants
--   N spent                                        its lease expired, or it was withdrawn
--   N unknown                                      never seen, or dropped: queue again

local call = redis.call
-- include clock
-- include hand_off

if call('EXISTS', KEYS[4]) == 1 then
  -- include settings
  local alive = call('HGET', KEYS[5], '@' .. ARGV[1])
  -- include heartbeat
end
local own, value = '', call('GET', KEYS[3])
-- include settle
local holder = value and string.sub(value, 1, 32)
-- include remaining
local reply = {stamp .. ' ' .. (rest or left) .. own}
for number = 1, #ARGV - 2 do
  local nonce = ARGV[number + 2]
  if nonce == holder then
    -- include grant_of
    local lease = math.ceil(now_ms + left - granted / 1000)
    local stamps = token .. ' ' .. enqueued .. ' ' .. granted
    reply[#reply + 1] = number .. ' granted ' .. nonce .. ' ' .. stamps .. ' ' .. lease
  elseif not call('ZSCORE', KEYS[4], nonce) then
    local till = tonumber(call('ZSCORE', KEYS[2], nonce) or 0)
    reply[#reply + 1] = number .. (till > now_ms and ' spent' or ' unknown')
  end
end
return reply
