"""A module whose import ends the process."""

import os

print("I can't be imported", flush=True)
os._exit(3)
