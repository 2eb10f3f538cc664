-- A start of a server renews this function where it is another one, in any format: its arguments
-- stay as they are.
--
-- Its plans are made while the tables are empty, and kept for as long as a connection lasts. Each
-- block is looked up by itself and the earliest end by its index, so that no plan reads a table.

-- Store records of an owner at once. The record of a job (of `p_term`) is the first, and a
-- conversation (locked by `p_writer`) the last. `p_data` is NULL for a block that is probably
-- stored. The status is `kept`, `gone`, or `missing` with the places of the blocks to send; `sweep`
-- says that there is something to drop.
CREATE OR REPLACE FUNCTION trt_responses.put(
  p_owner text, p_age float8, p_term int, p_writer text, p_writer_term int,
  p_ids text[], p_bodies bytea[], p_seals bytea[], p_priors int[], p_inputs int[],
  p_continuable bool[], p_dates text[], p_created bigint[], p_versions int[],
  p_vocabularies text[], p_counts int[], p_digests bytea[], p_data bytea[],
  p_first bigint, p_count bigint, p_frames bytea, p_ended bool, p_frame_ids bytea,
  OUT status text, OUT places bigint[], OUT numbers bigint[], OUT sweep bool
) LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
  at_s float8;
  start int := 0;
  stored record;
  own bigint[];
  freed bigint;
BEGIN
  sweep := false;
  status := 'gone';
  PERFORM pg_advisory_xact_lock_shared(29298, hashtext(p_owner));
  FOR k IN 1 .. cardinality(p_ids) LOOP
    IF p_versions[k] > 0 THEN
      PERFORM pg_advisory_xact_lock(29299, hashtext(p_ids[k]));
    END IF;
  END LOOP;
  at_s := trt_responses.now();
  FOR k IN 1 .. cardinality(p_ids) LOOP
    SELECT r.seal, r.version INTO stored FROM trt_responses.records r
      WHERE r.id = p_ids[k] AND r.owner = p_owner;
    CONTINUE WHEN stored.seal = p_seals[k];  -- stored before, and the reply was lost
    IF p_versions[k] > 0 THEN
      IF p_versions[k] <> coalesce(stored.version, 0) + 1 THEN RETURN; END IF;
      PERFORM FROM trt_responses.locks l
        WHERE l.id = p_ids[k] AND l.owner = p_owner AND l.lease_until > at_s
        AND (l.writer, l.term) IS DISTINCT FROM (p_writer, p_writer_term);
      IF FOUND THEN RETURN; END IF;
    END IF;
    IF p_term IS NOT NULL AND k = 1 THEN
      PERFORM FROM trt_responses.jobs j
        WHERE j.id = p_ids[k] AND j.term = p_term AND j.lease_until > at_s FOR UPDATE;
      IF NOT FOUND THEN RETURN; END IF;
    END IF;
  END LOOP;

  SELECT array_agg(g.place - 1 ORDER BY g.place) INTO places
    FROM unnest(p_digests, p_data) WITH ORDINALITY AS g(digest, data, place)
    WHERE g.data IS NULL AND (SELECT b.n FROM trt_responses.blocks b
      WHERE b.owner = p_owner AND b.digest = g.digest) IS NULL;
  IF places IS NOT NULL THEN
    status := 'missing';
    RETURN;
  END IF;
  INSERT INTO trt_responses.blocks (owner, digest, data)
    SELECT DISTINCT ON (g.digest) p_owner, g.digest, g.data
    FROM unnest(p_digests, p_data) AS g(digest, data)
    WHERE g.data IS NOT NULL ORDER BY g.digest ON CONFLICT DO NOTHING;
  SELECT array_agg((SELECT b.n FROM trt_responses.blocks b
      WHERE b.owner = p_owner AND b.digest = g.digest) ORDER BY g.place) INTO numbers
    FROM unnest(p_digests) WITH ORDINALITY AS g(digest, place);

  FOR k IN 1 .. cardinality(p_ids) LOOP
    own := numbers[start + 1 : start + p_counts[k]];
    start := start + p_counts[k];
    INSERT INTO trt_responses.loose (owner, block)
      SELECT r.owner, b FROM trt_responses.records r, unnest(r.blocks) AS b WHERE r.id = p_ids[k]
      EXCEPT SELECT p_owner, b FROM unnest(own) AS b;
    GET DIAGNOSTICS freed = ROW_COUNT;
    sweep := sweep OR freed > 0;
    INSERT INTO trt_responses.records (id, owner, body, blocks, prior_count, input_count,
        continuable, date, created_at, version, vocabulary, seal, expires_at)
      VALUES (p_ids[k], p_owner, p_bodies[k], own, p_priors[k], p_inputs[k], p_continuable[k],
        p_dates[k], p_created[k], p_versions[k], p_vocabularies[k], p_seals[k], at_s + p_age)
      ON CONFLICT (id) DO UPDATE SET owner = excluded.owner, body = excluded.body,
        blocks = excluded.blocks, prior_count = excluded.prior_count,
        input_count = excluded.input_count, continuable = excluded.continuable,
        date = excluded.date, created_at = excluded.created_at, version = excluded.version,
        vocabulary = excluded.vocabulary, seal = excluded.seal, expires_at = excluded.expires_at;
    DELETE FROM trt_responses.jobs WHERE id = p_ids[k];
    DELETE FROM trt_responses.expired WHERE id = p_ids[k];
  END LOOP;
  IF p_writer IS NOT NULL THEN
    DELETE FROM trt_responses.locks WHERE id = p_ids[cardinality(p_ids)] AND owner = p_owner
      AND writer = p_writer AND term = p_writer_term;
  END IF;
  IF p_first IS NOT NULL THEN
    PERFORM trt_responses.add_frames(p_ids[1], p_first, p_count, p_frames, p_ended, p_frame_ids);
  END IF;
  IF NOT sweep THEN
    sweep := coalesce((SELECT min(expires_at) FROM trt_responses.records) <= at_s, false);
  END IF;
  status := 'kept';
END $$;
