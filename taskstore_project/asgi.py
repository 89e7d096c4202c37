"""The application that daphne and uvicorn serve: pages and API over HTTP, live counts over a websocket."""

import os
import warnings

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "taskstore_project.settings")
http = get_asgi_application()

# Whitenoise passes files as synchronous iterators, which is fine for few and small ones.
warnings.filterwarnings("ignore", "StreamingHttpResponse must consume synchronous iterators")

# After Django is set up, as they import models.
from channels.auth import AuthMiddlewareStack  # noqa: E402
from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402

from tasks_app.live.consumer import ClosedInOutage, websocket_urlpatterns  # noqa: E402
from tasks_app.rest_api.hot_path import HotPath  # noqa: E402
from taskstore_project.websocket_origins import OwnOrigin  # noqa: E402

pages_and_sockets = ProtocolTypeRouter(
    {
        "http": http,
        # Pages of other sites must not open a websocket with the visitor's cookie.
        "websocket": OwnOrigin(ClosedInOutage(AuthMiddlewareStack(URLRouter(websocket_urlpatterns)))),
    }
)
application = HotPath(pages_and_sockets)
