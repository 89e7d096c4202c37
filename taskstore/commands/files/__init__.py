"""A project of commands as files in directories: those of TDF2 (contract.md section 7, docs/commands.md).

    DIR/new/<id>.task
    DIR/open/<list>/<id>.task
    DIR/running/<list>_<worker>_<started>/<id>.task
    DIR/closed/<list>_<worker>_<started>_<finished>/<id>.task|.out|.err
    DIR/completed/<id>.task|.out|.err

and so on for each status. A `.task` has seven lines, or ten after a run; `.out` and `.err` exist only if they are not
empty. Nothing here knows a store.
"""

from .parsing import NotFiles, ProjectContent, read_project, write_entries, write_result

__all__ = ["NotFiles", "ProjectContent", "read_project", "write_entries", "write_result"]
