"""Settings that are more than a number: how long tasks and records are kept, how command lists are made."""

LIVE = "tasks_app.live"  # In the scope of a request: its page may open the websocket (tasks_app/live/asgi.py).
