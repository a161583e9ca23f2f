"""The samples for proxies: taken by the proxies themselves, and open to nothing but what is public."""

from __future__ import annotations

import datetime
import re
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from deploy.debian import DEPLOY, check

SAMPLES = ("nginx.conf", "haproxy.cfg")
OPERATORS = ("8101", "8202", "8300", "8302", "/metrics")


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    """A folder with a certificate of our own, its key, and both in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "relay.example")])
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=36500))
        .sign(key, hashes.SHA256())
    )
    chain = certificate.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    for file, content in (("fullchain.pem", chain), ("key.pem", private), ("both.pem", chain + private)):
        (tmp_path / file).write_bytes(content)
    return tmp_path


def sample(name: str, certificates: Path) -> str:
    """A sample with the certificates that there are."""
    return (DEPLOY / "proxy" / name).read_text().replace("/etc/ssl/millrace/", f"{certificates}/")


def test_haproxy_takes_its_sample(certificates: Path) -> None:
    """`haproxy -c` finds no fault and warns of nothing."""
    (certificates / "haproxy.cfg").write_text(sample("haproxy.cfg", certificates))
    output = check("haproxy", "-c", "-V", "-f", "haproxy.cfg", folder=certificates)
    assert "WARNING" not in output.upper()


def test_nginx_takes_its_sample(certificates: Path) -> None:
    """`nginx -t` finds no fault and warns of nothing."""
    (certificates / "millrace.conf").write_text(sample("nginx.conf", certificates))
    (certificates / "nginx.conf").write_text(
        f"pid {certificates}/pid;\nerror_log stderr;\nevents {{}}\nhttp {{ access_log off;\n"
        + "".join(f"{kind}_temp_path {certificates}/{kind};\n" for kind in ("client_body", "proxy"))
        + f"include {certificates}/millrace.conf; }}\n"
    )
    output = check("nginx", "-t", "-c", certificates / "nginx.conf", "-p", certificates, folder=certificates)
    assert "[warn]" not in output and "[emerg]" not in output


@pytest.mark.parametrize("name", SAMPLES)
def test_operators_are_not_public(name: str) -> None:
    """No sample passes anything on to an operators' port or to the notifier."""
    lines = (DEPLOY / "proxy" / name).read_text().splitlines()
    rules = "\n".join(line for line in lines if not line.strip().startswith("#"))
    assert not [word for word in OPERATORS if re.search(rf"{re.escape(word)}\b", rules)]
