"""Consents, voices, and what was recorded of them."""
