"""Cartesia's API as its SDK, LiveKit and Pipecat speak it, over our contexts and voices (docs/cartesia.md)."""
