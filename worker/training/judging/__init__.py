"""Judging a voice: what is understood, whose voice it is, how natural it sounds, how fast it comes, and what was lost.

`python -m worker.training.judging` is the command (see :mod:`worker.training.judging.command`).
"""
