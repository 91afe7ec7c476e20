"""The client against a small real HTTP server."""

import http.server
import json
import socket
import threading

import pytest

from iop.cli.client import Client, SentEvent, parse_events
from iop.cli.errors import ApiError, EdgeGone, NoEdge
from iop.errors import InvalidRequest
from iop.exits import exit_code


def event(number, kind):
    return f"id: 1.{number}\nevent: {kind}\ndata: {json.dumps({'type': kind})}\n\n".encode()


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers from the server's list of (status, type, body); notes what was asked."""

    def do_GET(self):
        self.server.asked.append((self.command, self.path, dict(self.headers)))
        status, kind, body = self.server.answers.pop(0)
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        self.server.body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.do_GET()

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    server.answers, server.asked, server.body = [], [], None
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def client(server):
    return Client(f"http://127.0.0.1:{server.server_port}", "iopo_x", sleep=lambda s: None)


def test_a_call_carries_the_key_and_only_what_was_asked(server, client):
    server.answers.append((200, "application/json", b'{"runs": []}'))
    assert client.get("/api/v1/runs", state="", limit=3) == {"runs": []}
    method, path, headers = server.asked[0]
    assert (method, path, headers["Authorization"]) == ("GET", "/api/v1/runs?limit=3", "Bearer iopo_x")


def test_a_body_is_json(server, client):
    server.answers.append((202, "application/json", b'{"run_id": "ab"}'))
    assert client.post("/api/v1/runs", {"adapter": "cli"})["run_id"] == "ab"
    assert server.body == {"adapter": "cli"}


def test_a_refusal_is_the_edge_s_own_error(server, client):
    error = {"error": {"code": "no_such_target", "message": "No.", "retryable": False, "hint": "Look."}}
    server.answers.append((404, "application/json", json.dumps(error).encode()))
    with pytest.raises(ApiError) as told:
        client.get("/api/v1/runs")
    assert (told.value.code, told.value.message, told.value.hint) == ("no_such_target", "No.", "Look.")
    assert exit_code(told.value.code) == 3


def test_something_else_at_the_port_is_told(server, client):
    server.answers.append((200, "text/html", b"<html>"))
    with pytest.raises(ApiError, match="not IOP"):
        client.get("/api/v1/runs")


def test_nobody_at_the_port_is_no_edge():
    with pytest.raises(NoEdge, match="No edge answers at"):
        Client("http://127.0.0.1:9", "k").get("/")


@pytest.mark.parametrize("url", ["http://127.0.0.1:99999", "http://127.0.0.1:x", "http://[::1", "127.0.0.1:7411", "ftp://x"])
def test_an_address_that_is_none_is_told_with_one_that_is(url):
    with pytest.raises(InvalidRequest, match="it looks like http://127.0.0.1:7411"):
        Client(url, "k")


def test_the_address_of_the_model_api_will_do(server):
    server.answers.append((200, "application/json", b"{}"))
    Client(f"http://127.0.0.1:{server.server_port}/v1/", "k").get("/api/v1/nodes")
    assert server.asked[0][1] == "/api/v1/nodes"


def test_without_a_key_none_is_sent(server):
    server.answers.append((200, "application/json", b"{}"))
    Client(f"http://127.0.0.1:{server.server_port}", "").get("/")
    assert "Authorization" not in server.asked[0][2]


def test_https_where_there_is_no_tls_is_told(server, monkeypatch):
    monkeypatch.setattr("iop.cli.client.CONNECT_S", 0.2)
    with pytest.raises(NoEdge, match="does not speak TLS") as told:
        Client(f"https://127.0.0.1:{server.server_port}", "k").get("/")
    assert "http://" in told.value.hint


@pytest.mark.parametrize(("answer", "error", "told"), [
    (b"\x00\x00\x00\x8b\x1a\r\n", NoEdge, "does not speak HTTP"), (b"", EdgeGone, "hung up without an answer"),
])
def test_a_port_that_is_another_one_is_told(answer, error, told):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def serve():
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(error, match=told):
            Client(f"http://127.0.0.1:{listener.getsockname()[1]}", "k").get("/")
        thread.join()


def test_a_ca_file_that_is_not_there_is_told(server):
    with pytest.raises(NoEdge, match="/nowhere/ca.pem cannot be read: No such file"):
        Client(f"https://127.0.0.1:{server.server_port}", "k", ca_file="/nowhere/ca.pem").get("/")


def test_a_stream_ends_with_its_last_event(server, client):
    server.answers.append((200, "text/event-stream", event(1, "output") + b": beat\n\n" + event(2, "completed")))
    seen = list(client.events("/e", is_last=lambda data: data["type"] == "completed"))
    assert [one.id for one in seen] == ["1.1", "1.2"]


def test_a_cut_stream_goes_on_behind_the_last_event(server, client):
    server.answers.append((200, "text/event-stream", event(1, "output") + b"id: 1.2\nda"))
    server.answers.append((200, "text/event-stream", event(2, "completed")))
    seen = list(client.events("/e", is_last=lambda data: data["type"] == "completed"))
    assert [one.id for one in seen] == ["1.1", "1.2"]
    assert server.asked[1][2]["Last-Event-ID"] == "1.1"


def test_a_stream_with_nothing_left_ends_when_the_run_is_over(server, client):
    server.answers.append((200, "text/event-stream", b""))
    assert list(client.events("/e", "1.9", is_over=lambda after: after == "1.9")) == []


def test_a_stream_that_stays_broken_is_given_up(server, client, monkeypatch):
    monkeypatch.setattr("iop.cli.client.RETRY_FOR_S", 0.0)
    server.answers.append((200, "text/event-stream", event(1, "output")))
    with pytest.raises(EdgeGone, match="does not answer any more"):
        list(client.events("/e"))


def test_a_refused_stream_is_the_error_not_a_retry(server, client):
    server.answers.append((404, "application/json", b'{"error": {"code": "no_such_run", "message": "No."}}'))
    with pytest.raises(ApiError, match="No."):
        list(client.events("/e"))


def test_data_on_several_lines_is_joined():
    lines = [b"data: {\r\n", b'data:"a": 1}\r\n', b"\r\n", b"data: {}\n"]
    assert list(parse_events(iter(lines))) == [SentEvent("", {"a": 1})]
