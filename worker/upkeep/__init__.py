"""The periodic work: what has to be done again and again, although nobody asks for it."""
