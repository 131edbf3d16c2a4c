"""`fedgsp site check`: each thing that can be wrong with a site is found, and said in a way that can be acted on."""

from __future__ import annotations

import email.utils
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")

from fedgsp.deploy.certificates import Authority, make_node_key
from fedgsp.deploy.generate import Expected
from fedgsp.deploy.sitecheck import Check, check_site


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site in order: 20 images of its own, keys, an authority."""
    folder = tmp_path / "site"
    folder.mkdir()
    data(folder, np.arange(20) % 3)
    (folder / "site.toml").write_text('[site]\nname = "north"\n[data]\nsource = "npz:mine.npz:classes=3"\nclient = "0"\n')
    (folder / "federation.toml").write_text(Expected((8, 8), "uint8", 3).to_toml())
    make_node_key(folder / "node.key", folder / "node.pub", "north")
    Authority.make("test").write(folder / "ca.crt", tmp_path / "ca.key")
    return folder


def data(folder: Path, labels: np.ndarray[tuple[int], np.dtype[np.int64]], shape: tuple[int, ...] = (8, 8)) -> None:
    features = np.zeros((len(labels), *shape), dtype=np.uint8)
    np.savez(folder / "mine.npz", features=features, labels=labels, client_index=np.zeros(len(labels), dtype=np.int64))


def csv(folder: Path, labels: list[str]) -> None:
    (folder / "mine.csv").write_text("x,who,label\n" + "".join(f"{k},me,{label}\n" for k, label in enumerate(labels)))
    text = '[site]\nname = "north"\n[data]\nsource = "csv:mine.csv:label=label,client=who"\n'
    (folder / "site.toml").write_text(text)


def found(folder: Path, **options: bool) -> dict[str, Check]:
    return {check.name: check for check in check_site(folder, None, offline=True, **options)}


def test_a_site_in_order(site: Path) -> None:
    checks = found(site)
    assert {name: check.verdict for name, check in checks.items()} == dict.fromkeys(
        ("site.toml", "sizes", "shapes", "labels", "disk", "keys", "authority"), "ok"
    )
    assert checks["sizes"].text == "client '0': 18 training and 2 test samples"
    assert checks["labels"].text == "3 classes, 3 of them held here"


def test_nothing_is_changed(site: Path) -> None:
    before = sorted(site.rglob("*"))
    found(site)
    assert sorted(site.rglob("*")) == before


def test_settings_that_cannot_be_read(site: Path) -> None:
    (site / "site.toml").write_text('[site]\nname = "north"\n[data]\nsourse = "x"\n')
    assert "sourse" in found(site)["site.toml"].text


def test_data_that_is_not_there(site: Path) -> None:
    (site / "mine.npz").unlink()
    assert found(site)["data"].verdict == "wrong"


def test_a_client_that_is_not_there(site: Path) -> None:
    text = (site / "site.toml").read_text().replace('client = "0"', 'client = "someone"')
    (site / "site.toml").write_text(text)
    assert "someone" in found(site)["data"].text


def test_other_shapes(site: Path) -> None:
    data(site, np.arange(20) % 3, (8, 9))
    check = found(site)["shapes"]
    assert check.verdict == "wrong"
    assert "[8, 9]" in check.text
    assert "[8, 8]" in check.text


def test_other_kinds_of_numbers(site: Path) -> None:
    (site / "federation.toml").write_text(Expected((8, 8), "float32", 3).to_toml())
    assert "uint8" in found(site)["shapes"].text


def test_another_number_of_classes(site: Path) -> None:
    (site / "federation.toml").write_text(Expected((8, 8), "uint8", 62).to_toml())
    check = found(site)["labels"]
    assert check.verdict == "wrong"
    assert "classes=62" in check.text


def test_a_vocabulary_that_lacks_a_label_would_number_the_others_differently(site: Path) -> None:
    (site / "federation.toml").write_text(Expected((1,), "float32", 3, ("cat", "dog", "eel")).to_toml())
    csv(site, ["cat", "eel"] * 10)
    check = found(site)["labels"]
    assert check.verdict == "wrong"
    assert "missing here: dog" in check.text
    csv(site, ["cat", "dog", "eel", "fox"] * 5)
    assert "unknown to the federation: fox" in found(site)["labels"].text
    csv(site, ["cat", "dog", "eel"] * 7)
    assert found(site)["labels"].verdict == "ok"


def test_few_samples_are_worth_a_remark(site: Path) -> None:
    data(site, np.arange(5) % 3)
    assert found(site)["sizes"].verdict == "note"


def test_nothing_expected_is_known(site: Path) -> None:
    (site / "federation.toml").unlink()
    assert found(site)["shapes and labels"].verdict == "note"
    (site / "federation.toml").write_text("schema = 7\n")
    assert found(site)["shapes and labels"].verdict == "wrong"


def test_a_key_that_others_can_read(site: Path) -> None:
    (site / "node.key").chmod(0o644)
    assert "chmod 600" in found(site)["keys"].text


def test_keys_that_do_not_belong_together(site: Path, tmp_path: Path) -> None:
    make_node_key(tmp_path / "other.key", tmp_path / "other.pub", "other")
    (tmp_path / "other.pub").replace(site / "node.pub")
    assert "not the public part" in found(site)["keys"].text


def test_no_key_and_no_authority(site: Path) -> None:
    (site / "node.key").unlink()
    (site / "ca.crt").unlink()
    checks = found(site)
    assert checks["keys"].verdict == checks["authority"].verdict == "wrong"
    assert "INSECURE" in found(site, insecure=True)["keys"].text


def test_an_authority_that_ran_out(site: Path, tmp_path: Path) -> None:
    for days, verdict in ((-3, "wrong"), (10, "note")):
        _authority(days).write(site / "ca.crt", tmp_path / f"ca{days}.key")
        assert found(site)["authority"].verdict == verdict, days


def _authority(days: int) -> Authority:
    """An authority whose certificate ends so many days from now (one that has ended also began long ago)."""
    import datetime

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    made = Authority.make("test")
    now = datetime.datetime.now(datetime.UTC)
    name = made.certificate.subject
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(made.key.public_key())
    builder = builder.serial_number(1).not_valid_before(now - datetime.timedelta(days=100))
    builder = builder.not_valid_after(now + datetime.timedelta(days=days))
    return Authority(builder.sign(made.key, hashes.SHA256()), made.key)


@contextmanager
def answering(site: Path, tmp_path: Path, ahead: float) -> Iterator[str]:
    """A server with the right certificate, that knows the node, and whose clock is `ahead` seconds behind this machine's."""
    authority = Authority.make("test")
    (site / "ca.crt").unlink()
    authority.write(site / "ca.crt", tmp_path / "again.key")
    authority.sign_server(["127.0.0.1"], tmp_path / "s.crt", tmp_path / "s.key")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response_only(412)
            self.send_header("Date", email.utils.formatdate(time.time() - ahead, usegmt=True))
            self.end_headers()
            self.wfile.write(b"Heartbeat interval -1.0 is out of bounds")

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "s.crt", tmp_path / "s.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize(
    ("ahead", "verdict"), [(0, "ok"), (20, "wrong"), (-100, "ok"), (-200, "note"), (-400, "wrong")]
)  # fmt: skip
def test_a_clock_that_is_off(site: Path, tmp_path: Path, ahead: float, verdict: str) -> None:
    with answering(site, tmp_path, ahead) as address:
        checks = {check.name: check for check in check_site(site, address)}
    assert checks["clock"].verdict == verdict, checks["clock"].text
    assert checks["connection"].verdict == "ok"


def test_nobody_there(site: Path) -> None:
    checks = {check.name: check for check in check_site(site, "127.0.0.1:1")}
    assert "nobody answers" in checks["connection"].text
    assert "--superlink" in {check.name: check for check in check_site(site, None)}["connection"].text
