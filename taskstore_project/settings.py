"""Django's settings. Those for users come first, all of them from the environment."""

import os
import sys
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import django
from csp.constants import NONE, SELF

from . import environment, private_files, program

BASE_DIR = Path(__file__).resolve().parent.parent
IS_CHECKOUT = (BASE_DIR / "manage.py").exists()

# ---- Settings for users, named like their environment variables

USERS_DATA_HOME = Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share")
DEFAULT_DATA = BASE_DIR / "var" if IS_CHECKOUT else USERS_DATA_HOME / "taskstore"
TASKSTORE_DATA = environment.folder("TASKSTORE_DATA", DEFAULT_DATA)
# strict: answered changes are on the disk. opportunistic: a crash may lose the newest commits.
TASKSTORE_DURABILITY = environment.choice("TASKSTORE_DURABILITY", "strict", "opportunistic")
# Without it, the server listens only on the loopback address.
TASKSTORE_PUBLIC_URL = environment.public_url("TASKSTORE_PUBLIC_URL")
TASKSTORE_MAX_DATA_BYTES = environment.number("TASKSTORE_MAX_DATA_BYTES", 10 * 2**20)
TASKSTORE_MAX_REQUEST_BYTES = environment.number("TASKSTORE_MAX_REQUEST_BYTES", 64 * 2**20)
TASKSTORE_MAX_ANSWER_BYTES = environment.number("TASKSTORE_MAX_ANSWER_BYTES", 64 * 2**20)
TASKSTORE_MAX_ANSWERS_BYTES = environment.number("TASKSTORE_MAX_ANSWERS_BYTES", 192 * 2**20)
TASKSTORE_MAX_CHANGES = environment.number("TASKSTORE_MAX_CHANGES", 10_000)
TASKSTORE_MAX_LABELS = environment.number("TASKSTORE_MAX_LABELS", 64)
TASKSTORE_MAX_CLAIM_GROUPS = environment.number("TASKSTORE_MAX_CLAIM_GROUPS", 1_000)
# In all objects and lists of a JSON body together: enough for 10 000 adds with 64 labels each.
TASKSTORE_MAX_VALUES = environment.number("TASKSTORE_MAX_VALUES", 1_000_000)
TASKSTORE_MAX_PLAN_BYTES = environment.number("TASKSTORE_MAX_PLAN_BYTES", 16 * 2**20)
# Of request bodies in progress, of one token, or of one address without a token.
TASKSTORE_MAX_BYTES_IN_FLIGHT = environment.number("TASKSTORE_MAX_BYTES_IN_FLIGHT", 256 * 2**20)
# Groups with tasks: of the whole store, and within the scope of one token.
TASKSTORE_MAX_GROUPS = environment.number("TASKSTORE_MAX_GROUPS", 1_000_000)
TASKSTORE_MAX_TOKEN_GROUPS = environment.number("TASKSTORE_MAX_TOKEN_GROUPS", 100_000)
# Opens the API to every program on this machine; `up --no-auth` switches it on.
TASKSTORE_NO_AUTH = False
# Accepts shell commands; `up --commands` switches it on, too.
TASKSTORE_COMMANDS = environment.switch("TASKSTORE_COMMANDS")
# The rules for bundling them into lists.
TASKSTORE_COMMAND_LISTS = environment.command_lists("TASKSTORE_COMMAND_LISTS")
# full: the history of every id. finished: only the ends of tasks. off: no history, for the highest speed.
TASKSTORE_HISTORY = environment.choice("TASKSTORE_HISTORY", "full", "finished", "off")
# How long history is kept; on SQLite at most so many rows, on PostgreSQL so many bytes (0: any number), by whole days.
TASKSTORE_HISTORY_DAYS = environment.number("TASKSTORE_HISTORY_DAYS", 7)
TASKSTORE_HISTORY_ROWS = environment.number("TASKSTORE_HISTORY_ROWS", 10_000_000)
TASKSTORE_HISTORY_BYTES = environment.number("TASKSTORE_HISTORY_BYTES", 0, least=0)
# How long the audit log is kept; the database itself refuses to delete newer entries.
TASKSTORE_AUDIT_DAYS = environment.number("TASKSTORE_AUDIT_DAYS", 400)
# How long some groups keep their tasks; older ones are deleted.
TASKSTORE_RETENTION = environment.retention("TASKSTORE_RETENTION")
# How long a repeated request with the same key gets the same answer.
TASKSTORE_KEY_SECONDS = environment.number("TASKSTORE_KEY_SECONDS", 3_600)
# After so long, a job whose function no worker has is an alarm.
TASKSTORE_MISSING_FUNCTION_MINUTES = environment.number("TASKSTORE_MISSING_FUNCTION_MINUTES", 60)
# People are signed out after so much inactivity, and so long after the sign-in.
TASKSTORE_SESSION_IDLE_MINUTES = environment.number("TASKSTORE_SESSION_IDLE_MINUTES", 12 * 60)
TASKSTORE_SESSION_HOURS = environment.number("TASKSTORE_SESSION_HOURS", 7 * 24)
# Requests of one token and of one address per second, in each process; 0: no limit. Off by default, as workers may be
# fast; on for wrong tokens.
TASKSTORE_TOKEN_RATE = environment.number("TASKSTORE_TOKEN_RATE", 0, least=0)
TASKSTORE_ADDRESS_RATE = environment.number("TASKSTORE_ADDRESS_RATE", 0, least=0)
TASKSTORE_WRONG_TOKEN_RATE = environment.number("TASKSTORE_WRONG_TOKEN_RATE", 100, least=0)
# Sign-in attempts of one address per minute; 0: no limit.
TASKSTORE_SIGN_IN_RATE = environment.number("TASKSTORE_SIGN_IN_RATE", 30, least=0)
# How long a client may take to send a request's headers, and how long it may stop reading the answer.
TASKSTORE_SLOW_CLIENT_SECONDS = environment.number("TASKSTORE_SLOW_CLIENT_SECONDS", 30)
# Open console pages with live numbers, of one person and of all together, in each process.
TASKSTORE_SOCKETS_PER_PERSON = environment.number("TASKSTORE_SOCKETS_PER_PERSON", 100)
TASKSTORE_SOCKETS = environment.number("TASKSTORE_SOCKETS", 2_000)
# The number of trusted proxies in front of the server, each of which adds an address to X-Forwarded-For.
TASKSTORE_PROXIES = environment.number("TASKSTORE_PROXIES", 0, least=0)
# The key that signs sessions on several servers; without it, each server creates one in its data directory.
TASKSTORE_SECRET_KEY_FILE = environment.file("TASKSTORE_SECRET_KEY_FILE")
# A stopping server keeps serving for so long while /readyz fails, so that proxies notice it. The whole stop should take
# at most half a minute.
TASKSTORE_DRAIN_SECONDS = environment.number("TASKSTORE_DRAIN_SECONDS", 5 if TASKSTORE_PROXIES else 0, least=0, most=20)
# /metrics lists so many groups by name, and the others as a sum.
TASKSTORE_METRICS_GROUPS = environment.number("TASKSTORE_METRICS_GROUPS", 100, least=0)
# And it counts the tasks by the value of this label.
TASKSTORE_METRICS_LABEL = os.environ.get("TASKSTORE_METRICS_LABEL", "")
# The types of protobuf messages for the console: files of `protoc --include_imports --descriptor_set_out`.
TASKSTORE_DESCRIPTORS = environment.files("TASKSTORE_DESCRIPTORS")
# The largest gRPC message.
TASKSTORE_GRPC_MAX_MESSAGE_BYTES = environment.number("TASKSTORE_GRPC_MAX_MESSAGE_BYTES", 64 * 2**20, most=2**31 - 1)
# PEM files for TLS, which gRPC requires if other machines can reach it.
TASKSTORE_GRPC_CERTIFICATE = environment.file("TASKSTORE_GRPC_CERTIFICATE")
TASKSTORE_GRPC_KEY = environment.file("TASKSTORE_GRPC_KEY")
# A store that has never had a task gets an empty one in this group; `up --bootstrap-group` sets it, too.
TASKSTORE_BOOTSTRAP_GROUP = os.environ.get("TASKSTORE_BOOTSTRAP_GROUP", "")

# Lets the previous release start on migrated tables, to go back after an upgrade of one release.
TASKSTORE_NEWER_DATABASE = environment.switch("TASKSTORE_NEWER_DATABASE")
# The PostgreSQL behind a pooler in DATABASE_URL: poolers deliver no notifications of new tasks.
TASKSTORE_DIRECT_DATABASE_URL = environment.direct_database("TASKSTORE_DIRECT_DATABASE_URL", "DATABASE_PASSWORD_FILE")

SQLITE_FILE = TASKSTORE_DATA / "taskstore.sqlite3"
DATABASES = {
    "default": environment.database(
        "DATABASE_URL", "DATABASE_PASSWORD_FILE", sqlite=SQLITE_FILE, durable=TASKSTORE_DURABILITY == "strict"
    )
}
# A standby for the console's read-only pages.
TASKSTORE_REPLICA_URL = environment.replica_database("TASKSTORE_REPLICA_URL")
if TASKSTORE_REPLICA_URL:
    DATABASES["replica"] = TASKSTORE_REPLICA_URL

# The words before and after a command for this store, as a user types it.
TYPED_AS = program.typed_as()
TYPED_BEHIND = "" if DEFAULT_DATA.expanduser().absolute() == TASKSTORE_DATA else program.data_option(TASKSTORE_DATA)

# ---- Django

# The commands that start a server keep it; no other creates a directory where --data is mistyped.
SECRET_KEY = (
    private_files.read("TASKSTORE_SECRET_KEY_FILE", TASKSTORE_SECRET_KEY_FILE)
    if TASKSTORE_SECRET_KEY_FILE
    else private_files.read_or_draw(TASKSTORE_DATA)
)
DEBUG = False
USE_TZ = True
TIME_ZONE = "UTC"
USE_I18N = False
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
ROOT_URLCONF = "taskstore_project.urls"
ASGI_APPLICATION = "taskstore_project.asgi.application"
# Paths with a trailing slash do not exist (contract.md section 3).
APPEND_SLASH = False
LOGIN_URL = "tasks_app:login"
LOGIN_REDIRECT_URL = "/console/"
DATA_UPLOAD_MAX_MEMORY_SIZE = TASKSTORE_MAX_REQUEST_BYTES

INSTALLED_APPS = [
    # This project's apps first: their templates take precedence over the admin's.
    "tasks_app",
    "taskstore_project",
    # Django 6 has a task framework of its own.
    *(["django_tasks"] if django.VERSION < (6, 0) else []),
    # Only in a checkout: a wheel has no lab.
    *(["lab"] if IS_CHECKOUT else []),
    # For its runserver with websockets. Other commands would wait 0.2 s for the import of Twisted.
    *(["daphne"] if sys.argv[1:2] == ["runserver"] else []),
    "taskstore_project.admin_config.AdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "channels",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "axes",
    "csp",
]

MIDDLEWARE = [
    # First, so that refusals of the ones below have these headers, too.
    "django.middleware.security.SecurityMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "taskstore_project.sessions.renewal",
    "taskstore_project.error_pages.refuse_long_numbers",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "axes.middleware.AxesMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        # A wheel has the templates inside tasks_app.
        "DIRS": [BASE_DIR / "templates"] if IS_CHECKOUT else [],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

STATIC_URL = "/static/"
STATICFILES_DIRS = [("tasks_app", BASE_DIR / "static")] if IS_CHECKOUT else []
# Served from their directories, without collectstatic.
WHITENOISE_USE_FINDERS = True
WHITENOISE_ALLOW_ALL_ORIGINS = False

# Tasks of Django's framework are jobs of any queue.
TASKS = {"default": {"BACKEND": "tasks_app.tasks_backend.TaskStoreBackend", "QUEUES": []}}

# ---- Access

PUBLIC_HOST = urlsplit(TASKSTORE_PUBLIC_URL).hostname
IS_PUBLIC_HTTPS = TASKSTORE_PUBLIC_URL.startswith("https:")
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]", *([PUBLIC_HOST] if PUBLIC_HOST else [])]
# Behind a proxy that terminates TLS, the request itself is plain HTTP.
CSRF_TRUSTED_ORIGINS = [TASKSTORE_PUBLIC_URL] if TASKSTORE_PUBLIC_URL else []

AUTHENTICATION_BACKENDS = ["axes.backends.AxesStandaloneBackend", "django.contrib.auth.backends.ModelBackend"]
AUTH_PASSWORD_VALIDATORS = [
    *(
        {"NAME": f"django.contrib.auth.password_validation.{validator}"}
        for validator in (
            "UserAttributeSimilarityValidator",
            "MinimumLengthValidator",
            "CommonPasswordValidator",
            "NumericPasswordValidator",
        )
    ),
    {"NAME": "tasks_app.access.passwords.DifferentCharactersValidator"},
]
# Ten wrong passwords for one name from one address lock it out for 15 minutes.
AXES_FAILURE_LIMIT = 10
AXES_COOLOFF_TIME = timedelta(minutes=15)
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
# Attempts during a lock-out don't prolong it, as the page shows its end, and are not recorded.
AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT = False
AXES_CLIENT_IP_CALLABLE = "tasks_app.access.request_limits.address_of"
AXES_LOCKOUT_TEMPLATE = "tasks_app/locked.html"
AXES_RESET_ON_SUCCESS = True
# The application has its own audit; django-axes records only failures.
AXES_DISABLE_ACCESS_LOG = True
AXES_VERBOSE = False
# A lock-out ends only with time.
AXES_ENABLE_ADMIN = False

SESSION_ENGINE = "taskstore_project.sessions"
SESSION_COOKIE_AGE = TASKSTORE_SESSION_IDLE_MINUTES * 60
SESSION_LONGEST_S = TASKSTORE_SESSION_HOURS * 3_600
SESSION_COOKIE_HTTPONLY = CSRF_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
CSRF_FAILURE_VIEW = "taskstore_project.error_pages.csrf_failure"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = IS_PUBLIC_HTTPS
MESSAGE_STORAGE = "django.contrib.messages.storage.session.SessionStorage"

# ---- Headers for browsers

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "img-src": [SELF, "data:"],
        "object-src": [NONE],
        "base-uri": [NONE],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
    }
}
X_FRAME_OPTIONS = "DENY"
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_HSTS_SECONDS = 365 * 24 * 3600 if IS_PUBLIC_HTTPS else 0
# The header of the proxy that terminates TLS: without it, no answer would have the one above.
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if IS_PUBLIC_HTTPS else None
SILENCED_SYSTEM_CHECKS = [
    "security.W005", "security.W021",  # The owner of the domain decides about its other names.
    "security.W008",  # The proxy redirects; programs on this machine use plain HTTP.
]  # fmt: skip

# ---- The API's schema

SPECTACULAR_SETTINGS = {
    "TITLE": "Task Store",
    "DESCRIPTION": (
        "Transactions on tasks: claim them, and commit results, new tasks and deletions together. "
        "Members that are `null` count as absent. The same description as a page: `/schema/ui`."
    ),
    "EXTERNAL_DOCS": {"url": "/docs/", "description": "The documentation of this server"},
    "VERSION": "1",
    "OAS_VERSION": "3.1.1",
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
}

# ---- Logging to standard error, a line per warning and error

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "{asctime} {levelname} [{process}] {name}: {message}", "style": "{"}},
    "filters": {
        "news": {"()": "django.utils.log.CallbackFilter", "callback": "ext://taskstore_project.log_filter.is_news"}
    },
    "handlers": {
        "stderr": {"class": "logging.StreamHandler", "level": "WARNING", "formatter": "line"},
        "sign_ins": {"class": "logging.StreamHandler", "level": "INFO", "formatter": "line"},
    },
    "root": {"handlers": ["stderr"], "level": "WARNING"},
    # Django would mail errors to administrators and print requests in colour.
    # Neither a 404, as every poll of a worker may cause one, nor a foreign host name is worth a line.
    "loggers": {
        "django": {"handlers": [], "propagate": True},
        "django.request": {"level": "ERROR", "filters": ["news"]},
        # It logs each failed connection; tasks_app.database.outage logs the start and end of an outage.
        "psycopg.pool": {"level": "ERROR"},
        "django.security.DisallowedHost": {"level": "CRITICAL"},
        "tasks_app.console.sign_in": {"level": "INFO", "handlers": ["sign_ins"], "propagate": False},
        # It logs failed sign-ins without names; the logger above has them.
        "axes": {"level": "ERROR"},
    },
}
