"""Text to phoneme ids."""
