"""The version of torchship and of torch-doctor, which are released together."""

__version__ = "0.1.0"
