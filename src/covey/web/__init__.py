"""HTTP in: a server that owns a queue, for workers in containers and on other hosts.

api/            what each endpoint does
asgi            the server as an ASGI application
auth            who may come in
bounds          what a body may hold beyond its types
engine_threads  where the store is asked
http_protocol   HTTP on a socket, with limits that uvicorn leaves open
large_bodies    large bodies, unpacked piece by piece
notifier        who waits for what
openapi         the OpenAPI document, made from the table of endpoints, and a page that shows it
readers         where people look
request         One request as it comes in, and the answer to it
schemas         what the types do not say of themselves
serve           from addresses to a running server
stream          server-sent events
stream_board    what streams show
turn_batcher    turns of many pools
"""
