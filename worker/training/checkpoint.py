"""A training run on disk: every part's state, how many steps and seconds it has had; whole or not at all."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

Parts = Mapping[str, torch.nn.Module | torch.optim.Optimizer]


def write_checkpoint(path: Path, parts: Parts, step: int, seconds: float, **more: Any) -> None:
    """Store the state of the parts under their names, and what else is told."""
    state = {name: part.state_dict() for name, part in parts.items()}
    fresh = path.with_suffix(".new")
    torch.save(state | more | {"step": step, "seconds": seconds}, fresh)
    fresh.replace(path)


def take_up(path: Path, parts: Parts) -> tuple[int, float]:
    """Bring the parts to what was stored; its steps and seconds, none when there is no checkpoint yet."""
    if not path.exists():
        return 0, 0.0
    state = torch.load(path, map_location="cpu", weights_only=True)
    for name, part in parts.items():
        part.load_state_dict(state[name])
    return int(state["step"]), float(state["seconds"])
