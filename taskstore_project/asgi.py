"""The application that daphne and uvicorn serve: pages and API over HTTP, live counts over a websocket."""

import os
import warnings

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "taskstore_project.settings")
http = get_asgi_application()

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
