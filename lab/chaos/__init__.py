"""`manage.py chaos`: break the store on purpose, and check that it keeps its promises.

A *scene* (scenes/) is a load with faults: *clients* (client.py) use servers at random and record every request and
response, while servers and databases are killed, cut off and stopped. These records are the *history* (history.py),
which the *checker* (checker.py) compares with the tables in the end. Separately, two *rivals* (rivals.py) perform a
pair of operations (pairs.py) in every order of their statements, and the result is compared with that of a serial
order (interleaving.py).
"""
