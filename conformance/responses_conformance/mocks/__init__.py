"""Mock engines: each plays transcripts on the wire of one server's engine, without weights."""
