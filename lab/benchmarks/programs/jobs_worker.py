"""This store: the jobs of `work`, which the benchmark starts."""

import task

from taskstore import Client, job


@job(queue=task.QUEUE)
def nothing(payload: str) -> None:
    task.run(payload)


if task.IS_ADDING:
    client = Client()
    for payloads in task.batches():
        client.jobs.enqueue_many([nothing.call(payload) for payload in payloads])
