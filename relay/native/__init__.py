"""The native protocol: its messages and frames, and the WebSocket that carries them."""
