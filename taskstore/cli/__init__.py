"""The command line of clients, for any machine that reaches a server. No Django.

`taskstore_project.command_table` has the table of the commands.
"""
