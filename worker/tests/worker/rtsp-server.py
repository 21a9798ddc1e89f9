"""An RTSP server of GStreamer's for the tests: says its port, then serves until it is killed.

Arguments: none, basic or digest; then port=number, unless any port will do; then /path=pipeline for
each medium. The user is "camera" with the password "open sesame".
"""

import sys

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstRtsp", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import GLib, Gst, GstRtsp, GstRtspServer  # noqa: E402

USER, PASSWORD = "camera", "open sesame"


def guard(kind):
    """Returns the authentication of the server: its user, and the scheme of the password."""
    token = GstRtspServer.RTSPToken()
    token.set_string("media.factory.role", "viewer")
    auth = GstRtspServer.RTSPAuth()
    if kind == "basic":
        auth.set_supported_methods(GstRtsp.RTSPAuthMethod.BASIC)
        auth.add_basic(GstRtspServer.RTSPAuth.make_basic(USER, PASSWORD), token)
    else:
        auth.set_supported_methods(GstRtsp.RTSPAuthMethod.DIGEST)
        auth.add_digest(USER, PASSWORD, token)
    return auth


def main():
    Gst.init(None)
    server = GstRtspServer.RTSPServer()
    server.set_address("127.0.0.1")
    server.set_service("0")
    kind, mounts = sys.argv[1], server.get_mount_points()
    for medium in sys.argv[2:]:
        path, pipeline = medium.split("=", 1)
        if path == "port":
            server.set_service(pipeline)
            continue
        factory = GstRtspServer.RTSPMediaFactory()
        factory.set_launch(pipeline)
        if kind != "none":
            allowed = GstRtspServer.RTSPPermissions()
            allowed.add_permission_for_role("viewer", "media.factory.access", True)
            allowed.add_permission_for_role("viewer", "media.factory.construct", True)
            factory.set_permissions(allowed)
        mounts.add_factory(path, factory)
    if kind != "none":
        server.set_auth(guard(kind))
    server.attach(None)
    print(server.get_bound_port(), flush=True)
    GLib.MainLoop().run()


main()
