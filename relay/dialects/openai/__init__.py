"""OpenAI's way to ask for speech, for voices of one's own, and for the consents that they need."""
