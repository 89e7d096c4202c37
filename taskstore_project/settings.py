"""Django's settings. What a user can choose comes first, all of it from the environment."""

import os
import sys
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

from csp.constants import NONE, SELF

from . import environment, private_files, program, secret_key

BASE_DIR = Path(__file__).resolve().parent.parent
IS_CHECKOUT = (BASE_DIR / "manage.py").exists()

# ---- What a user can choose. A setting has the name of its variable.

USERS_DATA_HOME = Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share")
DEFAULT_DATA = BASE_DIR / "var" if IS_CHECKOUT else USERS_DATA_HOME / "taskstore"
TASKSTORE_DATA = environment.folder("TASKSTORE_DATA", DEFAULT_DATA)
# strict: what was answered is on the disk. opportunistic: a crash may cost the newest commits.
TASKSTORE_DURABILITY = environment.choice("TASKSTORE_DURABILITY", "strict", "opportunistic")
# Without it the server listens on the loopback only.
TASKSTORE_PUBLIC_URL = environment.public_url("TASKSTORE_PUBLIC_URL")
TASKSTORE_MAX_DATA_BYTES = environment.number("TASKSTORE_MAX_DATA_BYTES", 10 * 2**20)
TASKSTORE_MAX_REQUEST_BYTES = environment.number("TASKSTORE_MAX_REQUEST_BYTES", 64 * 2**20)
TASKSTORE_MAX_CHANGES = environment.number("TASKSTORE_MAX_CHANGES", 10_000)
TASKSTORE_MAX_LABELS = environment.number("TASKSTORE_MAX_LABELS", 64)
TASKSTORE_MAX_CLAIM_GROUPS = environment.number("TASKSTORE_MAX_CLAIM_GROUPS", 1_000)
# In all objects and lists of a body of JSON together: as many as 10 000 adds with 64 labels each have.
TASKSTORE_MAX_VALUES = environment.number("TASKSTORE_MAX_VALUES", 1_000_000)
# Of bodies that are being received or answered, by one token, or from one address without a token.
TASKSTORE_MAX_BYTES_IN_FLIGHT = environment.number("TASKSTORE_MAX_BYTES_IN_FLIGHT", 256 * 2**20)
# Groups that hold a task: all of them, and those that the list of groups of one token allows.
TASKSTORE_MAX_GROUPS = environment.number("TASKSTORE_MAX_GROUPS", 1_000_000)
TASKSTORE_MAX_TOKEN_GROUPS = environment.number("TASKSTORE_MAX_TOKEN_GROUPS", 100_000)
# Whoever is on this machine may do everything through the API; `up --no-auth` switches it on.
TASKSTORE_NO_AUTH = False
# Shell commands can be submitted and run; `up --commands` switches it on, too.
TASKSTORE_COMMANDS = environment.switch("TASKSTORE_COMMANDS")
# When lists are made of them.
TASKSTORE_COMMAND_LISTS = environment.command_lists("TASKSTORE_COMMAND_LISTS")
# full: what became of every id is kept. finished: only how tasks ended. off: nothing, for the last bit of speed.
TASKSTORE_HISTORY = environment.choice("TASKSTORE_HISTORY", "full", "finished", "off")
# What became of an id can be asked for so long; on SQLite the newest so many at most.
TASKSTORE_HISTORY_DAYS = environment.number("TASKSTORE_HISTORY_DAYS", 7)
TASKSTORE_HISTORY_ROWS = environment.number("TASKSTORE_HISTORY_ROWS", 10_000_000)
# Who changed what is kept for so long; the database itself deletes nothing that is younger.
TASKSTORE_AUDIT_DAYS = environment.number("TASKSTORE_AUDIT_DAYS", 400)
# For how long tasks lie in some groups; then they are deleted.
TASKSTORE_RETENTION = environment.retention("TASKSTORE_RETENTION")
# The same request with the same key is answered as before for so long.
TASKSTORE_KEY_SECONDS = environment.number("TASKSTORE_KEY_SECONDS", 3_600)
# People are signed out so long after the last page that they asked for, and so long after the sign-in.
TASKSTORE_SESSION_IDLE_MINUTES = environment.number("TASKSTORE_SESSION_IDLE_MINUTES", 12 * 60)
TASKSTORE_SESSION_HOURS = environment.number("TASKSTORE_SESSION_HOURS", 7 * 24)
# Requests by one token and from one address within a second, in each process; 0: no limit. Off, as workers know best
# how fast they work; for what is no token it is on.
TASKSTORE_TOKEN_RATE = environment.number("TASKSTORE_TOKEN_RATE", 0, least=0)
TASKSTORE_ADDRESS_RATE = environment.number("TASKSTORE_ADDRESS_RATE", 0, least=0)
TASKSTORE_WRONG_TOKEN_RATE = environment.number("TASKSTORE_WRONG_TOKEN_RATE", 100, least=0)
# Passwords that are tried from one address within a minute; 0: no limit.
TASKSTORE_SIGN_IN_RATE = environment.number("TASKSTORE_SIGN_IN_RATE", 30, least=0)
# How long a client may take for the head of a request, and for reading nothing of its answer.
TASKSTORE_SLOW_CLIENT_SECONDS = environment.number("TASKSTORE_SLOW_CLIENT_SECONDS", 30)
# Pages of the console with live numbers that one person may have open, and all together, in each process.
TASKSTORE_SOCKETS_PER_PERSON = environment.number("TASKSTORE_SOCKETS_PER_PERSON", 100)
TASKSTORE_SOCKETS = environment.number("TASKSTORE_SOCKETS", 2_000)
# How many proxies stand in front, each of which adds to X-Forwarded-For: addresses are those beyond them.
TASKSTORE_PROXIES = environment.number("TASKSTORE_PROXIES", 0, least=0)
# What signs sessions, where several servers share them; else each makes a key of its own in its data folder.
TASKSTORE_SECRET_KEY_FILE = environment.file("TASKSTORE_SECRET_KEY_FILE")
# A server that is told to end serves for so long yet, and says on /readyz that it does not want more: a proxy in front
# learns of it in this time. Nobody should wait longer for the whole end than half a minute.
TASKSTORE_DRAIN_SECONDS = environment.number("TASKSTORE_DRAIN_SECONDS", 5 if TASKSTORE_PROXIES else 0, least=0, most=20)
# Of so many groups /metrics tells each by its name, of all others together.
TASKSTORE_METRICS_GROUPS = environment.number("TASKSTORE_METRICS_GROUPS", 100, least=0)
# What the console knows protobuf messages by: files of `protoc --include_imports --descriptor_set_out`.
TASKSTORE_DESCRIPTORS = environment.files("TASKSTORE_DESCRIPTORS")
# The largest message that gRPC takes.
TASKSTORE_GRPC_MAX_MESSAGE_BYTES = environment.number("TASKSTORE_GRPC_MAX_MESSAGE_BYTES", 64 * 2**20, most=2**31 - 1)
# Files in PEM; with them gRPC speaks TLS, which it has to where other machines reach it.
TASKSTORE_GRPC_CERTIFICATE = environment.file("TASKSTORE_GRPC_CERTIFICATE")
TASKSTORE_GRPC_KEY = environment.file("TASKSTORE_GRPC_KEY")
# A store that has never held a task gets an empty one in this group; `up --bootstrap-group` names it too.
TASKSTORE_BOOTSTRAP_GROUP = os.environ.get("TASKSTORE_BOOTSTRAP_GROUP", "")

# A release before the one that has changed the tables may start: for the way back from an upgrade of one release.
TASKSTORE_NEWER_DATABASE = environment.switch("TASKSTORE_NEWER_DATABASE")
# PostgreSQL itself, where DATABASE_URL is a pooler: word of new tasks comes by no pooler.
TASKSTORE_DIRECT_DATABASE_URL = environment.direct_database("TASKSTORE_DIRECT_DATABASE_URL", "DATABASE_PASSWORD_FILE")

SQLITE_FILE = TASKSTORE_DATA / "taskstore.sqlite3"
DATABASES = {
    "default": environment.database(
        "DATABASE_URL",
        "DATABASE_PASSWORD_FILE",
        sqlite=SQLITE_FILE,
        durable=TASKSTORE_DURABILITY == "strict",
    )
}
# A standby, for what the console only reads.
TASKSTORE_REPLICA_URL = environment.replica_database("TASKSTORE_REPLICA_URL")
if TASKSTORE_REPLICA_URL:
    DATABASES["replica"] = TASKSTORE_REPLICA_URL

# What one types before and behind a command that is about this store, for hints.
TYPED_AS = program.typed_as()
TYPED_BEHIND = "" if DEFAULT_DATA.expanduser().absolute() == TASKSTORE_DATA else program.data_option(TASKSTORE_DATA)

# ---- Django

# Commands that sign nothing: where --data is mistyped they must not leave a folder or a database there.
if sys.argv[1:2] and sys.argv[1] in ("backup", "migrate", "restore", "token", "verify"):
    SECRET_KEY = secret_key.read_or_draw(TASKSTORE_DATA)
else:
    SECRET_KEY = secret_key.read_or_make(TASKSTORE_DATA)
    if DATABASES["default"]["NAME"] == SQLITE_FILE:
        private_files.make(SQLITE_FILE)
if TASKSTORE_SECRET_KEY_FILE:
    SECRET_KEY = secret_key.read("TASKSTORE_SECRET_KEY_FILE", TASKSTORE_SECRET_KEY_FILE)
DEBUG = False
USE_TZ = True
TIME_ZONE = "UTC"
USE_I18N = False
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
ROOT_URLCONF = "taskstore_project.urls"
ASGI_APPLICATION = "taskstore_project.asgi.application"
# A path with a slash at its end is another path, and there is none (contract.md section 3).
APPEND_SLASH = False
LOGIN_URL = "console:login"
LOGIN_REDIRECT_URL = "/console/"
DATA_UPLOAD_MAX_MEMORY_SIZE = TASKSTORE_MAX_REQUEST_BYTES

INSTALLED_APPS = [
    # Ours first: their templates go before the admin's.
    "tasks_app",
    "taskstore_project",
    # Its commands are for a checkout: a wheel has no lab.
    *(["lab"] if IS_CHECKOUT else []),
    # Its runserver speaks websockets. Every other command would wait for Twisted, a fifth of a second, for nothing.
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
    # What every answer tells a browser, those too that the ones below refuse.
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
        # An installed wheel has them inside tasks_app.
        "DIRS": [BASE_DIR / "templates"] if IS_CHECKOUT else [],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

STATIC_URL = "/static/"
STATICFILES_DIRS = [BASE_DIR / "static"] if IS_CHECKOUT else []
# Served from where they are: there is no collecting step that one could forget.
WHITENOISE_USE_FINDERS = True
WHITENOISE_ALLOW_ALL_ORIGINS = False

# Tasks of Django's framework are jobs, of any queue.
TASKS = {"default": {"BACKEND": "tasks_app.tasks_backend.TaskStoreBackend", "QUEUES": []}}

# ---- Who may come in

PUBLIC_HOST = urlsplit(TASKSTORE_PUBLIC_URL).hostname
IS_PUBLIC_HTTPS = TASKSTORE_PUBLIC_URL.startswith("https:")
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]", *([PUBLIC_HOST] if PUBLIC_HOST else [])]
# Behind a proxy that ends TLS the request itself says http.
CSRF_TRUSTED_ORIGINS = [TASKSTORE_PUBLIC_URL] if TASKSTORE_PUBLIC_URL else []

AUTHENTICATION_BACKENDS = [
    "axes.backends.AxesStandaloneBackend",
    "django.contrib.auth.backends.ModelBackend",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{validator}"}
    for validator in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
# Ten wrong passwords for one name from one address: a quarter of an hour of rest.
AXES_FAILURE_LIMIT = 10
AXES_COOLOFF_TIME = timedelta(minutes=15)
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
# What is tried meanwhile prolongs it not, or the page that says how long would lie; nor is it written down.
AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT = False
AXES_CLIENT_IP_CALLABLE = "tasks_app.access.request_limits.address_of"
AXES_LOCKOUT_TEMPLATE = "console/locked.html"
AXES_RESET_ON_SUCCESS = True
# The audit trail is the application's; here a row is written for failures only.
AXES_DISABLE_ACCESS_LOG = True
AXES_VERBOSE = False
# Who is locked out gets in again by waiting.
AXES_ENABLE_ADMIN = False

SESSION_ENGINE = "taskstore_project.sessions"
SESSION_COOKIE_AGE = TASKSTORE_SESSION_IDLE_MINUTES * 60
SESSION_LONGEST_S = TASKSTORE_SESSION_HOURS * 3_600
SESSION_COOKIE_HTTPONLY = CSRF_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = IS_PUBLIC_HTTPS
MESSAGE_STORAGE = "django.contrib.messages.storage.session.SessionStorage"

# ---- What a browser may do

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
# Of the proxy that ends TLS: without it no answer would carry the line above.
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if IS_PUBLIC_HTTPS else None
SILENCED_SYSTEM_CHECKS = [
    "security.W005", "security.W021",  # What the other names of the domain do is for their owner to say.
    "security.W008",  # The proxy redirects; programs on this machine come by plain HTTP.
]  # fmt: skip

# ---- The description of the API

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

# ---- What is written to standard error: a line per warning and error

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {"format": "{asctime} {levelname} {name}: {message}", "style": "{"},
    },
    "filters": {
        "news": {
            "()": "django.utils.log.CallbackFilter",
            "callback": "ext://taskstore_project.log_filter.is_news",
        },
    },
    "handlers": {
        "stderr": {"class": "logging.StreamHandler", "level": "WARNING", "formatter": "line"},
        "sign_ins": {"class": "logging.StreamHandler", "level": "INFO", "formatter": "line"},
    },
    "root": {"handlers": ["stderr"], "level": "WARNING"},
    # Django would mail errors to administrators and print requests in colour.
    # A request that names what is not there is no event: every poll of a worker may. Nor is a foreign host's name.
    "loggers": {
        "django": {"handlers": [], "propagate": True},
        "django.request": {"level": "ERROR", "filters": ["news"]},
        # A line for each failed try to connect. tasks_app.database.outage says when an outage begins and ends.
        "psycopg.pool": {"level": "ERROR"},
        "django.security.DisallowedHost": {"level": "CRITICAL"},
        "tasks_app.console.sign_in": {"level": "INFO", "handlers": ["sign_ins"], "propagate": False},
        # It tells of failed sign-ins without saying whose; the one above names them.
        "axes": {"level": "ERROR"},
    },
}
