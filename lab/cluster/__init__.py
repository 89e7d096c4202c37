"""`manage.py cluster`: try the store on several nodes with a database that fails over, all on this machine.

    clients -> haproxy -> two web nodes -> pgbouncer -> haproxy -> the primary of two PostgreSQLs

Patroni (with etcd) makes the standby the primary when the primary is gone. A *cluster* (nodes.py) is all of that, with
its *configurations* (configuration.py). The *demo* (demo.py) works with it and breaks it, and reports what came of it.
"""
