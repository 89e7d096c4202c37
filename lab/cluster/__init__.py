"""`manage.py cluster`: try the store on several nodes with a database that fails over, all on this machine.

    clients -> haproxy -> web nodes -> pgbouncer -> haproxy -> the primary of three PostgreSQLs

Patroni (with etcd) makes a standby the primary when the primary is gone. A *cluster* (nodes.py) is all of that, of
*programs* (programs.py) with *configurations* (configuration.py), which a *supervisor* starts again
when they die. The *demo* (demo.py) works with it and breaks it (faults.py), and reports what came of it.
"""
