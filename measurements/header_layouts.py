"""Measures the class layouts of a torch from the headers in its wheel, without its libraries.

    python -m measurements.header_layouts URL [URL ...]

Each URL is that of a wheel of torch for Linux x86-64. Only its headers are fetched, in one range
of bytes, and the file that puts a layout into every binary of the ATen lane is compiled with
them. The program prints a row of torchship/judge/reading/layouts.py for each wheel. It needs g++.
"""

from __future__ import annotations

import argparse
import io
import re
import subprocess
import tempfile
import urllib.request
import zipfile
from pathlib import Path

from torchship.judge.reading.binary import read_binary
from torchship.judge.reading.layouts import FIELDS

REPO = Path(__file__).resolve().parents[1]

INCLUDE = REPO / "torchship" / "include"
HEADERS = "torch/include/"
#: The end of a wheel, with the list of its files, and what the last file's own header may take.
TAIL = 8 << 20
LOCAL_HEADER = 4096
SECONDS = 120


class PartialFile(io.BytesIO):
    """A remote file of which the fetched ranges are filled in, and the rest is zero."""

    def __init__(self, url: str) -> None:
        self._url = url
        request = urllib.request.Request(url, method="HEAD")
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            size = int(answer.headers["Content-Length"])
        super().__init__(bytes(size))
        self.size = size

    def fetch(self, start: int, end: int) -> None:
        end = min(end, self.size)
        headers = {"Range": f"bytes={start}-{end - 1}"}
        request = urllib.request.Request(self._url, headers=headers)
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            self.seek(start)
            self.write(answer.read())


def fetch_headers(url: str, folder: Path) -> None:
    """Unpack the headers of a wheel into a folder."""
    file = PartialFile(url)
    file.fetch(max(0, file.size - TAIL), file.size)
    with zipfile.ZipFile(file) as wheel:
        entries = [entry for entry in wheel.infolist() if entry.filename.startswith(HEADERS)]
        first = min(entry.header_offset for entry in entries)
        last = max(entry.header_offset + entry.compress_size for entry in entries)
        file.fetch(first, last + LOCAL_HEADER)
        wheel.extractall(folder, entries)


def measure(url: str) -> tuple[int, ...]:
    """The layout of the torch in a wheel, in the order of FIELDS."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fetch_headers(url, folder)
        return compile_layout(folder / HEADERS, standard=17, abi=0)


def compile_layout(include: Path, *, standard: int, abi: int) -> tuple[int, ...]:
    """The layout that torch's headers give, in the order of FIELDS.

    `standard` is that of C++, and `abi` the C++ ABI that the headers are compiled for.
    """
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "layout.so")
        command = ["g++", "-shared", "-fPIC", f"-std=c++{standard}"]
        command += [f"-D_GLIBCXX_USE_CXX11_ABI={abi}"]
        command += [f"-I{include}", f"-I{include / 'torch' / 'csrc' / 'api' / 'include'}"]
        command += [str(INCLUDE / "torchship" / "torch_aten" / "layout.cpp"), "-o", str(path)]
        subprocess.run(command, check=True)
        layout = read_binary(path).layout or {}
    return tuple(layout[field] for field in FIELDS)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("urls", nargs="+", metavar="URL", help="a wheel of torch")
    for url in parser.parse_args().urls:
        minor = re.search(r"torch-(\d+)\.(\d+)", url)
        assert minor is not None
        print(f"({minor[1]}, {minor[2]}): {measure(url)},", flush=True)


if __name__ == "__main__":
    main()
