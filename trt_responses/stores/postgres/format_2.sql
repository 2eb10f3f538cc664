-- Format 2: the data of a large block may be an object of an object store. `data` is then a mark of
-- four bytes, which begins no packed block, and the object's key, which is used once.

-- Objects that no block names: uploads that are not committed yet, and those to be deleted. What is
-- doomed can no longer be committed.
CREATE TABLE trt_responses.objects (
  key text PRIMARY KEY,
  since float8 NOT NULL,
  doomed bool NOT NULL DEFAULT false
);

CREATE FUNCTION trt_responses.claim() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM trt_responses.objects
    WHERE key = convert_from(substr(NEW.data, 5), 'UTF8') AND NOT doomed;
  IF NOT FOUND THEN RAISE EXCEPTION 'an upload was deleted before its block was stored'; END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER claim AFTER INSERT ON trt_responses.blocks FOR EACH ROW
  WHEN (substr(NEW.data, 1, 4) = '\x00000080') EXECUTE FUNCTION trt_responses.claim();

CREATE FUNCTION trt_responses.let_go() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO trt_responses.objects (key, since)
    VALUES (convert_from(substr(OLD.data, 5), 'UTF8'), trt_responses.now());
  RETURN NULL;
END $$;
CREATE TRIGGER let_go AFTER DELETE OR UPDATE OF data ON trt_responses.blocks FOR EACH ROW
  WHEN (substr(OLD.data, 1, 4) = '\x00000080') EXECUTE FUNCTION trt_responses.let_go();

-- As before, and needs no room: a full disk is emptied by it.
CREATE OR REPLACE FUNCTION trt_responses.remove(
  p_id text, p_owner text
) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE
  numbers bigint[];
  found_any bool;
BEGIN
  PERFORM pg_advisory_xact_lock(29298, hashtext(p_owner));
  DELETE FROM trt_responses.records WHERE id = p_id AND owner = p_owner
    AND (expires_at IS NULL OR expires_at > trt_responses.now()) RETURNING blocks INTO numbers;
  found_any := FOUND;
  DELETE FROM trt_responses.jobs WHERE id = p_id AND owner = p_owner;
  found_any := found_any OR FOUND;
  IF found_any THEN
    DELETE FROM trt_responses.frames WHERE id = p_id;
    DELETE FROM trt_responses.blocks b WHERE b.n = ANY(numbers)
      AND NOT EXISTS (SELECT FROM trt_responses.records r WHERE r.blocks @> ARRAY[b.n]);
  END IF;
  RETURN found_any;
END $$;
