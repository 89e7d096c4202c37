"""A module with a thread that is no daemon, and does not end."""

import threading
import time

from .sample import who_am_i  # noqa: F401 - a job.

threading.Thread(target=time.sleep, args=[3_600]).start()
