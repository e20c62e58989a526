"""Formats of JSON Schema as patterns of the whole text.

Each pattern accepts only texts of the format, and some accept fewer. Where a pattern
cannot express a condition (such as the length of a name together with that of its
labels), it is stricter than the format. The patterns use the common syntax that
`schema.patterns` reads.
"""

from __future__ import annotations

from types import MappingProxyType


def _hosts(n_labels: int, n_more: int) -> str:
    """Return a pattern for host names of at most `n_labels` labels.

    A label is a letter or digit and up to `n_more` more, any of which may have a hyphen
    before it. The last label begins with a letter.
    """
    rest = f"(?:-?[A-Za-z0-9]){{0,{n_more}}}"
    return rf"(?:[A-Za-z0-9]{rest}\.){{0,{n_labels - 1}}}[A-Za-z]{rest}"


_HOST = f"(?:{_hosts(4, 30)}|{_hosts(8, 14)}|{_hosts(15, 7)})"
"""Host names of at most 253 characters in labels of at most 63.

No label begins with `xn--`.
"""
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~\-]"

_YEAR = "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9][0-9]|[0-9][1-9][0-9]{2}|[1-9][0-9]{3})"
_LEAP_PAIR = "(?:0[48]|[2468][048]|[13579][26])"
_DATE = (
    f"(?:{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    f"|02-(?:0[1-9]|1[0-9]|2[0-8]))|(?:[0-9]{{2}}{_LEAP_PAIR}|{_LEAP_PAIR}00)-02-29)"
)
_HOUR = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_TIME = rf"{_HOUR}:[0-5][0-9](?:\.[0-9]{{1,9}})?(?:Z|[+\-]{_HOUR})"

_N = "[0-9]{1,9}"
_CLOCK = f"T(?:{_N}H(?:{_N}M(?:{_N}S)?)?|{_N}M(?:{_N}S)?|{_N}S)"
_DAYS = f"(?:{_N}Y(?:{_N}M(?:{_N}D)?)?|{_N}M(?:{_N}D)?|{_N}D)"

_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"(?:{_OCTET}\.){{3}}{_OCTET}"
_GROUP = "[0-9a-fA-F]{1,4}"


def _ipv6() -> str:
    """Return a pattern for IPv6 addresses (RFC 4291, section 2.2).

    An address has eight groups, or `::` in place of one or more of them. The last two
    groups may be an IPv4 address.
    """
    ways = [f"(?:{_GROUP}:){{7}}{_GROUP}", f"(?:{_GROUP}:){{6}}{_IPV4}"]
    for left in range(8):
        before = f"{_GROUP}(?::{_GROUP}){{{left - 1}}}" if left else ""
        after = f"(?:{_GROUP}(?::{_GROUP}){{0,{6 - left}}})?" if left < 7 else ""
        ways.append(f"{before}::{after}")
        if left < 6:
            ways.append(f"{before}::(?:{_GROUP}:){{0,{5 - left}}}{_IPV4}")
    return "|".join(ways)


_PATH_CHARACTER = r"(?:[A-Za-z0-9\-._~!$&'()*+,;=:@]|%[0-9A-Fa-f]{2})"
_PATH = f"(?:/{_PATH_CHARACTER}*)*"
_PORT = "(?:6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[0-9]{1,4})"
_USER = r"(?:[A-Za-z0-9\-._~!$&'()*+,;=:]|%[0-9A-Fa-f]{2})*@"
_AUTHORITY = (
    rf"//(?:(?:{_USER})?(?:{_HOST}|{_IPV4}|\[(?:{_ipv6()})\])(?::{_PORT})?{_PATH}|/(?:{_PATH_CHARACTER}+{_PATH})?)"
)
_ABSOLUTE = f"/(?:{_PATH_CHARACTER}+{_PATH})?"
_TAIL = rf"(?:\?(?:{_PATH_CHARACTER}|[/?])*)?(?:#(?:{_PATH_CHARACTER}|[/?])*)?"
_SEGMENT = r"(?:[A-Za-z0-9\-._~!$&'()*+,;=@]|%[0-9A-Fa-f]{2})+"
_URI = rf"[A-Za-z][A-Za-z0-9+\-.]*:(?:{_AUTHORITY}|{_ABSOLUTE}|{_PATH_CHARACTER}+{_PATH}){_TAIL}"
_REFERENCE = f"{_URI}|(?:{_AUTHORITY}|{_ABSOLUTE}|{_SEGMENT}{_PATH})?{_TAIL}"
_POINTER = "(?:/(?:[^~/]|~[01])*)*"
_LOCAL = "|".join(
    rf"(?:{_ATOM}{{1,{length}}}\.){{0,{n - 1}}}{_ATOM}{{1,{length}}}" for n, length in ((3, 20), (6, 9), (16, 3))
)
"""The local part of a mail address: atoms of at most 64 characters together."""
_MAIL = f"(?:{_LOCAL})@{_HOST}"

FORMATS = MappingProxyType(
    {
        "date": _DATE,
        "time": _TIME,
        "date-time": f"{_DATE}T{_TIME}",
        "duration": f"P(?:{_N}W|{_DAYS}(?:{_CLOCK})?|{_CLOCK})",
        "email": _MAIL,
        "idn-email": _MAIL,
        "hostname": _HOST,
        "idn-hostname": _HOST,
        "ipv4": _IPV4,
        "ipv6": _ipv6(),
        "uuid": "-".join(f"[0-9a-fA-F]{{{n}}}" for n in (8, 4, 4, 4, 12)),
        "uri": _URI,
        "iri": _URI,
        "uri-reference": _REFERENCE,
        "iri-reference": _REFERENCE,
        "json-pointer": _POINTER,
        "relative-json-pointer": f"(?:0|[1-9][0-9]{{0,8}})(?:#|{_POINTER})",
    }
)
"""Patterns of the whole text by format name.

Dates begin with the year 0001. Times have no leap seconds. The host of a URI is a name,
an address or nothing (`file:///`). A port is at most 65535.
"""

UNHELD = frozenset(("regex", "uri-template"))
"""Standard formats without a pattern here."""


def format_pattern(name: str) -> str | None:
    """Return an anchored pattern of the format, or None if the format is unknown."""
    pattern = FORMATS.get(name)
    return None if pattern is None else f"^(?:{pattern})$"
