"""The processes that do a contender's work, one module for each kind of contender."""
