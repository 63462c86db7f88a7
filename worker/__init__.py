"""The engine room: text in, chunks of speech out, and the slow work around voices."""
