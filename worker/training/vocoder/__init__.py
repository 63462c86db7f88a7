"""Training of the vocoder network on the parts of speech: F0, harmonic envelope and noise envelope."""
