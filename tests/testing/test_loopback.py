"""The loopback server under all test doubles."""

from __future__ import annotations

import gzip
import socket
import threading

import httpx
import pytest

from clew.testing.loopback import Connection, LoopbackServer, ReceivedRequest


class Echo(LoopbackServer):
    """Answers with the body it got."""

    def respond(self, request: ReceivedRequest, connection: Connection) -> None:
        connection.head(200, {"content-type": "application/octet-stream"}, len(request.body))
        connection.send(request.body)


class Faulty(LoopbackServer):
    """Fails at every request."""

    def respond(self, request: ReceivedRequest, connection: Connection) -> None:
        raise LookupError("a fault of the test's own")


def test_requests_are_kept_as_they_came():
    """Method, target with its query, headers in order and the body are recorded."""
    with Echo() as server, httpx.Client() as client:
        reply = client.put(f"{server.base_url}/a/b?c=d", content=b"body", headers={"X-One": "1"})
        (request,) = server.requests
        assert reply.content == b"body"
        assert (request.number, request.method, request.path) == (1, "PUT", "/a/b?c=d")
        assert request.body == b"body"
        assert request.header("x-ONE") == "1"
        assert request.header("absent") is None
        assert request.headers[0][0].lower() == "host"


def test_a_chunked_request_body_is_put_together():
    """A body sent in chunks arrives whole."""
    with Echo() as server, httpx.Client() as client:
        reply = client.post(server.base_url, content=iter([b"one ", b"two ", b"three"]))
        assert reply.content == b"one two three"
        assert server.requests[0].header("transfer-encoding") == "chunked"


def test_a_compressed_body_can_be_read():
    """`content` and `json` undo gzip; `body` stays as it came."""
    packed = gzip.compress(b'{"a": 1}')
    with Echo() as server, httpx.Client() as client:
        client.post(server.base_url, content=packed, headers={"content-encoding": "gzip"})
        assert server.requests[0].body == packed
        assert server.requests[0].json() == {"a": 1}


def test_one_connection_carries_many_requests():
    """Connections are kept alive, and counted."""
    with Echo() as server, httpx.Client() as client:
        for number in range(5):
            client.post(server.base_url, content=str(number).encode())
        assert server.connections == 1
        assert server.open_connections == 1
        assert [request.body for request in server.requests] == [b"0", b"1", b"2", b"3", b"4"]


def test_a_fault_of_the_server_is_not_mistaken_for_an_answer():
    """The client gets a 500, and leaving the block raises what went wrong."""
    with pytest.raises(LookupError, match="own"), Faulty() as server, httpx.Client() as client:
        assert client.post(server.base_url).status_code == 500


def test_an_exception_of_the_block_wins_over_a_fault_of_the_server():
    """The test's own exception is not replaced."""

    def fails_while_the_server_fails():
        with Faulty() as server, httpx.Client() as client:
            client.post(server.base_url)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails_while_the_server_fails()


def test_closing_lets_go_of_everything():
    """After the block no thread runs, the port refuses, and the address is gone."""
    with Echo() as server:
        address = server.address
        with httpx.Client() as client:
            client.post(server.base_url)
    assert [each.name for each in threading.enumerate() if each.name == "Echo"] == []
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=1)
    with pytest.raises(RuntimeError, match="with"):
        _ = server.base_url
    server.close()


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: nonsense\r\n",
        b"Content-Length: 99999999999\r\n",
        b"Content-Length: -5\r\n",
        b"Transfer-Encoding: chunked\r\n",
    ],
)
def test_a_body_that_cannot_be_read_is_refused(head: bytes):
    """A body without a sensible length is answered with 413 and never waited for."""
    with Echo() as server, socket.create_connection(server.address, timeout=5) as peer:
        peer.sendall(b"POST / HTTP/1.1\r\nHost: x\r\n" + head + b"\r\nzz\r\n")
        assert peer.recv(100).startswith(b"HTTP/1.1 413 ")
        assert server.requests == []
