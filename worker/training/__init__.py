"""How the models of a bundle are made and judged. Needs the `training` extra; nothing in service imports it."""
