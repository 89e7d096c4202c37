"""Operators' actions on one group or lease: pause, resume, end a lease early."""
