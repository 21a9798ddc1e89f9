"""A backlog of recorded files, analysed by `sightline analyze` on the machines of a Ray cluster: docs/operate/backlog.md."""
