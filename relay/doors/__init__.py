"""What every door has alike: one client's contexts, the socket or the answer that carries them, and who is let in."""
