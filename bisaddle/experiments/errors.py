"""What can be wrong with an experiment: its file, a value in it, a results file."""


class ExperimentError(ValueError):
    """An experiment or a results file that cannot be used; the message names the key, what was given and needed."""
