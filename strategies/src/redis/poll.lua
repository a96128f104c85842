-- POLL: the backstop. One sign of life of the calling process for each queue, and what became of
-- its nonces.
--
-- ARGV[3] and on, for each key: how many nonces, and the nonces
--
-- Replies {text, for each key {remaining (ms) of the holder's lease, and for each nonce that does
-- not simply wait its number and what it is}}, which is one of
--   N granted NONCE TOKEN ENQUEUED GRANTED LEASE   as in the lines of grants
--   N spent                                        its lease expired, or it was withdrawn
--   N unknown                                      never seen, or dropped: queue again

local call = redis.call
-- include clock
-- include hand_off

-- include times
local own, replies = '', {''}
local at, arg = 3, 3

while at <= #KEYS do
  if call('EXISTS', KEYS[at + 1]) == 1 then
    local alive = call('HGET', KEYS[at + 2], '@' .. ARGV[1])
    -- include refresh
  end
  local value = call('GET', KEYS[at])
  -- include settle
  -- include read
  -- include remaining
  local reply = {rest or left}
  for number = 1, tonumber(ARGV[arg]) do
    local nonce = ARGV[arg + number]
    if nonce == holder then
      -- include grant_of
      local lease = math.ceil(now_ms + left - granted / 1000)
      local stamps = token .. ' ' .. enqueued .. ' ' .. granted
      reply[#reply + 1] = number .. ' granted ' .. nonce .. ' ' .. stamps .. ' ' .. lease
    elseif not call('ZSCORE', KEYS[at + 1], nonce) then
      local till = tonumber(call('ZSCORE', KEYS[2], nonce) or 0)
      reply[#reply + 1] = number .. (till > now_ms and ' spent' or ' unknown')
    end
  end
  replies[#replies + 1] = reply
  arg = arg + 1 + tonumber(ARGV[arg])
  at = at + 4
end

replies[1] = stamp .. own
return replies
