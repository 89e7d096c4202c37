"""This store: one process with so many coroutine functions at once, at a server (http://...) or in process."""

import os

import task

from taskstore import Client, NewTask, Task, Worker

if task.ADDRESS.startswith("http"):
    store = Client()
else:
    import django

    os.environ["DJANGO_SETTINGS_MODULE"] = "taskstore_project.settings"
    django.setup()

    from tasks_app.local_store import LocalStore

    store = LocalStore().__enter__()

if task.DO == "work":
    worker = Worker(store, threads=task.NUMBER, name="bench")

    @worker.handle(task.QUEUE)
    async def nothing(found: Task) -> None:
        task.run(found.text)

    worker.run()
elif task.IS_ADDING:
    for payloads in task.batches():
        store.commit(adds=[NewTask(group=task.QUEUE, data=payload.encode()) for payload in payloads])
