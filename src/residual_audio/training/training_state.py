"""A training state in one safetensors file: weights, moving average, optimiser, step.

One file, written to a temporary name and renamed: a checkpoint is all there or not there. Nothing
in it is ever unpickled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from residual_audio.errors import StoreError
from residual_audio.files import read_json_object, write_json
from residual_audio.seals import prove_document, read_sealed_arrays, sealed, write_sealed_arrays

FILE, STATE = "checkpoint.safetensors", "checkpoint.json"


def optimiser_tensors(
    optimisers: list[torch.optim.Optimizer], names: dict[int, str]
) -> dict[str, Tensor]:
    """State of every parameter under its name: `exp_avg/encoder.norm.weight` …"""
    out: dict[str, Tensor] = {}
    for optimiser in optimisers:
        for parameter, state in optimiser.state.items():
            for key, value in state.items():
                out[f"{key}/{names[id(parameter)]}"] = torch.as_tensor(value)
    return out


def restore_optimisers(
    optimisers: list[torch.optim.Optimizer], names: dict[int, str], tensors: dict[str, Tensor]
) -> None:
    by_name: dict[str, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        kind, name = key.split("/", 1)
        by_name.setdefault(name, {})[kind] = value
    for optimiser in optimisers:
        for group in optimiser.param_groups:
            for parameter in group["params"]:
                state = by_name.get(names[id(parameter)])
                if state is not None:
                    optimiser.state[parameter] = {
                        # `step` counters stay on the CPU, moments live where the weights are
                        kind: value.clone()
                        if kind == "step"
                        else value.to(parameter.device).clone()
                        for kind, value in state.items()
                    }


def save_checkpoint(
    folder: Path,
    step: int,
    module: nn.Module,
    ema: dict[str, Tensor],
    optimisers: list[torch.optim.Optimizer],
    identity: dict[str, object],
) -> None:
    """`identity` is what must be the same for a run to continue."""
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    tensors = {f"model/{key}": value for key, value in module.state_dict().items()}
    tensors |= {f"ema/{key}": value for key, value in ema.items()}
    optim = optimiser_tensors(optimisers, names)
    tensors |= {f"optimiser/{key}": value for key, value in optim.items()}
    tensors["step"] = torch.tensor(step)
    write_json(folder / STATE, sealed({"schema_version": 1, "identity": identity}))
    save_tensors(folder / FILE, tensors)


def save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Whole or not at all, whatever device they are on."""
    write_sealed_arrays(path, {key: value.detach().cpu().numpy() for key, value in tensors.items()})


def load_tensors(path: Path) -> dict[str, Tensor]:
    """What `save_tensors` wrote, proved by its digest."""
    return {
        key: torch.from_numpy(value) for key, value in read_sealed_arrays(path, StoreError).items()
    }


def load_checkpoint(
    folder: Path,
    module: nn.Module,
    ema: dict[str, Tensor],
    optimisers: list[torch.optim.Optimizer],
    identity: dict[str, object],
) -> int:
    """Put everything back and say which step comes next; 0 where there is no checkpoint."""
    if not (folder / FILE).is_file():
        return 0
    before = identity_of(folder)
    now = json.loads(json.dumps(identity))
    changed = sorted(key for key in {*before, *now} if before.get(key) != now.get(key))
    if changed:
        what = changed[0]
        raise StoreError(
            f"'{folder}' was trained with another {what}: {_short(before.get(what))}, now "
            f"{_short(now.get(what))}. Continue with the same recipe, or give another --out"
        )
    tensors = load_tensors(folder / FILE)
    parts: dict[str, dict[str, Tensor]] = {"model": {}, "ema": {}, "optimiser": {}}
    for key, value in tensors.items():
        part, _, name = key.partition("/")
        if part in parts:
            parts[part][name] = value
    module.load_state_dict(parts["model"])
    for key in ema:
        ema[key].copy_(parts["ema"][key])
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    restore_optimisers(optimisers, names, parts["optimiser"])
    return int(tensors["step"])


def identity_of(folder: Path) -> dict[str, object]:
    """What must be the same for the run in a folder to continue."""
    path = folder / STATE
    found = read_json_object(path, StoreError)
    prove_document(found, path, StoreError)
    if not isinstance(found.get("identity"), dict):
        raise StoreError(f"'{path}' says nothing of what is being trained: remove its folder")
    return found["identity"]


def averaged(folder: Path, module: nn.Module) -> bool:
    """Load the averaged weights of a checkpoint; False where there is none."""
    if not (folder / FILE).is_file():
        return False
    tensors = load_tensors(folder / FILE)
    module.load_state_dict({k[4:]: v for k, v in tensors.items() if k.startswith("ema/")})
    return True


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 120 else f"{text[:117]}…"
