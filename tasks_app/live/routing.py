"""Where websockets lead."""

from channels.security.websocket import WebsocketDenier
from django.urls import path, re_path

from .consumer import LiveConsumer

websocket_urlpatterns = [
    path("console/live", LiveConsumer.as_asgi()),
    # Else an unknown path would be an error of ours: a trace in the log, and 500.
    re_path("", WebsocketDenier.as_asgi()),
]
