"""How Sphinx builds the site; scripts/docs.sh starts it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import yaml

DOCS = Path(__file__).resolve().parent
REPO = DOCS.parent
os.environ["LLTM_CONDA_LOAD"] = "0"  # the docstrings need no binary

from docs._ext import inventories  # noqa: E402

project = author = "lltm"
copyright = "the lltm developers, BSD-3-Clause"
version = release = re.search(  # type: ignore[union-attr]
    r'"(.+)"', (REPO / "lltm_conda" / "_version.py").read_text(encoding="utf-8")
)[1]

extensions = [
    "myst_parser",
    "autoapi.extension",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "docs._ext.docs_site",
    "docs._ext.plain_pages",
    "docs._ext.site_search",
]
exclude_patterns = ["_ext", "_static"]
suppress_warnings = [
    "autoapi.python_import_resolution"
]  # constants that a loop or an unpacking makes

myst_enable_extensions = ["alert", "attrs_inline"]  # GitHub's alerts; classes of images
myst_heading_anchors = 4
# What a reader does not type: prompts, and the output below a command.
copybutton_prompt_text = "$ "
copybutton_copy_empty_lines = False
# Python's and torch's names link to their documentation, by lists that need no network.
intersphinx_mapping = inventories.write(REPO / "build" / "inventories")
# Docstrings are read from the sources: nothing is imported, neither torch nor the package.
autoapi_dirs = ["../lltm_conda", "../torchship"]
autoapi_ignore = ["*/torchship/templates/*"]  # parts of other packages
autoapi_generate_api_docs = False
autoapi_add_toctree_entry = False
autoapi_python_class_content = "class"
add_module_names = False
python_use_unqualified_type_names = True

_matrix = yaml.safe_load((REPO / "build_matrix.yaml").read_text(encoding="utf-8"))
_repository = _matrix["project"]["url"]
# A project without an address yet has example.org in its place; no page leads there.
_has_address = "://example.org/" not in f"{_repository}/"

html_theme = "pydata_sphinx_theme"
html_title = "lltm"
html_static_path = ["_static"]
html_favicon = "_static/icon.svg"
html_css_files = ["site.css"]
html_js_files = ["messages.js", "site.js"]
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "lltm", "image_light": "_static/icon.svg", "image_dark": "_static/icon.svg"},
    "use_edit_page_button": _has_address,
    "show_prev_next": True,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 7,
    "secondary_sidebar_items": ["page-toc", *(["edit-this-page"] if _has_address else [])],
    "footer_start": ["copyright"],
    "footer_end": [],
    "search_bar_text": "Search, or paste an error",
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_context = {
    "default_mode": "auto",
    "edit_page_url_template": _repository + "/edit/main/docs/{{ file_name }}",
    "edit_page_provider_name": "the repository",
}
# Where the site is published in versions, each in a folder of its own beside versions.json.
if os.environ.get("DOCS_VERSIONS"):
    html_theme_options["switcher"] = {
        "json_url": os.environ["DOCS_VERSIONS"],
        "version_match": os.environ.get("DOCS_VERSION", version),
    }
    html_theme_options["check_switcher"] = False
    html_theme_options["navbar_end"] = ["version-switcher", "theme-switcher"]
