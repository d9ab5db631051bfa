"""What can be wrong with data: one class a family, all of them a DataError."""


class DataError(Exception):
    """Data that cannot be had or used; the message names the file, what was found and what is needed."""


class MissingFileError(DataError):
    """A file or folder is not there, or cannot be opened."""


class ChecksumError(DataError):
    """A file has other bytes than the ones known by its name."""


class TruncatedFileError(DataError):
    """A file ends too early."""


class ContentError(DataError):
    """A file can be opened, but what it says is not what is needed: columns, numbers, rows."""


class TaskError(DataError):
    """The rows do not make at least two tasks, each with a training and a validation row."""


class DownloadError(DataError):
    """A download did not end well."""


class MissingLibraryError(DataError, ImportError):
    """A library of an extra is needed."""
