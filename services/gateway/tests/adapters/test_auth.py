from pathlib import Path

import pytest

from cotenant_common.runtime.settings import SettingsError
from cotenant_gateway.adapters.http.auth import Guard, is_loopback, read_token
from cotenant_gateway.core.errors import ApiError

TOKEN = "0123456789abcdef"


def token_file(path: Path, text: str = TOKEN, mode: int = 0o600) -> Path:
    file = path / "token"
    file.write_text(text + "\n")
    file.chmod(mode)
    return file


def test_an_address_that_others_reach_needs_a_token(tmp_path):
    with pytest.raises(SettingsError, match=r"api_token_file: required because api_host is 0\.0\.0\.0"):
        read_token(None, "0.0.0.0")
    assert read_token(None, "127.0.0.1") is None
    assert read_token(token_file(tmp_path), "0.0.0.0") == TOKEN


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_token_that_others_can_read_is_refused(tmp_path, mode):
    with pytest.raises(SettingsError, match="others can read it; run chmod 600"):
        read_token(token_file(tmp_path, mode=mode), "127.0.0.1")


def test_a_short_or_missing_token_is_refused(tmp_path):
    with pytest.raises(SettingsError, match="expected at least 16"):
        read_token(token_file(tmp_path, "short"), "127.0.0.1")
    with pytest.raises(SettingsError, match="cannot read"):
        read_token(tmp_path / "none", "127.0.0.1")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost", "a.localhost", "::1", "[::1]", "LOCALHOST."])
def test_loopback_names(host):
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.1", "localhost.evil.com", "127.0.0.1.evil.com", "", "::"])
def test_other_names_are_not_loopback(host):
    assert not is_loopback(host)


def refusal(guard: Guard, **headers: str) -> tuple[int, str] | None:
    try:
        guard.check({name.replace("_", "-"): value for name, value in headers.items()})
    except ApiError as error:
        return error.status, error.reason
    return None


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Host": "127.0.0.1:7070"}, None),
        ({"Host": "[::1]:7070"}, None),
        ({"Host": "evil.example:7070"}, (403, "HostNotAllowed")),
        ({"Host": ""}, (403, "HostNotAllowed")),
        ({"Host": "localhost", "Origin": "http://localhost:7070"}, None),
        ({"Host": "localhost", "Origin": "https://evil.example"}, (403, "OriginNotAllowed")),
        ({"Host": "localhost", "Origin": "null"}, (403, "OriginNotAllowed")),
        ({"Host": "localhost", "Sec_Fetch_Site": "cross-site"}, (403, "OriginNotAllowed")),
        ({"Host": "box.lan", "Origin": "http://box.lan"}, None),
    ],
)
def test_without_a_token_only_this_machine_is_answered(headers, expected):
    assert refusal(Guard(None, ["box.lan"]), **headers) == expected


def test_with_a_token_the_name_does_not_matter_and_the_token_does():
    guard = Guard(TOKEN)
    assert refusal(guard, Host="box.lan", Authorization=f"Bearer {TOKEN}") is None
    assert refusal(guard, Host="localhost") == (401, "Unauthorized")
    assert refusal(guard, Host="localhost", Authorization=f"Bearer {TOKEN}x") == (401, "Unauthorized")
    assert refusal(guard, Host="localhost", Authorization=f"Basic {TOKEN}") == (401, "Unauthorized")
    assert refusal(guard, Host="localhost", Authorization="Bearer ümlaut") == (401, "Unauthorized")


def test_odd_headers_are_refused_not_a_failure():
    for origin in ("http://[::1", "null", "", "http://", "http://localhost.evil.example", "http://127.0.0.1.nip.io"):
        with pytest.raises(ApiError) as caught:
            Guard(None).check({"Host": "localhost", "Origin": origin})
        assert caught.value.status == 403
    for host in ("", "[::1", "evil.example", "127.0.0.1@evil.example:80", "0.0.0.0", "localhost.evil.example"):
        with pytest.raises(ApiError):
            Guard(None).check({"Host": host})
    for given in ("Bearer \udcff\udcfe", "Bearer é", "Bearer", "Basic " + TOKEN, ""):
        with pytest.raises(ApiError) as caught:
            Guard(TOKEN).check({"Host": "x", "Authorization": given})
        assert caught.value.status == 401


def test_a_token_file_that_is_no_text_is_refused(tmp_path):
    file = token_file(tmp_path)
    file.write_bytes(b"\xff" * 20)
    with pytest.raises(SettingsError, match="not UTF-8"):
        read_token(file, "127.0.0.1")
