"""The benchmark: voice agents that talk with a stack, and what that takes."""
