"""Workers in containers, each a pool of one worker over HTTP.

docker            the command line of a container engine, docker or podman
launch            what a container of a pool is started with, and how its owner is told from its labels
secret            the file through which containers get their token
supervisor        the supervisor
worker_container  the places of a supervisor's containers
"""
