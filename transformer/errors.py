"""The one exception a user's mistake raises."""


class UserError(ValueError):
    """A mistake the user can mend: a setting, a file, a shape, an id.

    The message is one line that says what was found, what was expected and
    where (``file:line``, a setting such as ``model.num_heads``, or a parameter
    path). The command line prints it without a traceback and exits with 2.
    """
