"""A second back end for the table: files that begin with "TOY", and hashed rows.

It shows what a new back end needs, which is its entry and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from selectrie.backends.entry import Backend
from selectrie.backends.llama_cpp_entry import LLAMA_CPP
from selectrie.core.types import ModelIdentity, Precision
from selectrie.options import at_least, one_of
from selectrie.testing import HashModel

MAGIC = b"TOY"


@dataclass(frozen=True, slots=True)
class ToyOptions:
    """No option of llama.cpp but the two that every back end has, and one of its own."""

    precision: str = "exact"
    verbose: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        one_of("precision", self.precision, tuple(p.value for p in Precision))
        at_least("seed", self.seed, 0, optional=False)


class ToyModel(HashModel):
    """A fake model that says which back end it belongs to."""

    @property
    def identity(self) -> ModelIdentity:
        return replace(super().identity, backend="toy", build="toy 1")


def file(folder: Path) -> Path:
    """A file that the toy back end opens; its name says nothing."""
    path = folder / "model"
    path.write_bytes(MAGIC + b" model")
    return path


def _recognises(source: object) -> bool:
    try:
        return isinstance(source, Path) and source.read_bytes().startswith(MAGIC)
    except (OSError, ValueError):
        return False


TOY = Backend(
    name="toy",
    opens="a file of toys",
    packages=MappingProxyType({"numpy": "numpy", "pytest": "pytest"}),
    extra=None,
    suffix=".toy",
    recognises=_recognises,
    options_type=lambda: ToyOptions,
    open_model=lambda _source, options: ToyModel(options.seed),
    check_key=lambda model, _source, options: f"{model.identity.digest}|{options.precision}",
    memory_needed=lambda path, _options: path.stat().st_size,
    digest=lambda path: f"toy:{path.stat().st_size}",
    parts=lambda name: [name],
    folder_files=lambda _name, _names: [],
    less_memory="open a smaller toy",
    trial=None,
)
TABLE = (LLAMA_CPP, TOY)
