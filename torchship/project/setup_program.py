"""Runs a setup.py up to its Distribution, and writes what that says as JSON.

    python setup_program.py OUT cpu|cuda

The author's Python runs this file alone, in a copy of the repository, so it needs nothing of
torchship, and no newer Python than 3.7. No command of setuptools is run but egg_info, which lists
the data files.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,import-untyped,var-annotated"
# setuptools comes without types, and its objects are what this file reads.

import builtins
import email.utils
import json
import os
import pathlib
import sys
import types

_ADDED = "_torchship_added"
_IS_CUDA = "_torchship_is_cuda"
_LISTS = ("include_dirs", "library_dirs", "libraries")
_CUDA = "12.8"
_GIVEN_TO_CMAKE = {}
#: The arguments of setup(), by name.
_GIVEN = {}
#: Attributes of a distribution that another function reads, or that say nothing of the package.
_KNOWN = {
    *("name", "version", "description", "license", "license_expression", "license_file"),
    *("license_files", "author", "author_email", "url", "project_urls", "keywords", "classifiers"),
    *("python_requires", "install_requires", "extras_require", "entry_points", "packages"),
    *("package_dir", "package_data", "ext_modules", "cmdclass", "maintainer", "maintainer_email"),
    *("long_description", "long_description_content_type", "download_url", "dynamic", "metadata"),
    *("metadata_version", "provides_extras", "script_name", "script_args", "have_run"),
    *("command_obj", "command_options", "dist_files", "src_root", "command_packages"),
}
#: Variables by which a setup.py tells the compilers something.
_VARIABLES = (
    *("TORCH_CUDA_ARCH_LIST", "MAX_JOBS", "CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS"),
    *("LDFLAGS", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"),
)
_LONGEST = 60


def main():
    out, machine = sys.argv[1:]
    sys.argv = ["setup.py", "bdist_wheel"]
    sys.path.insert(0, os.getcwd())
    seen = {"error": "", "unknown": []}
    before = dict(os.environ)
    try:
        _stand_in_skbuild()
        _stand_in_at_import(machine == "cuda")
        distribution = _distribution(seen)
        seen["extensions"] = [_extension(each) for each in distribution.ext_modules or []]
        metadata = _metadata(distribution, seen["unknown"])
        for name in _VARIABLES:
            if os.environ.get(name) != before.get(name):
                metadata["others"]["environment variable " + name] = _short(os.environ.get(name))
        seen["metadata"] = metadata
    except BaseException as error:
        seen["error"] = f"{type(error).__name__}: {error}".strip()
    with pathlib.Path(out).open("w") as file:
        json.dump(seen, file)


def _stand_in_skbuild():
    """scikit-build's setup runs CMake before there is a distribution; this one does not."""

    def setup(**arguments):
        import setuptools

        cmake = {key: arguments.pop(key) for key in [*arguments] if key.startswith("cmake_")}
        _GIVEN_TO_CMAKE.update(cmake)
        return setuptools.setup(**arguments)

    stand_in = types.ModuleType("skbuild")
    vars(stand_in)["setup"] = setup
    sys.modules["skbuild"] = stand_in


def _stand_in_at_import(has_cuda):
    """Changes torch as soon as something has imported it, since the import takes seconds."""
    real = builtins.__import__
    depth = []

    def imported(name, *arguments, **named):
        if name.partition(".")[0] != "torch" or depth:
            return real(name, *arguments, **named)
        depth.append(name)  # for good, once torch is there
        try:
            module = real(name, *arguments, **named)
        except BaseException:
            depth.clear()
            raise
        _stand_in_torch(has_cuda)
        return module

    builtins.__import__ = imported


def _stand_in_torch(has_cuda):
    """Makes torch say what it says on a machine with or without CUDA."""
    import torch
    from torch.utils import cpp_extension

    properties = types.SimpleNamespace(
        major=9, minor=0, name="stand-in", total_memory=80 << 30, multi_processor_count=132
    )
    cuda = {
        "is_available": has_cuda,
        "device_count": int(has_cuda),
        "current_device": 0,
        "get_device_capability": (9, 0),
        "get_device_name": "stand-in",
        "get_device_properties": properties,
        "get_arch_list": ["sm_90"] if has_cuda else [],
    }
    for name in cuda:
        if has_cuda or name in ("is_available", "device_count", "get_arch_list"):
            setattr(torch.cuda, name, lambda *_, _value=cuda[name], **__: _value)
    torch.version.cuda = (torch.version.cuda or _CUDA) if has_cuda else None
    torch.backends.cuda.is_built = lambda: has_cuda
    home = os.environ["CUDA_HOME"] if has_cuda else None
    cpp_extension.CUDA_HOME = home
    cpp_extension._find_cuda_home = lambda: home
    cpp_extension.CppExtension = _marked(cpp_extension.CppExtension, is_cuda=False)
    cpp_extension.CUDAExtension = _marked(cpp_extension.CUDAExtension, is_cuda=True)


def _marked(make, is_cuda):
    """The function, whose extensions know what torch added to the author's arguments."""

    def extension(*arguments, **named):
        given = {name: list(named.get(name) or []) for name in _LISTS}
        made = make(*arguments, **named)
        added = {
            name: [one for one in getattr(made, name) if one not in given[name]] for name in _LISTS
        }
        setattr(made, _ADDED, added)
        setattr(made, _IS_CUDA, is_cuda)
        return made

    return extension


def _distribution(seen):
    from distutils import core

    import setuptools  # before distutils, whose place it takes

    # What setup_requires asks for would be downloaded.
    setuptools.Distribution.fetch_build_eggs = lambda self, requirements: []
    setuptools.Distribution.__init__ = _noting_arguments(setuptools.Distribution.__init__)
    setuptools.Distribution._finalize_setup_keywords = _without_failures(
        setuptools.Distribution._finalize_setup_keywords, seen
    )
    if not pathlib.Path("setup.py").is_file():
        with pathlib.Path("setup.py").open("w") as file:
            file.write("from setuptools import setup\nsetup()\n")
    try:
        return core.run_setup("setup.py", stop_after="config")
    except Exception:
        made = getattr(core, "_setup_distribution", None)
        if made is None:
            raise
        return made  # it failed behind its setup()


def _noting_arguments(make):
    def made(self, attrs=None):
        if attrs and "script_name" in attrs:  # those of setup(), and no other distribution's
            _GIVEN.clear()
            _GIVEN.update(attrs)
        make(self, attrs)

    return made


def _without_failures(finalize, seen):
    def finalized(self):
        try:
            finalize(self)
        except Exception as error:
            seen["unknown"].append(f"a plugin of setuptools failed: {error}")

    return finalized


def _own(extension, name):
    """The values that the author gave, without those of torch."""
    added = getattr(extension, _ADDED, {}).get(name, [])
    return [str(one) for one in getattr(extension, name, None) or [] if one not in added]


def _extension(extension):
    flags = extension.extra_compile_args or []
    by_compiler = flags if isinstance(flags, dict) else {"cxx": flags}
    is_cuda = getattr(extension, _IS_CUDA, False)
    sources = [_relative(one) for one in extension.sources]
    return {
        "name": extension.name,
        "is_cuda": is_cuda or any(one.endswith(".cu") for one in sources),
        "sources": sources,
        "include": [_relative(one) for one in _own(extension, "include_dirs")],
        "macros": [
            [str(one[0]), None if len(one) < 2 or one[1] is None else str(one[1])]
            for one in extension.define_macros or []
        ],
        "undefined": [str(one) for one in extension.undef_macros or []],
        "flags": [_in_flag(one) for one in by_compiler.get("cxx", [])],
        "nvcc_flags": [_in_flag(one) for one in by_compiler.get("nvcc", [])],
        "libraries": _own(extension, "libraries"),
        "library_folders": [
            _relative(one)
            for one in _own(extension, "library_dirs") + _own(extension, "runtime_library_dirs")
        ],
        "link_flags": [_in_flag(one) for one in extension.extra_link_args or []],
        "objects": [_relative(one) for one in extension.extra_objects or []],
        "py_limited_api": bool(getattr(extension, "py_limited_api", False)),
        "cmake": _cmake_folder(extension),
    }


def _cmake_folder(extension):
    """The folder of the CMake project that an attribute of an extension without sources names."""
    values = () if extension.sources else vars(extension).values()
    folders = [one for one in values if isinstance(one, (str, pathlib.Path)) and one]
    found = [one for one in folders if (pathlib.Path(one) / "CMakeLists.txt").is_file()]
    return _relative(found[0]) if found else ""


def _relative(path):
    """The path below this folder; one outside of it stays absolute."""
    here = os.path.realpath(os.getcwd())
    whole = os.path.normpath(os.path.join(here, str(path)))
    if whole == here or whole.startswith(here + os.sep):
        return os.path.relpath(whole, here)
    real = os.path.realpath(whole)
    if real == here or real.startswith(here + os.sep):
        return os.path.relpath(real, here)
    return whole


def _in_flag(flag):
    """A flag with the paths of the repository relative: `-I/tmp/copy/src` -> `-Isrc`."""
    flag = str(flag)
    for here in {os.getcwd(), os.path.realpath(os.getcwd())}:
        flag = flag.replace(here + os.sep, "").replace(here, ".")
    return flag


def _metadata(distribution, unknown):
    meta = distribution.metadata
    authors = meta.author or "", meta.author_email or ""
    maintainers = meta.maintainer or "", meta.maintainer_email or ""
    project = _pyproject().get("project", {})
    authors = _people(project, "authors") or authors
    maintainers = _people(project, "maintainers") or maintainers
    if not any(authors):
        authors, maintainers = maintainers, ("", "")
    folders = {}
    for name in distribution.packages or []:
        folders[name] = _relative(_folder(distribution, name))
    return {
        "name": meta.name or "",
        "version": str(meta.version or ""),
        "summary": (meta.description or "").strip(),
        "license": str(getattr(meta, "license_expression", None) or meta.license or ""),
        "author": authors[0],
        "author_email": authors[1],
        "url": meta.url or "",
        "project_urls": _urls(meta),
        "keywords": list(meta.keywords or []),
        "classifiers": list(meta.classifiers or []),
        "requires_python": str(getattr(distribution, "python_requires", None) or ""),
        "requires": _words(distribution.install_requires),
        "extras": {
            str(key): _words(value)
            for key, value in (distribution.extras_require or {}).items()
            if value
        },
        "entry_points": _entry_points(distribution),
        "build_requires": _words(_pyproject().get("build-system", {}).get("requires")),
        "build_backend": _backend(),
        "torch": _torch_version(),
        "packages": folders,
        "data": _data(distribution, unknown),
        "commands": _commands(distribution),
        "maintainer": maintainers[0],
        "maintainer_email": maintainers[1],
        "others": _others(distribution),
    }


def _backend():
    system = _pyproject().get("build-system", {})
    name = str(system.get("build-backend", ""))
    return name + " in " + ", ".join(system["backend-path"]) if "backend-path" in system else name


def _torch_version():
    """The release of the torch that setup.py may have looked at, such as `2.13.0`."""
    try:
        from importlib import metadata

        return metadata.version("torch").partition("+")[0]
    except Exception:  # Python 3.7 has no such module
        return ""


def _urls(meta):
    urls = dict(getattr(meta, "project_urls", None) or {})
    if meta.download_url:
        urls.setdefault("Download", meta.download_url)
    return urls


def _others(distribution):
    """What setup() was given besides, by name: each value that no other field here has."""
    others = {}
    plain = type(distribution)()
    for holder, usual in ((distribution, plain), (distribution.metadata, plain.metadata)):
        for name, value in sorted(vars(holder).items()):
            is_given = value and value != vars(usual).get(name)
            if is_given and not name.startswith("_") and name not in _KNOWN and not callable(value):
                others[name] = _short(value)
    for name in _GIVEN:  # what this setuptools does not know, or no longer
        is_known = any(hasattr(one, name) for one in (distribution, distribution.metadata))
        if _GIVEN[name] and not is_known and name not in _KNOWN:
            others[name] = _short(_GIVEN[name])
    for package, patterns in _without_files(distribution).items():
        others["package_data of " + package] = _short(", ".join(patterns))
    text = (distribution.metadata.long_description or "").strip()
    if text and text not in _readmes():
        others["long_description"] = f"of {len(text)} characters"
    others.update((name, _short(_GIVEN_TO_CMAKE[name])) for name in _GIVEN_TO_CMAKE)
    for extension in distribution.ext_modules or []:
        others.update(_others_of(extension))
    return others


def _without_files(distribution):
    """The patterns of package_data that no file matches, by package."""
    packages = distribution.packages or []
    missing = {}
    for package, patterns in (distribution.package_data or {}).items():
        names = [package] if package else packages
        folders = [pathlib.Path(_folder(distribution, one)) for one in names]
        for pattern in filter(None, patterns):
            if not any(next(folder.glob(pattern.lstrip("/")), None) for folder in folders):
                missing.setdefault(package, []).append(pattern)
    return missing


def _others_of(extension):
    named = {name: getattr(extension, name, None) for name in ("swig_opts", "export_symbols")}
    flags = extension.extra_compile_args
    for compiler in flags if isinstance(flags, dict) else ():
        if compiler not in ("cxx", "nvcc"):
            named["flags for " + compiler] = flags[compiler]
    return {f"{name} of {extension.name}": _short(named[name]) for name in named if named[name]}


def _short(value):
    text = " ".join(str(value).split())
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."


def _readmes():
    """The texts of the files that init takes as the readme."""
    paths = [path for path in pathlib.Path().iterdir() if path.name.lower().startswith("readme")]
    return [path.read_bytes().decode("utf-8", "replace").strip() for path in paths]


def _words(value):
    if isinstance(value, str):
        value = value.splitlines()
    return [str(one).strip() for one in value or [] if str(one).strip()]


def _folder(distribution, package):
    folders = distribution.package_dir or {}
    parts = package.split(".")
    for count in range(len(parts), -1, -1):
        name = ".".join(parts[:count])
        if name in folders:
            return os.path.join(folders[name] or ".", *parts[count:])
    return os.path.join(*parts)


def _entry_points(distribution):
    points = distribution.entry_points or {}
    if isinstance(points, str):
        return {}
    return {group: _words(points[group]) for group in points}


def _people(project, key):
    """The names and the addresses in `[project]`; a line for each name, which may have a comma."""
    listed = [one for one in project.get(key, []) if isinstance(one, dict)]
    names = [one.get("name", "") for one in listed if not one.get("email")]
    emails = [
        email.utils.formataddr((one.get("name", ""), one["email"]))
        for one in listed
        if one.get("email")
    ]
    return ("\n".join(names), ", ".join(emails)) if names or emails else None


def _pyproject():
    if not pathlib.Path("pyproject.toml").is_file():
        return {}
    for name in ("tomllib", "tomli", "pip._vendor.tomli"):
        try:
            toml = __import__(name, fromlist=["load"])
        except ImportError:
            continue
        with pathlib.Path("pyproject.toml").open("rb") as file:
            return toml.load(file)
    return {}


def _data(distribution, unknown):
    """The data files of the packages, as build_py finds them."""
    try:
        command = distribution.get_command_obj("build_py")
        command.ensure_finalized()
        found = [
            os.path.join(folder, name)
            for _, folder, _, names in command.data_files
            for name in names
        ]
    except BaseException as error:
        unknown.append(f"the data files of the packages: {error}")
        return []
    return sorted({_relative(path) for path in found})


def _commands(distribution):
    """The names of commands that are neither torch's nor setuptools' own."""
    names = []
    for name in distribution.cmdclass:
        kind = distribution.cmdclass[name]
        origin = getattr(kind, "__module__", "")
        if not origin.startswith(("torch.", "setuptools", "distutils", "wheel")):
            names.append("{} ({})".format(name, getattr(kind, "__name__", kind)))
    return names


if __name__ == "__main__":
    main()
