"""What has to happen at once on the server, in its own language.

A script's keys are not all named beforehand, for a record names its blocks: a single server (or
one with replicas) is meant, not a cluster. Leases go by the server's clock, which all replicas see.
"""

from __future__ import annotations

BLOCK = b"trt:b:"
"""And its digest: a block's hash, of its data and the number of its holders.

`trt:r:` and an id is a record's hash, `trt:j:` a job's, `trt:f:` a stream's pieces by their last
number, and `trt:x:` the owner of an id, which stays longer than its record.
"""

_COMMON = """
local function now()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end
local function lasting(key, ttl)
  if ttl == 0 then redis.call('PERSIST', key)
  else
    local left = redis.call('PTTL', key)
    if left ~= -1 and left < ttl then redis.call('PEXPIRE', key, ttl) end
  end
end
local function kept(id)
  local owner = redis.call('HGET', 'trt:r:' .. id, 'owner')
  return owner or redis.call('HGET', 'trt:j:' .. id, 'owner')
end
local function drop(id)
  local blocks = redis.call('HGET', 'trt:r:' .. id, 'blocks')
  if not blocks then return end
  redis.call('DEL', 'trt:r:' .. id)
  for at = 1, #blocks, 20 do
    local key = 'trt:b:' .. string.sub(blocks, at, at + 19)
    if redis.call('EXISTS', key) == 1 and redis.call('HINCRBY', key, 'n', -1) <= 0 then
      redis.call('DEL', key)
    end
  end
end
local function append(id, first, count, piece, ttl)
  local key = 'trt:f:' .. id
  local last = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')
  local following = 0
  if last[2] then following = last[2] + 1 end
  if first ~= following then return end
  redis.call('ZADD', key, first + count - 1, piece)
  if ttl > 0 then redis.call('PEXPIRE', key, ttl) end
end
"""

PUT = (
    _COMMON
    + """
-- ARGV: from a job, ttl, first, count and piece of frames, then each record: id, seal, version,
--       number of blocks, number of fields' parts, digests, each block's data ('' when it is
--       thought to be here), then fields and values. The job's record is the first.
local from_job, ttl = ARGV[1], tonumber(ARGV[2])
local first, count, piece = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local records, missing, blocks, at = {}, {}, 0, 6
while ARGV[at] do
  local n, parts = tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
  local record = {id = ARGV[at], seal = ARGV[at + 1], version = tonumber(ARGV[at + 2]), n = n}
  record.digests, record.data, record.fields = at + 4, at + 4 + n, at + 5 + 2 * n
  record.last = record.fields + parts - 1
  for i = 1, n do
    local known = ARGV[record.data + i] ~= ''
    if not known and redis.call('EXISTS', 'trt:b:' .. ARGV[record.digests + i]) == 0 then
      missing[#missing + 1] = blocks + i - 1
    end
  end
  blocks = blocks + n
  records[#records + 1] = record
  at = record.last + 1
end
for i, record in ipairs(records) do
  local here = redis.call('HMGET', 'trt:r:' .. record.id, 'seal', 'version')
  if here[1] ~= record.seal then  -- else it was kept before, and nobody heard so
    if record.version > 0 and record.version ~= tonumber(here[2] or 0) + 1 then return 'gone' end
    if from_job == '1' and i == 1 then
      local till = redis.call('HGET', 'trt:j:' .. record.id, 'until')
      if not till or tonumber(till) <= now() then return 'gone' end
    end
  end
end
if #missing > 0 then return missing end
for _, record in ipairs(records) do
  for i = 1, record.n do
    local key, data = 'trt:b:' .. ARGV[record.digests + i], ARGV[record.data + i]
    local fresh = redis.call('EXISTS', key) == 0
    if fresh then redis.call('HSET', key, 'd', data) end
    redis.call('HINCRBY', key, 'n', 1)
    if fresh then
      if ttl > 0 then redis.call('PEXPIRE', key, ttl) end
    else lasting(key, ttl) end
  end
end
for _, record in ipairs(records) do
  local id = record.id
  drop(id)
  redis.call('DEL', 'trt:j:' .. id)
  redis.call('HSET', 'trt:r:' .. id, unpack(ARGV, record.fields, record.last))
  if ttl > 0 then
    redis.call('PEXPIRE', 'trt:r:' .. id, ttl)
    redis.call('SET', 'trt:x:' .. id, redis.call('HGET', 'trt:r:' .. id, 'owner'), 'PX', 2 * ttl)
  end
end
if count > 0 then append(records[1].id, first, count, piece, ttl) end
return 'kept'
"""
)

DELETE = (
    _COMMON
    + """
local id = ARGV[1]
if kept(id) ~= ARGV[2] then return 0 end
drop(id)
redis.call('DEL', 'trt:j:' .. id, 'trt:f:' .. id, 'trt:x:' .. id)
return 1
"""
)

PUT_JOB = (
    _COMMON
    + """
local id, lease, ttl = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
redis.call('HSET', 'trt:j:' .. id, 'owner', ARGV[4], 'body', ARGV[5], 'created', ARGV[6],
  'cancel', '0', 'until', now() + lease)
if ttl > 0 then
  redis.call('PEXPIRE', 'trt:j:' .. id, ttl)
  redis.call('SET', 'trt:x:' .. id, ARGV[4], 'PX', 2 * ttl)
end
return 1
"""
)

RENEW = (
    _COMMON
    + """
local key = 'trt:j:' .. ARGV[1]
local till = redis.call('HGET', key, 'until')
if not till or tonumber(till) <= now() then return 'gone' end
redis.call('HSET', key, 'until', now() + tonumber(ARGV[2]))
if ARGV[3] ~= '' then redis.call('HSET', key, 'body', ARGV[3]) end
if redis.call('HGET', key, 'cancel') == '1' then return 'cancel' end
return 'held'
"""
)

CANCEL = (
    _COMMON
    + """
local key = 'trt:j:' .. ARGV[1]
local found = redis.call('HMGET', key, 'owner', 'until')
if found[1] ~= ARGV[2] or tonumber(found[2]) <= now() then return 0 end
redis.call('HSET', key, 'cancel', '1')
return 1
"""
)

FIND = (
    _COMMON
    + """
local id = ARGV[1]
local record = redis.call('HGETALL', 'trt:r:' .. id)
if #record > 0 then return {'record', record} end
local job = redis.call('HMGET', 'trt:j:' .. id, 'owner', 'body', 'created', 'cancel', 'until')
if job[1] then
  job[5] = tonumber(job[5]) <= now() and '1' or '0'
  return {'job', job}
end
return {'gone', redis.call('GET', 'trt:x:' .. id)}
"""
)

APPEND = (
    _COMMON
    + """
if not kept(ARGV[1]) then return 0 end
append(ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5]))
return 1
"""
)

BEYOND = (
    _COMMON
    + """
if kept(ARGV[1]) ~= ARGV[2] then return {} end
local key = 'trt:f:' .. ARGV[1]
local found = redis.call('ZRANGEBYSCORE', key, '(' .. ARGV[3], '+inf')
if #found == 0 then found = redis.call('ZRANGE', key, -1, -1) end
return found
"""
)
