"""Workers in containers, each a pool of one worker over HTTP.

supervisor        starts the containers, watches and replaces them
worker_container  the place of one container, and who stands in it
launch            what a container is started with; how its owner is told from its labels
secret            the file through which containers get their token
docker            the command line of a container engine, docker or podman
"""
