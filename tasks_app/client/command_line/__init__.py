"""The command line of whoever works with a store: on any machine that reaches its server, without Django.

`taskstore_project.client_commands` has the table of the commands.
"""
