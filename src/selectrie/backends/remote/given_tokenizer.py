"""The vocabulary of a tokenizer that the caller gives, where a server gives none."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from selectrie.core.vocabulary import Vocabulary
from selectrie.errors import MissingExtraError, OptionError


def read_tokenizer(path: Path, n_tokens: int | None = None) -> Vocabulary:
    """Return the vocabulary of a GGUF file, or of a folder with a tokenizer.

    Args:
        path: The file, which may hold nothing but the vocabulary, or the folder of a
            tokenizer of Transformers (extra `transformers`).
        n_tokens: Number of tokens of the model, if it is known.

    Raises:
        OptionError: If there is no such path.
        ModelFileError: If it cannot be read.
        UnsupportedModelError: If it is a tokenizer of a kind that is not supported.
        MissingExtraError: If a folder's extra is not installed.
    """
    try:
        is_folder, is_file = path.is_dir(), path.is_file()
    except (OSError, ValueError):
        is_folder = is_file = False
    if is_file:
        from selectrie.backends.llama_cpp.tokenizer_file import open_vocabulary as of_file

        return of_file(path)
    if not is_folder:
        raise OptionError("tokenizer", str(path), "a folder with a tokenizer, `hf:owner/repo`, or a GGUF file")
    if find_spec("transformers") is None or find_spec("tokenizers") is None:
        raise MissingExtraError(f"the tokenizer in {path}", "transformers")
    from selectrie.backends.transformers.tokenizer_folder import open_vocabulary as of_folder

    return of_folder(path, n_tokens)
