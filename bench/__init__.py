"""Times the server against the floor: the least that any server of the same frames must spend."""
