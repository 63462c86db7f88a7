"""Everything that outlives a request or crosses a process."""
