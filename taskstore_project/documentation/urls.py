from django.urls import path, re_path

from . import views

app_name = "documentation"

urlpatterns = [
    path("", views.index, name="index"),
    path("find/", views.find, name="find"),
    path("files/<path:path>", views.file, name="file"),
    path("<slug:name>/", views.page, name="page"),
    # Links to the file of a page, or to a page of an older release.
    re_path(r"^(?P<name>[\w-]+)(\.html|\.md)?$", views.moved, name="moved"),
]
