"""Serving side of the base voice: speaker encoder, synthesizer, vocoder and the bundle that holds them."""
