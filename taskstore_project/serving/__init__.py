"""Run the HTTP servers: daphne for `up`, uvicorn for `serve`.

`limits`, `connection` and `server` define once what both keep to: sizes, slow clients, refusals, the lane, the start
and the end. `daphne_server` and `uvicorn_server` connect these to the two libraries.
"""
