"""The command line of whoever works with a store: on any machine that reaches its server, without Django.

`taskstore_project.command_table` has the table of the commands.
"""
