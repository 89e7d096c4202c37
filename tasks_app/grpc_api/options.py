"""How a server has to be made on which thousands wait."""

MOST_AT_ONCE = 100_000

# gRPC's core refuses some of what arrives in one burst, as when all workers come back after a restart: from a thousand
# calls on that Python has not begun yet, and all from three thousand on.
OPTIONS = (
    ("grpc.server.max_pending_requests", MOST_AT_ONCE),
    ("grpc.server.max_pending_requests_hard_limit", MOST_AT_ONCE),
)
