"""Makes the links of a README work where it is shown outside its repository, as on an index."""

import re

_LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)\s]+)(?=\))")
_PICTURE = re.compile(r'((?:src|srcset)=")(?!https?:)([^"]+)(?=")')


def links_for_an_index(readme: str, repository: str) -> str:
    """The README with the links to files of its repository written in whole.

    Args:
        readme: Markdown, whose relative links start at the root of the repository.
        repository: its address, without a slash at the end.
    """
    with_links = _LINK.sub(lambda link: f"{repository}/blob/main/{link[1]}", readme)
    return _PICTURE.sub(
        lambda picture: f"{picture[1]}{repository}/raw/main/{picture[2]}", with_links
    )
