-- The tables and functions of format 1. Times are seconds since the epoch on this server's clock.
--
-- A call of a function is one transaction. Blocks belong to an owner. Who adds records of an owner
-- holds the owner's lock shared, and who removes blocks holds it alone, so that no block disappears
-- while a new record names it. Who changes a conversation holds the lock of the conversation.

CREATE TABLE trt_responses.records (
  id text PRIMARY KEY,
  owner text NOT NULL,
  body bytea NOT NULL,
  blocks bigint[] NOT NULL,
  prior_count int NOT NULL,
  input_count int NOT NULL,
  continuable bool NOT NULL,
  date text NOT NULL,
  created_at bigint NOT NULL,
  version int NOT NULL,
  vocabulary text NOT NULL,
  seal bytea NOT NULL,
  expires_at float8
);
CREATE INDEX records_by_block ON trt_responses.records USING gin (blocks);
CREATE INDEX records_by_expiry ON trt_responses.records (expires_at);
CREATE INDEX records_by_owner ON trt_responses.records (owner);

CREATE TABLE trt_responses.blocks (
  n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  owner text NOT NULL,
  digest bytea NOT NULL,
  data bytea NOT NULL,
  UNIQUE (owner, digest)
);
ALTER TABLE trt_responses.records ALTER body SET STORAGE EXTERNAL;
ALTER TABLE trt_responses.blocks ALTER data SET STORAGE EXTERNAL;

-- Blocks that a record named and no longer names: candidates for removal.
CREATE TABLE trt_responses.loose (owner text NOT NULL, block bigint NOT NULL);
CREATE INDEX loose_by_owner ON trt_responses.loose (owner);

-- Ids of records that were dropped for their age.
CREATE TABLE trt_responses.expired (
  n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id text NOT NULL UNIQUE,
  owner text NOT NULL
);

CREATE TABLE trt_responses.jobs (
  id text PRIMARY KEY,
  owner text NOT NULL,
  body bytea NOT NULL,
  created_at bigint NOT NULL,
  lease_until float8 NOT NULL,
  cancel_requested bool NOT NULL DEFAULT false,
  source bytea NOT NULL,
  model text NOT NULL,
  term int NOT NULL DEFAULT 1,
  deaths int NOT NULL DEFAULT 0,
  expires_at float8
);
CREATE INDEX jobs_by_expiry ON trt_responses.jobs (expires_at);
CREATE INDEX jobs_by_lease ON trt_responses.jobs (model, lease_until);

CREATE TABLE trt_responses.frames (
  id text NOT NULL,
  first bigint NOT NULL,
  count bigint NOT NULL,
  data bytea NOT NULL,
  ended bool NOT NULL,
  ids bytea NOT NULL,
  PRIMARY KEY (id, first)
);
ALTER TABLE trt_responses.frames ALTER data SET STORAGE EXTERNAL;

CREATE TABLE trt_responses.locks (
  id text NOT NULL,
  owner text NOT NULL,
  writer text NOT NULL,
  term int NOT NULL,
  lease_until float8 NOT NULL,
  PRIMARY KEY (id, owner)
);

CREATE FUNCTION trt_responses.now() RETURNS float8 LANGUAGE sql VOLATILE AS
  'SELECT extract(epoch FROM clock_timestamp())::float8';

-- Whether no server may take over the job any more.
CREATE FUNCTION trt_responses.is_lost(
  job trt_responses.jobs, p_takeover float8, p_deaths int
) RETURNS bool LANGUAGE sql VOLATILE AS $$
  SELECT job.lease_until + CASE WHEN job.source <> '' AND job.deaths < p_deaths THEN p_takeover
    ELSE 0 END <= trt_responses.now()
$$;

-- Remove the candidates of an owner that no record names.
CREATE FUNCTION trt_responses.tidy(p_owner text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(29298, hashtext(p_owner));
  WITH taken AS (DELETE FROM trt_responses.loose WHERE owner = p_owner RETURNING block)
  DELETE FROM trt_responses.blocks b USING (SELECT DISTINCT block FROM taken) l
    WHERE b.n = l.block
    AND NOT EXISTS (SELECT FROM trt_responses.records r WHERE r.blocks @> ARRAY[b.n]);
END $$;

-- Add frames that follow the stored ones.
CREATE FUNCTION trt_responses.add_frames(
  p_id text, p_first bigint, p_count bigint, p_data bytea, p_ended bool, p_ids bytea
) RETURNS void LANGUAGE sql AS $$
  INSERT INTO trt_responses.frames (id, first, count, data, ended, ids)
    SELECT p_id, p_first, p_count, p_data, p_ended, p_ids
    WHERE p_first = (SELECT coalesce(max(first + count), 0) FROM trt_responses.frames
                     WHERE id = p_id)
    ON CONFLICT DO NOTHING
$$;

-- Delete a record or a job with its frames. Returns whether there was one.
CREATE FUNCTION trt_responses.remove(p_id text, p_owner text) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE
  numbers bigint[];
  found_any bool;
BEGIN
  PERFORM pg_advisory_xact_lock(29298, hashtext(p_owner));
  DELETE FROM trt_responses.records WHERE id = p_id AND owner = p_owner
    AND (expires_at IS NULL OR expires_at > trt_responses.now()) RETURNING blocks INTO numbers;
  found_any := FOUND;
  INSERT INTO trt_responses.loose SELECT p_owner, b FROM unnest(numbers) AS b;
  DELETE FROM trt_responses.jobs WHERE id = p_id AND owner = p_owner;
  found_any := found_any OR FOUND;
  IF found_any THEN
    DELETE FROM trt_responses.frames WHERE id = p_id;
    PERFORM trt_responses.tidy(p_owner);
  END IF;
  RETURN found_any;
END $$;

-- Drop the old records and jobs of one owner and its blocks that no record names, and remember the
-- ids. Returns how many records it dropped, and whether to call it again.
CREATE FUNCTION trt_responses.sweep(
  p_most int, p_remembered bigint, OUT dropped bigint, OUT again bool
) LANGUAGE plpgsql AS $$
DECLARE
  at_s float8 := trt_responses.now();
  whose text;
BEGIN
  DELETE FROM trt_responses.locks WHERE lease_until <= at_s;
  SELECT owner INTO whose FROM trt_responses.records WHERE expires_at <= at_s LIMIT 1;
  IF whose IS NULL THEN
    SELECT owner INTO whose FROM trt_responses.jobs
      WHERE expires_at <= at_s AND lease_until <= at_s LIMIT 1;
  END IF;
  IF whose IS NULL THEN
    SELECT owner INTO whose FROM trt_responses.loose LIMIT 1;
  END IF;
  dropped := 0;
  again := whose IS NOT NULL;
  IF NOT again THEN RETURN; END IF;
  PERFORM pg_advisory_xact_lock(29298, hashtext(whose));
  WITH old AS (
    DELETE FROM trt_responses.records WHERE id IN (
      SELECT r.id FROM trt_responses.records r WHERE r.owner = whose AND r.expires_at <= at_s
      LIMIT p_most)
    RETURNING id, blocks
  ), freed AS (
    INSERT INTO trt_responses.loose SELECT whose, b FROM old, unnest(old.blocks) AS b
  ), left_jobs AS (
    DELETE FROM trt_responses.jobs WHERE owner = whose AND expires_at <= at_s
      AND lease_until <= at_s RETURNING id
  ), gone AS (
    SELECT id FROM old UNION SELECT id FROM left_jobs
  ), remembered AS (
    INSERT INTO trt_responses.expired (id, owner) SELECT id, whose FROM gone
    ON CONFLICT (id) DO NOTHING
  ), unheard AS (
    DELETE FROM trt_responses.frames f USING gone WHERE f.id = gone.id
  )
  SELECT count(*) INTO dropped FROM old;
  DELETE FROM trt_responses.expired
    WHERE n <= (SELECT max(n) FROM trt_responses.expired) - p_remembered;
  PERFORM trt_responses.tidy(whose);
END $$;

CREATE FUNCTION trt_responses.lock(
  p_id text, p_owner text, p_writer text, p_term int, p_lease float8
) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE
  at_s float8;
BEGIN
  PERFORM pg_advisory_xact_lock(29299, hashtext(p_id));
  at_s := trt_responses.now();
  PERFORM FROM trt_responses.locks WHERE id = p_id AND owner = p_owner AND lease_until > at_s
    AND (writer <> p_writer OR term > p_term);
  IF FOUND THEN RETURN false; END IF;
  INSERT INTO trt_responses.locks VALUES (p_id, p_owner, p_writer, p_term, at_s + p_lease)
    ON CONFLICT (id, owner) DO UPDATE SET writer = excluded.writer, term = excluded.term,
      lease_until = excluded.lease_until;
  RETURN true;
END $$;

-- Take over a job of this model whose lease has ended.
CREATE FUNCTION trt_responses.take(
  p_model text, p_lease float8, p_takeover float8, p_deaths int
) RETURNS TABLE (
  id text, owner text, body bytea, created_at bigint, cancel_requested bool, source bytea,
  term int, ids bytea, frames bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  chosen text;
BEGIN
  SELECT j.id INTO chosen FROM trt_responses.jobs j
    WHERE j.model = p_model AND j.lease_until <= trt_responses.now() AND j.source <> ''
    AND NOT trt_responses.is_lost(j, p_takeover, p_deaths)
    ORDER BY j.lease_until LIMIT 1 FOR UPDATE SKIP LOCKED;
  IF chosen IS NULL THEN RETURN; END IF;
  RETURN QUERY UPDATE trt_responses.jobs j SET term = j.term + 1, deaths = j.deaths + 1,
      lease_until = trt_responses.now() + p_lease
    WHERE j.id = chosen
    RETURNING j.id, j.owner, j.body, j.created_at, j.cancel_requested, j.source, j.term,
      (SELECT coalesce(string_agg(f.ids, '' ORDER BY f.first), '') FROM trt_responses.frames f
       WHERE f.id = chosen),
      (SELECT coalesce(max(f.first + f.count), 0) FROM trt_responses.frames f
       WHERE f.id = chosen);
END $$;

-- Add frames of a job. Returns whether the job is still of this term and not lost.
CREATE FUNCTION trt_responses.append(
  p_id text, p_term int, p_takeover float8, p_deaths int,
  p_first bigint, p_count bigint, p_data bytea, p_ended bool, p_ids bytea
) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
  PERFORM FROM trt_responses.jobs j WHERE j.id = p_id AND j.term = p_term
    AND NOT trt_responses.is_lost(j, p_takeover, p_deaths) FOR UPDATE;
  IF NOT FOUND THEN RETURN false; END IF;
  PERFORM trt_responses.add_frames(p_id, p_first, p_count, p_data, p_ended, p_ids);
  RETURN true;
END $$;
