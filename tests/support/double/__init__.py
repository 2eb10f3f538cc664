"""A stand-in for `tensorrt_llm`, made from its contract: it obeys the names and keeps the traps."""
