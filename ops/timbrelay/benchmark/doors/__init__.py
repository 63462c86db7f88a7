"""The same sentences through every door: how much later each lets the first sound out than the native one."""
