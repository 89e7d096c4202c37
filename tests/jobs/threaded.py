"""A module that starts a thread when it is imported."""

import threading
import time

from .sample import who_am_i  # noqa: F401 - a job.

threading.Thread(target=time.sleep, args=[3_600], daemon=True).start()
