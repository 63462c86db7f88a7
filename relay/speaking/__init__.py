"""What every door speaks by: contexts and sessions, sentences cut from text, jobs out and results in."""
