"""A module that can't be imported."""

raise NameError("no_such_name")
