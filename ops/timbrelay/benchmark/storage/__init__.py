"""How long storage takes when it holds many voices."""
