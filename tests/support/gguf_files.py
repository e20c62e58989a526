"""GGUF files that are changed copies of others."""

from __future__ import annotations

from pathlib import Path

import gguf

KINDS = {
    bool: gguf.GGUFValueType.BOOL,
    int: gguf.GGUFValueType.UINT32,
    float: gguf.GGUFValueType.FLOAT32,
    str: gguf.GGUFValueType.STRING,
}


def with_metadata(source: Path, target: Path, *, below: str | None = None, **extra: object) -> Path:
    """A copy of a GGUF file with more metadata; `__` stands for a dot. Keys are below the architecture, or `below`."""
    reader = gguf.GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(target, architecture)
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            writer.add_key_value(name, field.contents(), field.types[0], sub_type=field.types[-1])
    for name, value in extra.items():
        writer.add_key_value(f"{below or architecture}.{name.replace('__', '.')}", value, KINDS[type(value)])
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target
