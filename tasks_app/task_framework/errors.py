"""What went wrong with a task otherwise than by an exception of its function."""


class JobEnded(Exception):
    """The process of the job ended, was ended, or could not say what the function returned.

    It is the `exception_class` of such an error; what happened stands in its traceback.
    """
