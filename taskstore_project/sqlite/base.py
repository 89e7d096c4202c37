"""Django's backend for SQLite, which opens no file to learn what every supported SQLite can do.

Newer versions of Django ask it in their checks, and so would create an empty database where there is none.
"""

from django.db.backends.sqlite3 import base, features


class DatabaseFeatures(features.DatabaseFeatures):
    supports_json_field = True


class DatabaseWrapper(base.DatabaseWrapper):
    features_class = DatabaseFeatures
