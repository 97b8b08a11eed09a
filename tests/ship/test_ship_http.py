# SPDX-License-Identifier: Apache-2.0
"""`probing ship` to servers that are down, slow, wrong or gone: the place is kept, and no rows are
held meanwhile."""
import base64
import os
import re
import shutil
import socket
import ssl
import subprocess
import threading

import pytest
from shipping import (add, get, message, parts, receive, remote_write, server, ship,  # noqa: F401
                      start_job, start_ship, state_of, stored)
from world import CLI, wait_for

WRITE = "prometheus+http://127.0.0.1:%d/api/v1/write"


def samples(receiver, name):
    found = {}
    for request in receiver.taken():
        for labels, values in remote_write(request["body"]):
            if labels["__name__"] == name:
                found.setdefault(labels["phase"], {}).update(values)
    return found


def sent_steps(receiver):
    return sorted(v for by in samples(receiver, "probing_python_loss_step").values()
                  for v in by.values())


def test_remote_write_is_what_its_specification_says(world, receive):  # noqa: F811
    rank, = start_job(world)
    add(rank, 20, apart=0.002)  # a series has one value in a millisecond
    to = receive()
    done = ship(world, str(rank.pid), WRITE % to.port, "--tables", "python.loss")
    assert done.returncode == 0, done.stderr
    for request in to.requests:
        assert request["path"] == "/api/v1/write"
        assert request["headers"]["Content-Encoding"] == "snappy"
        assert request["headers"]["X-Prometheus-Remote-Write-Version"] == "0.1.0"
    assert sent_steps(to) == list(range(20))
    names = {}
    for request in to.requests:
        for labels, values in remote_write(request["body"]):
            names.setdefault(labels["__name__"], []).append((labels, values))
            assert labels["rank"] == "0" and labels["pid"] == str(rank.pid)
            assert labels["instance"] == "%s:%d" % (socket.gethostname(), rank.pid)
    assert names["process_threads"][0][1][0][1] > 0
    assert any(labels["table"] == "python.loss" for labels, _ in names["probing_table_rows"])
    ms = dict(rank.rows("select step, floor(epoch(ts) * 1000)::bigint from python.loss"))
    by_step = {int(v): t for by in samples(to, "probing_python_loss_step").values()
               for t, v in by.items()}
    assert all(abs(by_step[step] - ms[step]) <= 1 for step in ms)


def test_series_without_end_are_cut_off(world, receive):  # noqa: F811
    """Each text of a row is a series of its own, which a server keeps in memory."""
    rank, = start_job(world)
    to = receive()
    code = "[table.append(i, 0.5, 'phase %d' % (i % 300), True, None) for i in range(600)]"
    assert rank.probing("eval", code).returncode == 0
    words = (str(rank.pid), WRITE % to.port, "--tables", "python.loss")
    done = ship(world, *words, "--max-series", "200")
    assert done.returncode == 0 and "--max-series" in done.stderr, done.stderr
    left = int(re.search(r"(\d+) samples were left out, of more than 200 different series in an "
                         r"hour", done.stderr).group(1))
    sent = [str(labels) for r in to.requests for labels, _ in remote_write(r["body"])]
    assert len(set(sent)) == 200 and 0 < left <= 4 * 600  # step, loss, ok and tid
    assert state_of(world)[0]["samples_over"] == left
    assert ship(world, *words, "--max-series", "0").returncode == 2
    done = ship(world, str(rank.pid), "parquet:%s" % (world.tmp / "out"), "--max-series", "9")
    assert done.returncode == 2 and "is for what has series: prometheus+http" in done.stderr
    assert not (world.tmp / "out").exists()  # it was made, with a lock in it


def test_series_without_end_are_cut_off_by_opentelemetry(world, receive):  # noqa: F811
    """It had no such bound; spans are none."""
    rank, = start_job(world)
    to = receive()
    code = "import probing\n" \
           "for i in range(600): table.append(i, 0.5, 'phase %d' % (i % 300), True, None)\n" \
           "with probing.span('outer'): pass"
    assert rank.probing("eval", code).returncode == 0
    done = ship(world, str(rank.pid), "otlp+http://127.0.0.1:%d" % to.port, "--tables", "python.*",
                "--max-series", "200")
    assert done.returncode == 0, done.stderr
    left = int(re.search(r"(\d+) samples were left out, of more than 200 different series",
                         done.stderr).group(1))
    series, points, spans = set(), 0, 0
    for request in to.taken():
        for resource in parts(request["body"], 1):
            for item in [i for scope in parts(resource, 2) for i in parts(scope, 2)]:
                if request["path"].endswith("traces"):
                    spans += 1
                    continue
                for point in parts((parts(item, 5) + parts(item, 7))[0], 1):
                    points += 1
                    series.add((parts(item, 1)[0], tuple(parts(point, 7))))
    assert len(series) == 200 and spans >= 1 and points >= 200
    assert state_of(world)[0]["samples_over"] == left > 1000


@pytest.mark.parametrize("fault", ["429", "500", "two", "closed", "cut", "garbage"])
def test_a_server_that_fails_gets_it_all_in_the_end(world, receive, fault):  # noqa: F811
    rank, = start_job(world)
    failures = [2 if fault == "two" else 1]

    def answer(receiver, request):
        if failures[0] == 0:
            return 204, {}, b""
        failures[0] -= 1
        if fault == "two":
            return (500 + failures[0], {}, b"")
        return {"429": (429, {"Retry-After": "1"}, b"slowly"), "500": (500, {}, b"\x1b[31moh"),
                "closed": None, "cut": (200, {"Cut": "1"}, b"x" * 9),
                "garbage": (503, {"Retry-After": "-1"}, b"\0\xff" * 50000)}[fault]
    to = receive(answer)
    add(rank, 10, apart=0.002)
    done = ship(world, str(rank.pid), WRITE % to.port, "--tables", "python.loss")
    assert done.returncode == 0, done.stderr
    assert "nothing is lost meanwhile" in done.stderr and "it takes rows again" in done.stderr
    assert "\x1b" not in done.stderr
    if fault == "two":  # the second reason was not told
        assert "501" in done.stderr and "500" in done.stderr, done.stderr
    assert sent_steps(to) == list(range(10))


@pytest.mark.parametrize("status,said", [(301, "leads elsewhere"), (401, "answers 401"),
                                         (404, "answers 404"), (200, "web page"),
                                         (415, "answers 415"),
                                         (407, "wants a user and a password")])
def test_a_wrong_address_ends_it(world, receive, status, said):  # noqa: F811
    """If a proxy wanted a password, each row was given up as refused."""
    rank, = start_job(world)
    add(rank, 3)
    to = receive(lambda receiver, request: (
        status, {"Location": "http://127.0.0.1:1/", "Content-Type": "text/html"}, b"<html>"))
    done = ship(world, str(rank.pid), WRITE % to.port, "--tables", "python.loss")
    assert done.returncode == 1 and said in done.stderr, done.stderr
    assert len(to.requests) == 1
    source, = state_of(world)[1]
    assert all(t[3] == 0 for t in source["tables"])  # the place is kept
    assert state_of(world)[0]["samples_refused"] == 0


def test_through_a_proxy_with_a_password(world, receive):  # noqa: F811
    rank, = start_job(world)
    add(rank, 3, apart=0.002)
    right = "Basic " + base64.b64encode(b"me:p%w").decode()
    proxy = receive(lambda receiver, request: (
        (200, {}, b"") if request["headers"].get("Proxy-Authorization") == right
        else (407, {"Proxy-Authenticate": "Basic"}, b"")))
    words = (world, str(rank.pid), "prometheus+http://metrics.invalid/api/v1/write", "--tables",
             "python.loss")
    env = {"no_proxy": "", "PROBING_SHIP_SECRET": "s3cret"}
    done = ship(*words, env=dict(env, http_proxy="http://127.0.0.1:%d" % proxy.port))
    assert done.returncode == 1 and "http_proxy=http://USER:PASSWORD" in done.stderr, done.stderr
    assert not proxy.taken() and state_of(world)[0]["samples_refused"] == 0
    done = ship(*words, env=dict(env, http_proxy="http://me:p%%25w@127.0.0.1:%d" % proxy.port))
    assert done.returncode == 0 and sent_steps(proxy) == [0, 1, 2], done.stderr
    assert {r["path"] for r in proxy.taken()} == {"http://metrics.invalid:9090/api/v1/write"}
    assert "p%w" not in done.stderr and "p%25w" not in done.stderr


def test_a_proxy_on_the_way_to_tls_gets_no_token(world):
    rank, = start_job(world)
    add(rank, 3)
    heard = []
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def play():
            connection, _ = listener.accept()
            heard.append(connection.recv(1 << 16))
            connection.sendall(b"HTTP/1.1 407 Who?\r\nProxy-Authenticate: Basic\r\n"
                               b"Content-Length: 0\r\n\r\n")
            connection.close()
        thread = threading.Thread(target=play, daemon=True)
        thread.start()
        done = ship(world, str(rank.pid), "otlp+https://metrics.invalid", env={
            "no_proxy": "", "PROBING_SHIP_SECRET": "s3cret",
            "https_proxy": "http://127.0.0.1:%d" % listener.getsockname()[1]})
        thread.join()
    assert heard[0].startswith(b"CONNECT metrics.invalid:443 ") and b"s3cret" not in heard[0]
    assert done.returncode == 1 and "wants a user and a password" in done.stderr, done.stderr


def test_nobody_listens_and_then_somebody_does(world, receive):  # noqa: F811
    rank, = start_job(world)
    add(rank, 5, apart=0.002)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = start_ship(world, str(rank.pid), "otlp+http://127.0.0.1:%d" % port)
    process.wait_line("refused")
    before = int(open("/proc/%d/statm" % process.pid).read().split()[1])
    for _ in range(5):
        add(rank, 20000)
    assert int(open("/proc/%d/statm" % process.pid).read().split()[1]) - before < 4096  # 16 MB
    process.process.terminate()
    assert process.process.wait() == 0  # at once, and in order


def test_a_server_that_hangs_can_be_left(world):
    """A lasting run ends so; with --once it had not done its work, and said that it had."""
    rank, = start_job(world)
    add(rank, 5)
    for words, code in (((), 0), (("--once",), 130)):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            process = start_ship(world, str(rank.pid), WRITE % listener.getsockname()[1], *words)
            connection, _ = listener.accept()
            connection.recv(10)
            process.process.terminate()
            assert process.process.wait() == code
            connection.close()
        for file in (world.tmp / "state").iterdir():  # the next one's address is another
            file.unlink()


@pytest.mark.parametrize("answer", [b"220 mail.example.org ESMTP\r\n" * 3,
                                    b"HTTP/1.1 100 Continue\r\n\r\n" * 50000],
                         ids=["mail", "endless"])
def test_what_is_no_http_is_said(world, answer):
    rank, = start_job(world)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def play():
            connection, _ = listener.accept()
            connection.recv(1 << 20)
            try:
                connection.sendall(answer)
            except OSError:
                pass  # it has heard enough
            connection.close()
        thread = threading.Thread(target=play, daemon=True)
        thread.start()
        done = ship(world, str(rank.pid), WRITE % listener.getsockname()[1])
        thread.join()
    assert done.returncode == 1 and "no HTTP" in done.stderr, done.stderr


def test_one_bad_series_takes_no_other_with_it(world, receive):  # noqa: F811
    rank, = start_job(world)
    add(rank, 40, apart=0.002)

    def answer(receiver, request):
        for labels, _ in remote_write(request["body"]):
            if labels["__name__"] == "probing_python_loss_loss" and labels["phase"] == "eval":
                return 400, {}, b"out of order sample"
        return 204, {}, b""
    to = receive(answer)
    done = ship(world, str(rank.pid), WRITE % to.port, "--tables", "python.loss")
    assert done.returncode == 0, done.stderr
    assert sent_steps(to) == list(range(40))
    assert len(samples(to, "probing_python_loss_loss")["train"]) <= 20
    assert "eval" not in samples(to, "probing_python_loss_loss")
    assert state_of(world)[0]["samples_refused"] > 0


def test_secrets_are_sent_and_never_shown(world, receive):  # noqa: F811
    rank, = start_job(world)
    to = receive()
    secret = world.tmp / "secret"
    secret.write_text("s3cret\n")
    secret.chmod(0o600)
    done = ship(world, str(rank.pid), WRITE % to.port, "--secret", str(secret))
    assert to.requests[-1]["headers"]["Authorization"] == "Bearer s3cret", done.stderr
    (world.tmp / "state" / "ship.json").unlink()
    done = ship(world, str(rank.pid), (WRITE % to.port).replace("//", "//me@"),
                env={"PROBING_SHIP_SECRET": "s3cret"})
    assert base64.b64decode(to.requests[-1]["headers"]["Authorization"].split()[1]) == b"me:s3cret"
    assert "s3cret" not in done.stderr + (world.tmp / "state" / "ship.json").read_text()
    secret.write_text("\n")
    done = ship(world, str(rank.pid), WRITE % to.port, "--secret", str(secret))
    assert done.returncode == 1 and "is empty" in done.stderr


def test_files_of_secrets_that_are_others_too_are_refused(world, receive):  # noqa: F811
    """Others could read the token, or have theirs sent in its place; the same for a key."""
    to = receive()
    file, other = world.tmp / "secret", world.tmp / "other"
    file.write_text("s3cret\n")
    other.write_text("s3cret\n")
    other.chmod(0o600)
    relay = ("relay", "--listen", "0", "--token-file")
    send = ("-t", "1", "ship", "--to", WRITE % to.port, "--state", str(world.tmp / "s.json"),
            "--once")
    ways = ((send + ("--secret",), "--secret"), (send + ("--key",), "--key"),
            (send + ("--cert",), "--cert"), (relay, "--token-file"))
    for mode in (0o644, 0o640, 0o620, 0o602):
        file.chmod(mode)
        for words, option in ways:
            done = world.probing(*words, str(file))
            assert done.returncode == 1 and "chmod 600" in done.stderr, (option, done.stderr)
            assert option in done.stderr and "mode %03o" % mode in done.stderr, done.stderr
    link = world.tmp / "link"  # what counts is the file
    link.symlink_to(file)
    done = world.probing(*send, "--secret", str(link))
    assert done.returncode == 1 and "chmod 600" in done.stderr, done.stderr
    if os.geteuid() == 0:  # who owns it knows it, whatever its mode; and may change it
        os.chown(other, 65534, -1)
        for words, option in ways:
            done = world.probing(*words, str(other))
            assert done.returncode == 1 and "belongs to user 65534" in done.stderr, done.stderr
    assert to.requests == []
    with_pipe = 'exec "$0" "$@" --secret <(printf "from a pipe\\nx\\n")'
    rank, = start_job(world)
    done = subprocess.run(["bash", "-c", with_pipe, str(CLI), "-t", str(rank.pid), *send[2:]],
                          env=world.env, capture_output=True, text=True)
    assert to.requests and done.returncode == 0, done.stderr
    assert to.requests[0]["headers"]["Authorization"] == "Bearer from a pipe"


def test_a_hostile_rank_is_left_out(world, receive):  # noqa: F811
    """Behind TCP: it lists tables and sends rows that cannot be; the others' rows come."""
    rank, = start_job(world)
    add(rank, 5, apart=0.002)
    to = receive()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]

        def play():
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                connection.recv(1 << 16)
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + b"\xff" * 100000)
                connection.close()
        threading.Thread(target=play, daemon=True).start()
        done = ship(world, "%d,127.0.0.1:%d" % (rank.pid, port), WRITE % to.port, "--tables",
                    "python.loss", env={"PROBING_TOKEN": "x"})
        listener.close()
    assert done.returncode == 1 and "127.0.0.1:%d" % port in done.stderr, done.stderr
    assert sent_steps(to) == list(range(5))


# ---- TLS ----

TLS_WRITE = "prometheus+https://127.0.0.1:%d/api/v1/write"


def certificate(folder, name, address="127.0.0.1"):
    """One that has signed itself, and its key, in a file."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make certificates with (Debian: openssl)")
    path = folder / (name + ".pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=" + name,
                    "-addext", "subjectAltName=IP:" + address, "-keyout", str(path), "-out",
                    str(folder / (name + ".cert"))], check=True, capture_output=True)
    path.write_text(path.read_text() + (folder / (name + ".cert")).read_text())
    return path


def test_over_tls_to_whom_the_certificate_names(world, receive):  # noqa: F811
    rank, = start_job(world)
    add(rank, 20, apart=0.002)
    server_file, client = certificate(world.tmp, "server"), certificate(world.tmp, "client")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(server_file)
    tls.load_verify_locations(client)
    tls.verify_mode = ssl.CERT_REQUIRED
    to = receive(tls=tls)
    words = (world, str(rank.pid), TLS_WRITE % to.port, "--tables", "python.loss", "--cacert",
             str(server_file), "--cert", str(client), "--key", str(client))
    done = ship(*words, env={"PROBING_SHIP_SECRET": "s3cret"})
    assert done.returncode == 0, done.stderr
    assert sent_steps(to) == list(range(20))
    assert to.requests[0]["headers"]["Authorization"] == "Bearer s3cret"


@pytest.mark.parametrize("fault", ["unknown", "another"])
def test_who_does_not_prove_who_it_is_gets_nothing(world, receive, fault):  # noqa: F811
    """Neither the token nor a row."""
    rank, = start_job(world)
    add(rank, 3)
    path = certificate(world.tmp, "server", "127.0.0.1" if fault == "unknown" else "10.0.0.1")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(path)
    to = receive(tls=tls)
    trust = [] if fault == "unknown" else ["--cacert", str(path)]
    done = ship(world, str(rank.pid), TLS_WRITE % to.port, *trust,
                env={"PROBING_SHIP_SECRET": "s3cret"})
    assert done.returncode == 1 and "does not prove who it is" in done.stderr, done.stderr
    assert to.requests == []


def test_without_libcurl_it_says_what_to_install(world):
    """The loader finds a file of that name that is no library."""
    rank, = start_job(world)
    for name in ("libcurl.so.4", "libcurl-gnutls.so.4"):
        (world.tmp / name).write_text("none")
    done = ship(world, str(rank.pid), WRITE % 9, env={"LD_LIBRARY_PATH": str(world.tmp)})
    assert done.returncode == 1 and "apt install libcurl4" in done.stderr, done.stderr


# ---- OpenTelemetry ----

def test_opentelemetry(world, receive):  # noqa: F811
    rank, = start_job(world)
    add(rank, 20, apart=0.002)
    done = rank.probing("eval", "import probing, time\n"
                                "with probing.span('outer', size=3):\n    time.sleep(0.02)\n"
                                "    with probing.span('inner'): pass")
    assert done.returncode == 0, done.stderr
    to = receive()
    done = ship(world, str(rank.pid), "otlp+http://127.0.0.1:%d/otel/" % to.port, "--tables",
                "python.*")
    assert done.returncode == 0, done.stderr
    paths = {r["path"] for r in to.requests}
    assert paths == {"/otel/v1/metrics", "/otel/v1/traces"}
    spans, metrics = [], {}
    for request in to.taken():
        for resource in parts(request["body"], 1):
            keys = {parts(pair, 1)[0].decode() for pair in parts(parts(resource, 1)[0], 1)}
            assert {"service.name", "host.name", "process.pid", "probing.rank"} <= keys
            for scope in parts(resource, 2):
                if request["path"].endswith("traces"):
                    spans += [dict(message(s)) for s in parts(scope, 2)]
                for metric in parts(scope, 2):
                    metrics.setdefault(parts(metric, 1)[0], []).append(dict(message(metric)))
    span = next(s for s in spans if s[5] == b"outer")
    inner = next(s for s in spans if s[5] == b"inner")
    assert inner[4] == span[2] and inner[1] == span[1] and 4 not in span
    took = int.from_bytes(span[8], "little") - int.from_bytes(span[7], "little")
    assert took >= 20e6 and len(span[1]) == 16 and len(span[2]) == 8
    assert len({s[2] for s in spans}) == len(spans)
    assert len(metrics[b"probing_python_loss_step"]) == 20
    counter = metrics[b"process_cpu_seconds_total"][0]
    assert 7 in counter and counter[3] == b"s" and dict(message(counter[7]))[2] == 2


def test_opentelemetry_as_its_own_library_reads_it(world, receive):  # noqa: F811
    pytest.importorskip("opentelemetry.proto")
    from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
    rank, = start_job(world)
    add(rank, 6, apart=0.002)
    rank.probing("eval", "import probing\nwith probing.span('outer', size=3): pass")
    to = receive()
    assert ship(world, str(rank.pid), "otlp+http://127.0.0.1:%d" % to.port, "--tables",
                "*").returncode == 0
    steps, names = [], []
    for request in to.requests:
        if request["path"] == "/v1/traces":
            read = trace_service_pb2.ExportTraceServiceRequest.FromString(request["body"])
            for span in read.resource_spans[0].scope_spans[0].spans:
                names.append(span.name)
                assert span.end_time_unix_nano >= span.start_time_unix_nano > 1e18
                assert "probing.table" in {a.key for a in span.attributes}
            continue
        read = metrics_service_pb2.ExportMetricsServiceRequest.FromString(request["body"])
        attributes = {a.key: a.value for a in read.resource_metrics[0].resource.attributes}
        assert attributes["process.pid"].int_value == rank.pid
        for metric in read.resource_metrics[0].scope_metrics[0].metrics:
            if metric.name == "probing_python_loss_step":
                point = metric.gauge.data_points[0]
                steps.append(point.as_int)
                assert {a.key: a.value.string_value for a in point.attributes}["phase"] in \
                    ("train", "eval")
    assert sorted(steps) == list(range(6)) and "outer" in names


def test_what_opentelemetry_refuses_is_counted(world, receive):  # noqa: F811
    rank, = start_job(world)
    to = receive(lambda receiver, request: (200, {}, bytes([0x0a, 2, 8, 3])))
    done = ship(world, str(rank.pid), "otlp+http://127.0.0.1:%d" % to.port)
    assert done.returncode == 0 and "3 samples or spans were left out" in done.stderr, done.stderr


@pytest.mark.parametrize("to", [WRITE, "otlp+http://127.0.0.1:%d"], ids=["remote-write", "otlp"])
def test_a_server_that_takes_no_long_requests_gets_short_ones(world, receive, to):  # noqa: F811
    """OpenTelemetry's figures were dropped without a word, and each range was halved anew."""
    rank, = start_job(world)
    add(rank, 1500, apart=0.0011)
    receiver = receive(lambda receiver, request: (
        (413, {}, b"too large") if len(request["body"]) > 6000 else (200, {}, b"")))
    done = ship(world, str(rank.pid), to % receiver.port, "--tables", "python.loss")
    assert done.returncode == 0 and "left out 0" in done.stderr, done.stderr
    steps, figures = set(), set()
    for request in receiver.taken():
        if to == WRITE:
            for labels, values in remote_write(request["body"]):
                figures.add(labels["__name__"])
                steps |= {v for _, v in values} if labels["__name__"].endswith("_step") else set()
            continue
        for metric in parts(parts(parts(request["body"], 1)[0], 2)[0], 2):
            name = parts(metric, 1)[0].decode()
            figures.add(name)
            if name == "probing_python_loss_step":
                point = parts(parts(metric, 5)[0], 1)[0]
                steps.add(int.from_bytes(parts(point, 6)[0], "little"))
    assert steps == set(range(1500)) and "process_threads" in figures
    refused = [r for r in receiver.requests if r["status"] == 413]
    assert 0 < len(refused) < 40


def test_figures_that_are_refused_are_counted_with_the_words(world, receive):  # noqa: F811
    """Nothing was said about OpenTelemetry's."""
    rank, = start_job(world)
    to = receive(lambda receiver, request: (400, {}, b"no such tenant\n"))
    done = ship(world, str(rank.pid), "otlp+http://127.0.0.1:%d" % to.port)
    left = int(re.search(r"(\d+) samples or spans were left out: .*; 127.0.0.1:\d+ answers 400: "
                         "no such tenant", done.stderr).group(1))
    assert left > 10 and state_of(world)[0]["samples_refused"] == left, done.stderr
    assert len(to.requests) == 1
    done = ship(world, str(rank.pid), WRITE % to.port, "--state",
                str(world.tmp / "state" / "other.json"))
    assert "answers 400: no such tenant" in done.stderr, done.stderr


# ---- real servers ----

@pytest.mark.parametrize("names,words,ready", [
    (("victoria-metrics", "victoria-metrics-prod"),
     lambda port: ("-httpListenAddr=127.0.0.1:%d" % port, "-storageDataPath=vm",
                   "-search.latencyOffset=0s"), "/health"),
    (("prometheus",),
     lambda port: ("--config.file=/dev/null", "--web.listen-address=127.0.0.1:%d" % port,
                   "--storage.tsdb.path=prom", "--web.enable-remote-write-receiver"), "/-/ready")],
    ids=["victoria-metrics", "prometheus"])
def test_real_servers_take_and_give_it_back(world, names, words, ready):
    rank, = start_job(world)
    port = server(world, names, words, ready)
    add(rank, 30, apart=0.003)
    done = ship(world, str(rank.pid), WRITE % port, "--tables", "python.loss")
    assert done.returncode == 0 and "left out 0" in done.stderr, done.stderr
    base = "http://127.0.0.1:%d/api/v1/query?query=" % port

    def value(query):
        found = get(base + query)["data"]["result"]
        return float(found[0]["value"][1]) if found else None
    assert wait_for(lambda: value("sum(count_over_time(probing_python_loss_step[1h]))"),
                    "the samples") == 30
    assert value("max(max_over_time(probing_python_loss_step[1h]))") == 29
    assert value("process_threads{rank=\"0\"}") > 0
    # The same once more is taken as the same.
    (world.tmp / "state" / "ship.json").unlink()
    assert ship(world, str(rank.pid), WRITE % port, "--tables", "python.loss").returncode == 0
    if names[0] == "prometheus":
        assert value("sum(count_over_time(probing_python_loss_step[1h]))") == 30
