"""The release tool: builds, audits, packs, installs and runs the cells of build_matrix.yaml."""


class ReleaseError(Exception):
    """A failure.

    Its text names the cause and usually a remedy. It is shown without a traceback.
    """
