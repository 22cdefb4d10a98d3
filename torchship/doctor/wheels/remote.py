"""Reads wheels and lists of wheels on a server, and fetches of a wheel only what is read of it.

A server that allows ranges sends the wheel's list of members, its metadata, and those shared
objects on which the verdict depends; of another one, a small wheel is fetched whole. What may
be fetched in all is bounded, and so is the time that a server may take.
"""

from __future__ import annotations

import io
import json
import re
import time
import urllib.parse
import urllib.request
from html.parser import HTMLParser
from http.client import HTTPException

from ...judge.text import printable
from .unpacking import RemoteError, check_directory

_SECONDS_OF_ANSWER = 30
_SECONDS_IN_ALL = 300
_MAX_PAGE = 30_000_000
_MAX_LINKS = 20_000
#: What may be fetched for one wheel, and in all.
_MAX_OF_WHEEL = 150_000_000
_MAX_IN_ALL = 600_000_000
#: The end of a wheel holds its list of members and its metadata.
_END = 1 << 18
#: What is fetched at once of the rest.
_BLOCK = 1 << 20
_JSON = "application/vnd.pypi.simple.v1+json"


def file_of(url: str) -> str:
    """The file name at the end of an address."""
    return urllib.parse.unquote(urllib.parse.urlsplit(url).path.rpartition("/")[2])


def is_url(name: str) -> bool:
    return name.startswith(("http://", "https://"))


class Client:
    """Fetches from servers, and counts what it has fetched."""

    def __init__(self) -> None:
        self.bytes_left = _MAX_IN_ALL
        self._end = time.monotonic() + _SECONDS_IN_ALL
        self._opener = urllib.request.build_opener()

    def fetch(self, url: str, headers: dict[str, str], limit: int) -> Response:
        """The start of what a server answers. Raises RemoteError."""
        if not is_url(url):
            raise RemoteError(f"{printable(url)[:200]} is not an address of http or https")
        if time.monotonic() > self._end:
            raise RemoteError(f"the servers took more than {_SECONDS_IN_ALL} s")
        agent = {"User-Agent": "torch-doctor", "Accept-Encoding": "identity"}
        request = urllib.request.Request(url, headers={**agent, **headers})
        try:
            with self._opener.open(request, timeout=_SECONDS_OF_ANSWER) as answer:
                if not is_url(answer.geturl()):
                    raise RemoteError(f"{printable(url)[:200]} leads to another kind of address")
                content = self._read(answer, min(limit, self.bytes_left))
                self.bytes_left -= len(content)
                return Response(
                    status=answer.status,
                    url=answer.geturl(),
                    headers={name.lower(): value for name, value in answer.headers.items()},
                    content=content,
                )
        except (OSError, HTTPException, ValueError) as error:
            reason = printable(str(error))[:300] or type(error).__name__
            raise RemoteError(f"{printable(url)[:200]} cannot be fetched: {reason}") from error

    def _read(self, answer: io.BufferedIOBase, limit: int) -> bytes:
        chunks: list[bytes] = []
        left = limit + 1
        while left > 0 and (chunk := answer.read(min(left, 1 << 20))):
            if time.monotonic() > self._end:
                raise RemoteError(f"the servers took more than {_SECONDS_IN_ALL} s")
            chunks.append(chunk)
            left -= len(chunk)
        if left <= 0:
            raise RemoteError(f"it is larger than the {limit / 1e6:.0f} MB that may be fetched")
        return b"".join(chunks)


class Response:
    """What a server answered."""

    def __init__(self, *, status: int, url: str, headers: dict[str, str], content: bytes) -> None:
        self.status = status
        self.url = url  #: after redirections
        self.headers = headers  #: by names in small letters
        self.content = content


class RemoteFile(io.BufferedIOBase):
    """A file on a server, read in blocks; whole and in memory if the server allows no ranges."""

    def __init__(self, url: str, client: Client) -> None:
        self._url = url
        self._client = client
        self._bytes_left = _MAX_OF_WHEEL
        self._at = 0
        self._number = -1  # of the block that was fetched last
        self._piece = b""
        end = client.fetch(url, {"Range": f"bytes=-{_END}"}, _MAX_OF_WHEEL)
        self.size = len(end.content) if end.status != 206 else _size_of(end)
        # The whole file, if the server does not send ranges.
        self._end = end.content
        self._start_of_end = self.size - len(end.content)

    def _block(self, number: int) -> bytes:
        if number == self._number:
            return self._piece
        start = number * _BLOCK
        stop = min(start + _BLOCK, self.size)
        self._bytes_left -= stop - start
        if self._bytes_left < 0:
            raise RemoteError(
                f"a check needs more than {_MAX_OF_WHEEL / 1e6:.0f} MB of this wheel; "
                "download it and name the file"
            )
        wanted = {"Range": f"bytes={start}-{stop - 1}"}
        piece = self._client.fetch(self._url, wanted, stop - start)
        if piece.status != 206 or len(piece.content) != stop - start:
            raise RemoteError("the server sends other ranges than it is asked for")
        self._number = number
        self._piece = piece.content
        return piece.content

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def read(self, size: int | None = -1, /) -> bytes:
        rest = max(0, self.size - self._at)
        count = rest if size is None or size < 0 else min(size, rest)
        check_directory(count)
        pieces: list[bytes] = []
        while count > 0:
            piece = self._read_some(count)
            pieces.append(piece)
            self._at += len(piece)
            count -= len(piece)
        return b"".join(pieces)

    def _read_some(self, count: int) -> bytes:
        """Some of the next bytes: those of one block, or of the end of the file."""
        if self._at >= self._start_of_end:
            start = self._at - self._start_of_end
            return self._end[start : start + count]
        start = self._at % _BLOCK
        count = min(count, self._start_of_end - self._at)
        return self._block(self._at // _BLOCK)[start : start + count]


def _size_of(piece: Response) -> int:
    """The size of the file of which a server has sent the end. Raises RemoteError."""
    named = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", piece.headers.get("content-range", ""))
    if named is None or int(named[2]) != int(named[3]) - 1:
        raise RemoteError("the server does not say how large the wheel is")
    if int(named[2]) - int(named[1]) + 1 != len(piece.content):
        raise RemoteError("the server sends other ranges than it is asked for")
    return int(named[3])


class _Links(HTMLParser):
    """The addresses in the anchors of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        address = dict(attrs).get("href")
        if tag == "a" and address and len(self.addresses) < _MAX_LINKS:
            self.addresses.append(address)


def list_wheels(url: str, client: Client) -> dict[str, str]:
    """The addresses of the wheels that a page of a simple index links to, by file name.

    Raises RemoteError.
    """
    page = client.fetch(url, {"Accept": f"{_JSON}, text/html;q=0.5"}, _MAX_PAGE)
    if "json" in page.headers.get("content-type", ""):
        addresses = _addresses_in_json(page.content)
    else:
        parser = _Links()
        parser.feed(page.content.decode("utf-8", "replace"))
        addresses = parser.addresses
    wheels = {}
    for address in addresses:
        whole = urllib.parse.urljoin(page.url, address).partition("#")[0]
        name = file_of(whole)
        if name.endswith(".whl") and is_url(whole):
            wheels[name] = whole
    return wheels


def _addresses_in_json(content: bytes) -> list[str]:
    try:
        files = json.loads(content).get("files", ())
        return [str(file["url"]) for file in files[:_MAX_LINKS] if isinstance(file, dict)]
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError) as error:
        raise RemoteError("the page is not a list of files (PEP 691)") from error
