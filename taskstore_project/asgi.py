"""The application that daphne and uvicorn serve: pages and API over HTTP, live counts over a websocket."""

import asyncio
import os
import warnings
from typing import Any

import django
from django.core.handlers.asgi import ASGIHandler

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "taskstore_project.settings")
django.setup(set_prefix=False)


class Handler(ASGIHandler):
    """Django's own, which also ends a request well whose client leaves at a bad moment.

    Where middleware changes between threads and coroutines, asgiref may leave an executor behind that has ended, and
    the request could not say that it is finished: here it stays in a context of its own.
    """

    async def run_get_response(self, request: Any) -> Any:
        return await asyncio.create_task(super().run_get_response(request))


http = Handler()

# Whitenoise passes files as synchronous iterators, which is fine for few and small ones.
warnings.filterwarnings("ignore", "StreamingHttpResponse must consume synchronous iterators")

# After Django is set up, as they import models.
from channels.routing import ProtocolTypeRouter  # noqa: E402
from channels.security.websocket import WebsocketDenier  # noqa: E402

from tasks_app.live.asgi import LiveCounts  # noqa: E402
from tasks_app.rest_api.hot_path import HotPath  # noqa: E402

# Without the second one, a websocket on another path would be a server error with a traceback in the log.
others = ProtocolTypeRouter({"http": http, "websocket": WebsocketDenier.as_asgi()})
application = HotPath(LiveCounts(others))
