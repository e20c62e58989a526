"""Bodies of requests: their encodings, cut anywhere, and their JSON, whatever it holds."""

from __future__ import annotations

import gzip
import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("fastapi", reason="needs the extra 'server'")

from selectrie.server import ServerOptions, app
from selectrie.server.options import MAX_DEPTH
from selectrie.server.transport.body import MAX_CONTAINERS, decompress, parse_object
from selectrie.server.transport.http_errors import HttpError
from tests.support.deciding import fake
from tests.support.serving import ask

OPTIONS = ServerOptions(max_body_bytes=100_000, max_depth=4)
BODY = {"input": "A body that is longer than its frames. " * 9, "n": [1, 2.5, None]}
DATA = json.dumps(BODY).encode()


def zstd(data: bytes, *, sized: bool = True) -> bytes:
    """A frame of zstd, with a checksum; it may say how large its content is."""
    zstandard = pytest.importorskip("zstandard", reason="needs the extra 'server'")
    compressor = zstandard.ZstdCompressor(write_checksum=True, write_content_size=sized)
    if sized:
        return compressor.compress(data)
    streaming = compressor.compressobj()
    return streaming.compress(data) + streaming.flush()


def packed(kind: str, data: bytes = DATA) -> tuple[str, bytes]:
    """The name of an encoding, and data in it."""
    return (kind.split(maxsplit=1)[0], gzip.compress(data) if kind == "gzip" else zstd(data, sized=kind == "zstd"))


def read(data: bytes, encoding: str, options: ServerOptions) -> dict[str, object]:
    """The object of a body that came whole."""
    plain = data if encoding == "identity" else decompress(data, encoding, options.max_body_bytes)
    return parse_object(plain, options.max_depth)


KINDS = ["gzip", "zstd", "zstd without a size"]


def refused(data: bytes, encoding: str = "identity", options: ServerOptions = OPTIONS) -> tuple[int, str]:
    """The status and code of the error that a body is."""
    with pytest.raises(HttpError) as caught:
        read(data, encoding, options)
    assert len(caught.value.message) < 300
    return caught.value.status, caught.value.code


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_is_read_whole_or_not_at_all(kind):
    """Cut at any byte it is an error, also where all of its content has come already; and so is anything behind it."""
    encoding, data = packed(kind)
    assert read(data, encoding, OPTIONS) == BODY
    for cut in range(len(data)):
        assert refused(data[:cut], encoding) == (400, "bad_encoding")
    assert refused(data + b"x", encoding) == (400, "bad_encoding")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [2, 1_000, 1_001])
def test_streams_one_after_the_other(kind, n):
    """Are one body, up to a number that costs nothing."""
    encoding, first = packed(kind)
    _, nothing = packed(kind, b"")
    data = first[:0] + packed(kind, DATA[:50])[1] + packed(kind, DATA[50:])[1] + nothing * (n - 2)
    if n <= 1_000:
        assert read(data, encoding, OPTIONS) == BODY
    else:
        assert refused(data, encoding) == (400, "bad_encoding")


@pytest.mark.parametrize("kind", KINDS)
def test_the_limit_counts_decoded_bytes(kind):
    """One byte more is an error, and a bomb is never unpacked: 200 MB of blanks are refused like 100 kB of them."""
    for n, fits in [(100_000, True), (100_001, False)]:
        encoding, data = packed(kind, b"{}" + b" " * (n - 2))
        assert (read(data, encoding, OPTIONS) == {}) if fits else refused(data, encoding) == (413, "body_too_large")
    encoding, data = packed(kind, b" " * 1_000_000)
    assert refused(data * 200, encoding) == (413, "body_too_large")


def test_a_frame_that_wants_a_large_window_is_refused():
    """A decoder would hold 128 MiB for it, for a body of ten bytes."""
    zstandard = pytest.importorskip("zstandard", reason="needs the extra 'server'")
    wide = zstandard.ZstdCompressionParameters(window_log=27, write_content_size=False)
    streaming = zstandard.ZstdCompressor(compression_params=wide).compressobj()
    assert refused(streaming.compress(b"{}") + streaming.flush(), "zstd") == (400, "bad_encoding")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "Expecting value"),
        (b'{"a": 1, "b": {"c": 1, "c": 2}}', "the key 'c' occurs twice"),
        (b'{"a": NaN}', "NaN is not a finite number"),
        (b'{"a": -Infinity}', "-Infinity is not a finite number"),
        (b'{"a": 1e400}', "1e400 is too large"),
        (b'{"a": [-1e999]}', "-1e999 is too large"),
        (b'{"a": ' + b"9" * 5_000 + b"}", "the number 99999.* is too large"),
        (b'{"a": -1' + b"0" * 309 + b"}", "the number -1000.* is too large"),
        (b'{"a": "\xed\xa0\x80"}', "utf-8"),
        ('{"a": 1}'.encode("utf-16"), "utf-8"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        (b"[1]", "the body is an array: expected an object"),
        (b"7", "the body is a number: expected an object"),
        (b"1.5", "the body is a number: expected an object"),
        (b"null", "the body is null: expected an object"),
        (b"true", "the body is a boolean: expected an object"),
        (b'"a"', "the body is a string: expected an object"),
        (b'{"a": ' * 5 + b"1" + b"}" * 5, "nested more than 4 levels"),
        (b"[" * 90_000, "nested more than 4 levels"),
        (b'{"' + b"x" * 300 + b'": 1, "' + b"x" * 300 + b'": 1}', "twice"),
        (b'{"' + b'\\"' * 40_000 + b"[[[[[[", "Unterminated string"),
    ],
    ids=lambda one: None if isinstance(one, str) else repr(one[:16]),
)
def test_json_that_is_refused(data, said):
    """Also what Python's parser takes: keys given twice, numbers that become infinite, other encodings."""
    with pytest.raises(HttpError, match=said) as caught:
        read(data, "identity", OPTIONS)
    assert (caught.value.status, caught.value.code) == (400, "bad_json")
    assert len(caught.value.message) < 300


@pytest.mark.parametrize(
    "value", [10**308, -(10**308), int(sys.float_info.max), "9" * 5_000, {"9" * 5_000: 1}], ids=type
)
def test_digits_that_are_read(value):
    """The largest whole numbers that a float can hold are exact, and texts may have any number of digits."""
    assert read(json.dumps({"a": value}).encode(), "identity", OPTIONS) == {"a": value}


def test_lists_and_objects_are_counted_before_they_are_made():
    """One more than the limit is refused; brackets in texts do not count."""
    options = ServerOptions()
    for n, fits in [(MAX_CONTAINERS - 2, True), (MAX_CONTAINERS - 1, False)]:
        data = b'{"a": [' + b",".join([b"[]", b"{}"] * (n // 2) + [b"[]"] * (n % 2)) + b"]}"
        if fits:
            assert len(read(data, "identity", options)["a"]) == n
        else:
            assert refused(data, options=options) == (413, "body_too_large")
    assert read(b'{"a": "' + b"[{" * MAX_CONTAINERS + b'"}', "identity", options)["a"]


def depth_of(value: object) -> int:
    """The slow twin: depth of a parsed value."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth_of, inner), default=0)


VALUES = st.recursive(
    st.text(st.sampled_from('a"\\[]{}'), max_size=4) | st.none() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(st.sampled_from('"\\[{'), max_size=3), inner),
    max_leaves=12,
)


@given(value=st.dictionaries(st.text(max_size=2), VALUES, max_size=3), limit=st.integers(1, 6))
def test_depth_is_that_of_the_value(value, limit):
    """Brackets in texts do not nest, whatever is escaped there; what is read is what was written."""
    options = ServerOptions(max_depth=limit)
    data = json.dumps(value).encode()
    if depth_of(value) <= limit:
        assert read(data, "identity", options) == value
    else:
        assert refused(data, options=options) == (400, "bad_json")


def nested(n: int, *, as_objects: bool) -> object:
    """A text in n lists or objects."""
    value: object = "a"
    for _ in range(n):
        value = {"k": value} if as_objects else [value]
    return value


@pytest.mark.parametrize("as_objects", [False, True])
def test_the_largest_depth_is_read_by_all(as_objects):
    """At the largest limit that an operator can set, no endpoint runs out of stack."""
    value = nested(MAX_DEPTH - 4, as_objects=as_objects)
    schema = {"const": value}
    bodies = {
        "/v1/chat/completions": {"messages": [{"role": "user", "content": "x"}], "chat_template_kwargs": {"a": value}},
        "/v1/systemone": {"state": value, "questions": {"q": {"type": "predicate", "instructions": "x"}}},
        "/v1/classify": {"text": value, "labels": ["a", "b"]},
        "/v1/render": {"template": "<<x>>", "values": {"x": value}},
        "/v1/extract": {"input": value, "schema": schema},
        "/v1/select": {"prompt": "a", "json_schema": schema, "max_tokens": 400},
        "/v1/completions": {"prompt": "a", "max_tokens": 1, "guided_json": schema},
    }
    with fake() as llm:
        application = app(llm, ServerOptions(max_depth=MAX_DEPTH))
        found = {
            path: ask(application, "POST", path, {"max_tokens": 1, **body}).status for path, body in bodies.items()
        }
    assert set(found.values()) <= {200, 400, 422}, found
    assert found["/v1/chat/completions"] == 200
