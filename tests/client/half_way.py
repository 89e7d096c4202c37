"""A function that processes of a worker import."""


def get_half_way(task, context):
    context.progress(0.5, "page 10 of 20")
    context.lost.wait(20)
