"""ElevenLabs' dialect: its two WebSockets for text that is still being written, its speech over HTTP, its voices."""
