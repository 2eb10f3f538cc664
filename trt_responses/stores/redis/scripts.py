"""Atomic operations on the Redis server, in Lua.

A script does not declare all its keys, since a record names its blocks: this needs a single server
(or one with replicas), not a cluster. Leases use the Redis server's clock, which all front ends
share.
"""

from __future__ import annotations

AGAIN = "again"
"""In place of a job's term: the record replaces one of its owner and version, and keeps its age."""
BLOCK = b"trt:b:"
"""Prefix of a block's key, followed by its digest: a hash of its data and its reference count.

Other keys: `trt:r:` and an id is a record's hash, `trt:j:` a job's, `trt:i:` a job's token ids so
far, `trt:f:` a stream's pieces by their last number, `trt:l` the jobs that other servers may take
over, `trt:w:` with conversation and owner the lock's term and writer, and `trt:x:` the owner of an
id, which is kept longer than the record.
"""

COMMON = """
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
local function is_of(id, term)
  return (redis.call('HGET', 'trt:j:' .. id, 'term') or '1') == term
end
local function forget(id)
  redis.call('DEL', 'trt:j:' .. id, 'trt:i:' .. id)
  redis.call('ZREM', 'trt:l', id)
end
local function has_lease(id, term)
  local till = redis.call('HGET', 'trt:j:' .. id, 'until')
  return till and tonumber(till) > now() and is_of(id, term)
end
local function lost(id, takeover, deaths)
  local job = redis.call('HMGET', 'trt:j:' .. id, 'until', 'source', 'deaths')
  local waits = tonumber(takeover)
  if (job[2] or '') == '' or tonumber(job[3] or 0) >= tonumber(deaths) then waits = 0 end
  return tonumber(job[1]) + waits <= now()
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
  if first ~= following then return false end
  redis.call('ZADD', key, first + count - 1, piece)
  if ttl > 0 then redis.call('PEXPIRE', key, ttl) end
  return true
end
"""
"""The functions of the scripts: each script stands behind them."""

PUT = """
-- ARGV: the job's term or '', ttl, first, count and piece of frames, the key of the last record's
--       lock and its value or '', then each record: id, seal, version, number of blocks, number of
--       field arguments, digests, each block's data ('' if it is probably stored), then fields and
--       values. The job's record is first, a conversation last.
local from_job, ttl = ARGV[1], tonumber(ARGV[2])
local first, count, piece = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local lock, holder = ARGV[6], ARGV[7]
local records, missing, blocks, at = {}, {}, 0, 8
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
if from_job == 'again' then
  local key, fields = 'trt:r:' .. records[1].id, {}
  for i = records[1].fields, records[1].last, 2 do fields[ARGV[i]] = ARGV[i + 1] end
  local here = redis.call('HMGET', key, 'owner', 'version')
  if here[1] ~= fields.owner or tonumber(here[2] or 0) ~= records[1].version then return 'gone' end
  ttl = math.max(redis.call('PTTL', key), 0)
end
for i, record in ipairs(records) do
  local here = redis.call('HMGET', 'trt:r:' .. record.id, 'seal', 'version')
  -- else it was stored before, and the reply was lost
  if here[1] ~= record.seal and from_job ~= 'again' then
    if record.version > 0 then
      local held = redis.call('GET', lock)
      if held and held ~= holder then return 'gone' end
      if record.version ~= tonumber(here[2] or 0) + 1 then return 'gone' end
    end
    if from_job ~= '' and i == 1 and not has_lease(record.id, from_job) then return 'gone' end
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
  forget(id)
  redis.call('HSET', 'trt:r:' .. id, unpack(ARGV, record.fields, record.last))
  if ttl > 0 then
    redis.call('PEXPIRE', 'trt:r:' .. id, ttl)
    redis.call('SET', 'trt:x:' .. id, redis.call('HGET', 'trt:r:' .. id, 'owner'), 'PX', 2 * ttl)
  end
end
if count > 0 then append(records[1].id, first, count, piece, ttl) end
if holder ~= '' and redis.call('GET', lock) == holder then redis.call('DEL', lock) end
return 'kept'
"""

LOCK = """
local key, term, writer, lease = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local held = redis.call('GET', key)
if held then
  local its_term, its_writer = string.match(held, '^(%d+) (.*)$')
  if its_writer ~= writer or tonumber(its_term) > tonumber(term) then return 0 end
end
redis.call('SET', key, term .. ' ' .. writer, 'PX', lease)
return 1
"""

RENEW_LOCK = """
if redis.call('GET', ARGV[1]) ~= ARGV[2] then return 0 end
return redis.call('PEXPIRE', ARGV[1], ARGV[3])
"""

UNLOCK = """
if redis.call('GET', ARGV[1]) ~= ARGV[2] then return 0 end
return redis.call('DEL', ARGV[1])
"""

DELETE = """
local id = ARGV[1]
if kept(id) ~= ARGV[2] then return 0 end
drop(id)
forget(id)
redis.call('DEL', 'trt:f:' .. id, 'trt:x:' .. id)
return 1
"""

PUT_JOB = """
local id, lease, ttl = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
redis.call('HSET', 'trt:j:' .. id, 'owner', ARGV[4], 'body', ARGV[5], 'created', ARGV[6],
  'cancel', '0', 'until', now() + lease, 'source', ARGV[7], 'model', ARGV[8], 'term', '1',
  'deaths', '0')
if ARGV[7] ~= '' then redis.call('ZADD', 'trt:l', now() + lease, id) end
if ttl > 0 then
  redis.call('PEXPIRE', 'trt:j:' .. id, ttl)
  redis.call('SET', 'trt:x:' .. id, ARGV[4], 'PX', 2 * ttl)
end
return 1
"""

RENEW = """
local key = 'trt:j:' .. ARGV[1]
if not has_lease(ARGV[1], ARGV[4]) then return 'gone' end
redis.call('HSET', key, 'until', now() + tonumber(ARGV[2]))
if ARGV[3] ~= '' then redis.call('HSET', key, 'body', ARGV[3]) end
if redis.call('HGET', key, 'cancel') == '1' then return 'cancel' end
return 'held'
"""

CANCEL = """
local key = 'trt:j:' .. ARGV[1]
if redis.call('HGET', key, 'owner') ~= ARGV[2] then return 0 end
if lost(ARGV[1], ARGV[3], ARGV[4]) then return 0 end
redis.call('HSET', key, 'cancel', '1')
return 1
"""

TAKE = """
-- `trt:l` orders jobs by the end of their lease; the lease may have been renewed since.
local model, lease = ARGV[1], tonumber(ARGV[2])
for _, id in ipairs(redis.call('ZRANGEBYSCORE', 'trt:l', '-inf', now(), 'LIMIT', 0, 64)) do
  local key = 'trt:j:' .. id
  local job = redis.call('HMGET', key, 'until', 'model')
  if not job[1] or lost(id, ARGV[3], ARGV[4]) then redis.call('ZREM', 'trt:l', id)
  elseif tonumber(job[1]) > now() then redis.call('ZADD', 'trt:l', job[1], id)
  elseif job[2] == model then
    redis.call('HINCRBY', key, 'term', 1)
    redis.call('HINCRBY', key, 'deaths', 1)
    redis.call('HSET', key, 'until', now() + lease)
    redis.call('ZADD', 'trt:l', now() + lease, id)
    local last = redis.call('ZRANGE', 'trt:f:' .. id, -1, -1, 'WITHSCORES')
    local found = redis.call('HMGET', key, 'owner', 'body', 'created', 'cancel', 'source', 'term')
    found[7] = redis.call('GET', 'trt:i:' .. id) or ''
    found[8] = last[2] and tostring(last[2] + 1) or '0'
    return {id, found}
  end
end
return false
"""

LEAVE = """
local key = 'trt:j:' .. ARGV[1]
if not has_lease(ARGV[1], ARGV[2]) then return 0 end
redis.call('HSET', key, 'until', now())
redis.call('HINCRBY', key, 'deaths', -1)
if ARGV[3] == '1' then redis.call('ZADD', 'trt:l', now(), ARGV[1])
else redis.call('HSET', key, 'source', '') end
return 1
"""

FIND = """
local id, owner = ARGV[1], ARGV[2]
if kept(id) ~= owner then return {'gone', redis.call('GET', 'trt:x:' .. id) == owner} end
local record = redis.call('HGETALL', 'trt:r:' .. id)
if #record > 0 then return {'record', record} end
local job = redis.call('HMGET', 'trt:j:' .. id, 'body', 'created', 'cancel')
job[4] = lost(id, ARGV[3], ARGV[4]) and '1' or '0'
return {'job', job}
"""

APPEND = """
local id, ttl = ARGV[1], tonumber(ARGV[5])
if redis.call('EXISTS', 'trt:j:' .. id) == 0 or not is_of(id, ARGV[6]) then return 0 end
if lost(id, ARGV[8], ARGV[9]) then return 0 end
if append(id, tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], ttl) and ARGV[7] ~= '' then
  redis.call('APPEND', 'trt:i:' .. id, ARGV[7])
  if ttl > 0 then redis.call('PEXPIRE', 'trt:i:' .. id, ttl) end
end
return 1
"""

BEYOND = """
if kept(ARGV[1]) ~= ARGV[2] then return {} end
local key = 'trt:f:' .. ARGV[1]
local found = redis.call('ZRANGEBYSCORE', key, '(' .. ARGV[3], '+inf')
if #found == 0 then found = redis.call('ZRANGE', key, -1, -1) end
return found
"""
