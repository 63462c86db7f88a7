"""From an uploaded file to a voice: what happens between a tenant's bytes and a stored reference recording."""
