#!/usr/bin/env python3
"""Django's entry. Makes its own environment first where it has to."""

from taskstore_project import bootstrap

if __name__ == "__main__":
    bootstrap.enter_environment()

    from taskstore_project.__main__ import main

    main()
