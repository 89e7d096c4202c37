from django.urls import path

from . import views

app_name = "documentation"

urlpatterns = [
    path("", views.page, name="index"),
    path("<path:path>", views.page, name="page"),
]
