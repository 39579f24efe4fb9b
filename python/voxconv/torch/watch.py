# SPDX-License-Identifier: Apache-2.0
"""Whether a module is still what it was when it was compiled."""

from typing import Any

from torch import nn

from voxconv.torch import modules

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
# What decides a layer and is not read at each call.
_SETTINGS = (*modules.SETTINGS, "eps", "p", "affine", "track_running_stats", "inplace")


def refuse_hooks(module: nn.Module) -> None:
    """An engine's call runs no hooks, on whatever part they are."""
    for name, part in module.named_modules():
        if any(getattr(part, kind, None) for kind in _HOOKS):
            raise NotImplementedError(f"{_where(name, part)}: hooks are not supported")


class Watch:
    """What a module is made of: its parts at all depths, their hooks, and the settings of `layers`, which
    are the names of those that run."""

    def __init__(self, module: nn.Module, layers: list[str]):
        self._module = module
        self._names, parts = zip(*module.named_modules())
        self._children = [part._modules for part in parts]
        self._then = [dict(children) for children in self._children]
        self._hooks = [getattr(part, kind) for part in parts for kind in _HOOKS if hasattr(part, kind)]
        self._layers = {name: module.get_submodule(name) for name in layers}
        # PyTorch's do not count their changes.
        self._norms = [part for part in self._layers.values() if isinstance(part, nn.BatchNorm1d)]
        self._dropouts = [part for part in self._layers.values() if isinstance(part, nn.Dropout)]
        self._numbers = self._read_numbers()
        self._settings = self._read_settings()
        self._changes = modules.Counted.changes

    def check(self) -> None:
        """NotImplementedError if the module is another than before."""
        if self._children != self._then:
            self._refuse_other_parts()
        if any(self._hooks):
            refuse_hooks(self._module)
        if self._changes != modules.Counted.changes or self._numbers != self._read_numbers():
            self._refuse_other_settings()
            self._changes = modules.Counted.changes

    def modes_differ(self) -> bool:
        """Whether some layers that do other things in training are in it, and others are not."""
        training = self._module.training
        for part in self._norms:
            if part.training is not training:
                return True
        return any(part.training is not training for part in self._dropouts)

    def _read_numbers(self) -> list[float]:
        return [part.eps for part in self._norms] + [part.p for part in self._dropouts]

    def _read_settings(self) -> dict[str, dict[str, Any]]:
        """By the names of layers, which have their settings among their own attributes."""
        return {
            name: {key: vars(part)[key] for key in _SETTINGS if key in vars(part)}
            for name, part in self._layers.items()
        }

    def _refuse_other_parts(self) -> None:
        for name, then, now in zip(self._names, self._then, self._children):
            for key in [*then, *(key for key in now if key not in then)]:
                if now.get(key) is not then.get(key):
                    raise NotImplementedError(
                        f"compile: layer '{name + '.' if name else ''}{key}' is another module than "
                        f"before, a {type(now.get(key)).__name__}; compile the module anew"
                    )

    def _refuse_other_settings(self) -> None:
        for name, now in self._read_settings().items():
            then = self._settings[name]
            for key, value in now.items():
                if value != then.get(key):
                    raise NotImplementedError(
                        f"compile: layer '{name}': {key} is {value!r} and was {then.get(key)!r}; compile "
                        "the module anew"
                    )


def _where(name: str, part: nn.Module) -> str:
    return f"layer '{name}'" if name else type(part).__name__
