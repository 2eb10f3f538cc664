-- From format 2 to format 1, once no block is an object.
DROP TRIGGER claim ON trt_responses.blocks;
DROP TRIGGER let_go ON trt_responses.blocks;
DROP FUNCTION trt_responses.claim();
DROP FUNCTION trt_responses.let_go();
DROP TABLE trt_responses.objects;
