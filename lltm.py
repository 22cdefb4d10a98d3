"""The public names of `lltm_conda`, for those who import the distribution by its name.

It is a module, not a package, so it hides no extension or package that is also called lltm.
"""

from lltm_conda import *  # noqa: F403
from lltm_conda import __all__ as __all__
from lltm_conda import __version__ as __version__
