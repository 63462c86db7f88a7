"""From nothing to a bundle: a table of stages, each a few processes that can be killed and taken up again."""
