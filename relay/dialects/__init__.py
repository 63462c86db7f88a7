"""Dialects: what clients of other services speak, as thin translations around the same contexts and voices."""
