"""Audio as clients want it: formats by name, and one streaming encoder a response."""
