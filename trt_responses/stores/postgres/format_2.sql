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
