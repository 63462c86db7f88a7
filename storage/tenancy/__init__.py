"""Tenants: their keys, limits and usage."""
