"""Real servers on real weights: llama-server, built by `tools/llama_server.py`, and llama_cpp.server."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import gguf
import pytest

pytest.importorskip("httpx2", reason="needs the extra 'remote'")

import httpx2

import llama_server
import selectrie
from selectrie.backends.remote.transport import Transport
from selectrie.backends.remote.vocabulary import read_tokenizer
from selectrie.errors import ServerError
from tests.support.real_data import real_file

CLOSE_NATS = 1e-3
EXACT = ("-fa", "off", "-ctk", "f32", "-ctv", "f32")
PLACES = ("park", "store", "moon", "shower", "house", "big tree", "river", "garden", "school", "beach", "farm", "zoo")
PROMPTS = [
    f"Once upon a time there was a {size} {who}. {name} went to the"
    for size in ("little", "big", "happy", "sad", "small")
    for who in ("girl", "boy", "dog", "bird")
    for name in ("Tom", "Lily", "The mother", "Max", "Ben", "Mia", "Sue", "A cat", "He", "She")
]
"""200 questions."""


def weights() -> Path:
    """stories260K, whose weights are float32 and whose prompts begin with BOS."""
    return real_file("weights/stories260K.gguf")


def without_bos(path: Path) -> Path:
    """A copy whose prompts begin without BOS."""
    copy = path
    reader = gguf.GGUFReader(copy, "r+")
    field = reader.fields["tokenizer.ggml.add_bos_token"]
    field.parts[field.data[0]][:] = False
    reader.data.flush()
    return copy


def answers(url: str) -> bool:
    """Does a server list its models, as it does once they are loaded?"""
    try:
        with httpx2.Client(timeout=2, trust_env=False) as client:
            return client.get(f"{url}/v1/models").status_code == 200
    except httpx2.TransportError:
        return False


@contextmanager
def started(command: list[str], log: Path) -> Iterator[str]:
    """Run a server until it answers; yields its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with log.open("wb") as output:
        process = subprocess.Popen([*command, "--port", str(port)], stdout=output, stderr=subprocess.STDOUT)
        try:
            while True:
                assert process.poll() is None, log.read_text()[-2000:]
                if answers(url):
                    break
            yield url
        finally:
            process.terminate()
            process.wait(30)


def llama_server_on(path: Path, *options: str) -> list[str]:
    """The command of a llama-server with one slot."""
    program = llama_server.program()
    if not program.exists():
        pytest.skip("needs llama-server: python tools/llama_server.py")
    return [str(program), "-m", str(path), "-c", "512", "-np", "1", "-t", "1", *options]


def llama_cpp_server_on(path: Path) -> list[str]:
    """The command of llama_cpp.server with values of echoes, and a cache in float32."""
    if find_spec("sse_starlette") is None or find_spec("starlette_context") is None:
        pytest.skip("needs the extra 'test-clients': llama-cpp-python[server]")
    options = {"model": path, "n_ctx": 512, "n_threads": 1, "logits_all": "true", "type_k": 0, "type_v": 0}
    named = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    return [sys.executable, "-m", "llama_cpp.server", *named]


def compared(url: str, path: Path, close: float, terminators: Sequence[str] = ()) -> int:
    """How many of the 200 questions have a margin above `close`; their winners are equal, and all values close."""
    choices, n_clear = [f" {place}" for place in PLACES], 0
    with selectrie.connect(url, tokenizer=path) as llm, selectrie.load(path, n_ctx=512, n_threads=1) as local:
        close = max(close, llm.tolerance)
        for prompt in PROMPTS:
            found, own = llm.select(prompt, choices), local.select(prompt, choices)
            worst = max(abs(a.logp - b.logp) for a, b in zip(found.choices, own.choices, strict=True))
            assert worst <= close, (prompt, worst)
            if own.margin > 2 * close:
                n_clear += 1
                assert found.text == own.text
        for terminator in terminators:  # the end of a generation is a token without a text
            found, own = (one.rank(PROMPTS[0], choices, terminator=terminator) for one in (llm, local))
            assert found.text == own.text
            assert abs(found.logp - own.logp) <= close
    return n_clear


@pytest.mark.long
def test_llama_server_is_within_a_thousandth(tmp_path, record_property):
    """Where its cache is in float32: the same winners on 200 questions whose margin exceeds that."""
    path = weights()
    with started(llama_server_on(path, *EXACT), tmp_path / "log") as url:
        n_clear = compared(url, path, CLOSE_NATS, ["eog"])
    record_property("questions", n_clear)
    assert n_clear > 190


@pytest.mark.long
@pytest.mark.parametrize("bos", [True, False], ids=["bos", "no bos"])
def test_llama_cpp_server_is_within_a_thousandth(tmp_path, bos):
    """With BOS its echo is right; without it, it is off by one, and refused as such."""
    path = weights()
    if not bos:
        path = without_bos(Path(shutil.copy(path, tmp_path / "m.gguf")))
    with started(llama_cpp_server_on(path), tmp_path / "log") as url:
        if bos:
            assert compared(url, path, CLOSE_NATS) > 190
        else:
            with pytest.raises(ServerError, match="off by one"):
                selectrie.connect(url, tokenizer=path)


@pytest.mark.long
def test_what_64_labels_cost_llama_server(tmp_path, monkeypatch):
    """Rows that it evaluates, requests and bytes, beside the rows and inner nodes of an engine here."""
    path = weights()
    lines = real_file("labels/banking77_labels.txt").read_text().splitlines()[:64]
    labels = [" " + line.replace("_", " ") for line in lines]
    evaluated, post = [], Transport.post

    async def counted(self, where, body, **limits):
        answer = await post(self, where, body, **limits)
        if where == "/completion":
            evaluated.append((answer["timings"]["prompt_n"].whole(), self.n_bytes))
        return answer

    monkeypatch.setattr(Transport, "post", counted)
    with (
        started(llama_server_on(path, *EXACT), tmp_path / "log") as url,
        selectrie.connect(url, tokenizer=path) as llm,
        selectrie.load(path, n_ctx=2048, n_threads=1) as local,
    ):
        prompt, search = "The customer wants to know about the", selectrie.SearchParams(method="exhaustive")
        evaluated.clear()
        found, own = llm.select(prompt, labels, search=search), local.select(prompt, labels, search=search)
    assert found.text == own.text
    assert len(evaluated) <= 1.5 * own.certificate.nodes_inner
    assert sum(rows for rows, _ in evaluated) <= 1.1 * own.cost.rows
    assert evaluated[-1][1] <= 20_000_000


def spelled(client: httpx2.Client, n_tokens: int) -> list[bytes]:
    """Bytes of all tokens as llama-server spells them, control tokens by name."""
    found = []
    for start in range(0, n_tokens, 8192):
        body = {"content": list(range(start, min(start + 8192, n_tokens))), "with_pieces": True}
        for entry in client.post("/tokenize", json=body).json()["tokens"]:
            piece = entry["piece"]
            found.append(piece.encode() if isinstance(piece, str) else bytes(piece))
    return found


def flat_row(client: httpx2.Client, n_tokens: int, start: int, *, ignore_eos: bool) -> dict[int, float]:
    """Probabilities at a high temperature, with or without the tokens that end a generation."""
    body = {"prompt": [start], "n_predict": 1, "n_probs": n_tokens, "post_sampling_probs": True, "seed": 1}
    answer = client.post(
        "/completion", json={**body, "ignore_eos": ignore_eos, "samplers": ["temperature"], "temperature": 1e4}
    ).json()
    return {entry["id"]: entry["prob"] for entry in answer["completion_probabilities"][0]["top_probs"]}


def told(url: str, start: int) -> dict[str, object]:
    """All that llama-server says of its vocabulary: tokens, ends, and texts with and without control spellings."""
    with httpx2.Client(base_url=url, timeout=60, trust_env=False) as client:
        (entry,) = client.get("/v1/models").json()["data"]
        n_tokens, pieces = entry["meta"]["n_vocab"], spelled(client, entry["meta"]["n_vocab"])
        texts = [piece.decode() for piece in pieces if is_text(piece)]
        return {
            "props": {**client.get("/props").json(), "media_marker": "random"},
            "meta": entry["meta"],
            "pieces": pieces,
            "rows": [flat_row(client, n_tokens, start, ignore_eos=ignored) for ignored in (False, True)],
            "text": client.post("/detokenize", json={"tokens": list(range(n_tokens))}).text,
            "tokens": [
                client.post("/tokenize", json={"content": content, "parse_special": parsed, "add_special": parsed}).text
                for content in (texts, "".join(texts))
                for parsed in (False, True)
            ],
        }


def is_text(piece: bytes) -> bool:
    try:
        return bool(piece.decode())
    except UnicodeDecodeError:
        return False


def edited(path: Path, token: int, kind: int, letter: bytes) -> None:
    """Give a token of a GGUF file a kind, and as its text one letter repeated, unless that is empty."""
    reader = gguf.GGUFReader(path, "r+")
    kinds, texts = (reader.fields[f"tokenizer.ggml.{name}"] for name in ("token_type", "tokens"))
    kinds.parts[kinds.data[token]][:] = kind
    if letter:
        texts.parts[texts.data[token]][:] = letter[0]
    reader.data.flush()


UNKNOWN, CONTROL, UNUSED = gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.UNUSED


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "token", "changes"),
    [
        ("stories260K", 0, [(UNKNOWN, b""), (CONTROL, b"")]),
        ("embedded", 2, [(CONTROL, b""), (UNKNOWN, b"")]),
        ("stories260K", 400, [(UNUSED, b"x"), (UNUSED, b"y")]),
    ],
    ids=["unk", "im_start", "unused"],
)
def test_what_llama_server_does_not_tell(tmp_path, embedded, name, token, changes):
    """Two files whose vocabularies differ get the same answers, so no reading of them can tell which one is served."""
    answers, digests, path = [], [], tmp_path / "m.gguf"
    for kind, letter in changes:
        path.unlink(missing_ok=True)
        shutil.copyfile(embedded if name == "embedded" else weights(), path)
        edited(path, token, kind, letter)
        vocabulary = read_tokenizer(path)
        digests.append(vocabulary.digest)
        with started(llama_server_on(path), tmp_path / "log") as url:
            answers.append(told(url, vocabulary.start))
    assert digests[0] != digests[1]
    assert answers[0] == answers[1]


@pytest.mark.long
@pytest.mark.parametrize("name", ["stories260K.gguf", "random_real_vocab/random-qwen2.gguf", "embedded"])
def test_what_llama_server_tells(tmp_path, embedded, record_property, name):
    """The bytes of each token that has a text, and the tokens that end a generation."""
    path = embedded if name == "embedded" else real_file(f"weights/{name}")
    own = read_tokenizer(path)
    with (
        started(llama_server_on(path), tmp_path / "log") as url,
        httpx2.Client(base_url=url, timeout=60, trust_env=False) as client,
    ):
        pieces = spelled(client, own.n_tokens)
        row, without = (flat_row(client, own.n_tokens, own.start, ignore_eos=ignored) for ignored in (False, True))
    assert [a for a, b in zip(pieces, own.pieces, strict=True) if b] == [b for b in own.pieces if b]
    assert sorted(token for token in row if row[token] and not without.get(token)) == own.eog.tolist()
    record_property("tokens", own.n_tokens)
