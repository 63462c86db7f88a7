"""Envelope encryption: what is sealed, with which key, and who holds the key of that key."""
