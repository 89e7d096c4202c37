"""Django's backend for PostgreSQL, with a pool that is back as soon as the database is. Django asks for `base` here."""
