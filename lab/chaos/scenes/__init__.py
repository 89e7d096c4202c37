"""The scenes, by their names on the command line."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from ..outcome import SceneResult
from ..stage import Database, Stage
from .databases import interleavings, kill_postgresql
from .leases import kill_worker, slow_worker
from .servers import contention, cut_network, kill_migrate, kill_server, terminate
from .settling import settling
from .upgrade import upgrade

SQLITE = (Database.SQLITE,)
POSTGRESQL = (Database.POSTGRESQL,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    name: str
    title: str
    act: Callable[[Stage], SceneResult]
    databases: Collection[Database] = tuple(Database)


SCENES = (
    Scene(name="contention", title="clients that all want the same", act=contention),
    Scene(
        name="interleavings",
        title="two operations in every order of their statements",
        act=interleavings,
        databases=POSTGRESQL,
    ),
    Scene(name="kill-server", title="kill -9 of a server", act=kill_server),
    Scene(name="kill-migrate", title="kill -9 of a first start", act=kill_migrate, databases=SQLITE),
    Scene(
        name="kill-postgresql",
        title="kill -9 of PostgreSQL and its children",
        act=kill_postgresql,
        databases=POSTGRESQL,
    ),
    Scene(name="cut-network", title="connections cut, responses dropped", act=cut_network),
    Scene(name="upgrade", title="servers of two versions, one of which migrates", act=upgrade, databases=POSTGRESQL),
    Scene(name="terminate", title="SIGTERM under load", act=terminate),
    Scene(name="slow-worker", title="commits after the lease was taken over", act=slow_worker),
    Scene(name="kill-worker", title="kill -9 of workers that hold tasks", act=kill_worker),
    Scene(name="settling", title="results wait for slow commits, tasks are stolen", act=settling),
)
