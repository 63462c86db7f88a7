"""The doors: connections, contexts, sentences, protocols."""
