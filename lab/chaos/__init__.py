"""What `manage.py chaos` does to the store, and how it is found out whether the store kept its promises.

A *scene* (scenes.py) is a load and what happens to it: *clients* (client.py) use servers at random and write down all
that they ask and are answered, while servers and databases are killed, cut off and stopped (nemesis.py). What they
wrote is the *history* (history.py), which the *checker* (checker.py) compares with what the database holds in the end;
where the store went on from an earlier state, without what it lost by that (loss.py). Beside that, two *rivals*
(rivals.py) perform a pair of operations (pairs.py) in any order of their statements, and what comes of it is compared
with what comes of a serial order (interleaving.py).
"""


class CannotTry(Exception):
    """What a scene needs can't be had; the text says what, and how to get it."""
