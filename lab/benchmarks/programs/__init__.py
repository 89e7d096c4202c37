"""Workers that run by themselves, each with an interpreter and packages of its own: see ../workers.py.

    ADDRESS=postgresql://... DO=add NUMBER=1000 python -c "import oban_worker"

DO is `prepare`, `add`, `wake` or `work`. A task carries nothing to do, or else the time at which it was added, and then
its worker writes how many seconds it took to start. The programs import nothing of this project, except those that are
its own workers.
"""
