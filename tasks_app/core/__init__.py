"""The rules and the values that they work on: operations, validation, tally. No database, clock or Django."""
