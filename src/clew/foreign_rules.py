"""Keys of other instrumentations and of resources that carry no content, each with its rule."""

from __future__ import annotations

from typing import Final

from clew.rules import Identifier, KeyedDigest, Number, Opaque, Rule

_name = Identifier(128)
_id = Opaque(256)
_count = Number(0)
_host = Identifier(253)

FOREIGN_RULES: Final[dict[str, Rule]] = {
    "author": _name,
    "db.collection.name": _name,
    "db.namespace": _name,
    "db.operation.name": _name,
    "db.system": _name,
    "db.system.name": _name,
    "enduser.id": KeyedDigest(),
    "http.method": Identifier(16),
    "http.request.method": Identifier(16),
    "http.status_code": Number(100, 999),
    "max_tokens": _count,
    "mcp.method.name": _name,
    "mcp.protocol.version": _name,
    "mcp.session.id": _id,
    "messaging.operation.name": _name,
    "messaging.system": _name,
    "network.protocol.name": _name,
    "network.protocol.version": Identifier(16),
    "network.transport": Identifier(16),
    "rpc.method": _name,
    "rpc.service": _name,
    "rpc.system": _name,
    "session.id": _id,
    "thread.id": Number(0),
    "url.scheme": Identifier(16),
    "user.id": KeyedDigest(),
}
"""Keys of other instrumentations that carry no content, so that their spans stay readable."""

RESOURCE_RULES: Final[dict[str, Rule]] = {
    "cloud.availability_zone": _name,
    "cloud.platform": _name,
    "cloud.provider": _name,
    "cloud.region": _name,
    "container.id": _id,
    "deployment.environment": _name,
    "deployment.environment.name": _name,
    "host.arch": _name,
    "host.id": _id,
    "host.name": _host,
    "k8s.cluster.name": _name,
    "k8s.container.name": _name,
    "k8s.deployment.name": _name,
    "k8s.namespace.name": _name,
    "k8s.node.name": _host,
    "k8s.pod.name": _host,
    "k8s.pod.uid": _id,
    "os.type": _name,
    "process.pid": Number(0),
    "process.runtime.name": _name,
    "process.runtime.version": _name,
    "service.instance.id": _id,
    "service.name": _name,
    "service.namespace": _name,
    "service.version": _name,
    "telemetry.auto.version": _name,
    "telemetry.distro.name": _name,
    "telemetry.distro.version": _name,
    "telemetry.sdk.language": _name,
    "telemetry.sdk.name": _name,
    "telemetry.sdk.version": _name,
}
"""Keys that may leave on a resource."""
