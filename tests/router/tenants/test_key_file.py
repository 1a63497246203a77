"""Key files: valid ones are read, others are refused in one line that contains no key."""

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from pydantic import SecretStr

from pando.main import group
from pando_fleet.records.limits import Limits
from pando_router.api_keys.key_file import KeyFileError, read_keys
from pando_router.api_keys.keyring import digest_of, new_key
from pando_router.telemetry.metrics import Metrics
from pando_router.tenants.tenants import Tenants

DIGEST = digest_of("sk-pando-one")
KEYS = f"[{{sha256: {DIGEST}}}]"


def entry(tenant: str, *keys: str, **fields: object) -> str:
    """A key file with one tenant."""
    given = {"keys": [{"sha256": digest_of(key)} for key in keys], **fields}
    return yaml.safe_dump({"tenants": {tenant: given}})


def test_a_file_says_which_tenant_has_a_key_and_its_permissions(tmp_path: Path) -> None:
    file = tmp_path / "keys.yaml"
    file.write_text(
        f"""
tenants:
  search:
    keys:
      - sha256: {digest_of("old")}
        expires: 2030-01-31T00:00:00Z
      - sha256: {digest_of("new").upper()}
    models: [llama, qwen]
    requests_per_minute: 60
    tokens_per_minute: 10000
    weight: 2
    priority: -1
    isolate: true
  boss: {{keys: [{{sha256: {DIGEST}}}], admin: true}}
"""
    )
    keyring = read_keys(file)
    old, new, boss = (keyring.find(key) for key in (b"old", b"new", b"sk-pando-one"))
    assert old and new and boss
    assert old.expires == 1_896_048_000 and new.expires is None
    assert old.tenant is new.tenant
    search = old.tenant
    assert (search.limits, search.weight, search.priority) == (Limits(60, 10_000), 2, -1)
    assert (search.isolate, search.admin, boss.tenant.admin) == (True, False, True)
    assert [search.may_use(model) for model in ("llama", "qwen", "gemma")] == [True, True, False]
    assert boss.tenant.may_use("gemma") and not boss.tenant.limits
    assert keyring.find(b"neither") is None


def test_files_of_a_mounted_secret_are_read_as_one(tmp_path: Path) -> None:
    secret = mounted(tmp_path, a=entry("a", "key-a"), b=entry("b", "key-b"))
    assert set(read_keys(secret).tenants) == {"a", "b"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("tenants: {a: {keys: [{sha256: sk-pando-secret}]}}", "64 hexadecimal digits"),
        (f"tenants: {{'a b': {{keys: {KEYS}}}}}", "a name has at most 64"),
        (
            f"tenants: {{a: {{keys: {KEYS}, modles: []}}}}",
            "'a': modles is an unknown field; known are keys, models",
        ),
        (f"tenants: {{a: {{keys: {KEYS}, weight: 0}}}}", "weight"),
        (
            f"tenants: {{a: {{keys: {KEYS}, requests_per_minute: 0}}}}",
            "requests_per_minute must be an integer, at least 1",
        ),
        (f"tenants: {{a: {{keys: {KEYS}}}, b: {{keys: {KEYS}}}}}", "occurs twice, first for 'a'"),
        (f"tenants: {{a: {{keys: {KEYS}}}}}\ntenants: {{}}", "'tenants' occurs twice in line 2"),
        (
            f"tenants: {{a: {{keys: [{{sha256: {DIGEST}, expires: 2030-01-31}}]}}}}",
            "expires must be",
        ),
        (
            f"tenants: {{a: {{keys: [{{sha256: {DIGEST}, expires: 2030-01-31 10:00:00}}]}}}}",
            "needs a time zone",
        ),
        ("tenants: {a: [sk-pando-secret", "not YAML"),
        ("sk-pando-secret", "object"),
        ("", "object"),
        (f"tenants: {{a: {{keys: {KEYS}, share: 0.5}}}}", "requires isolate: true"),
        (f"tenants: {{a: {{keys: {KEYS}, isolate: true, share: 0}}}}", "0.001"),
        ("? {a: 1}\n: 2", "not YAML"),
        ("[" * 5000, "nested too deeply"),
        (f"tenants: {{a: {{keys: [{{sha256: {DIGEST}, expires: 2030-13-01}}]}}}}", "month"),
        (b"\xff\xfe", "not UTF-8"),
    ],
)
def test_what_is_wrong_is_said_without_a_key(
    tmp_path: Path, text: str | bytes, problem: str
) -> None:
    file = tmp_path / "keys.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(KeyFileError) as raised:
        read_keys(file)
    message = str(raised.value)
    assert problem in message and str(file) in message
    assert "secret" not in message.replace(str(tmp_path), "") and "\n" not in message


def test_a_tenant_is_in_one_file_alone(tmp_path: Path) -> None:
    secret = mounted(tmp_path, a=entry("a", "key-a"), b=entry("a", "key-b"))
    with pytest.raises(KeyFileError, match="'a' is also in another file"):
        read_keys(secret)


def test_a_new_file_counts_when_it_is_right_and_a_wrong_one_leaves_the_old_keys(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, metrics = tmp_path / "keys.yaml", Metrics()
    file.write_text(entry("a", "key-a"))
    tenants = Tenants(file, metrics.tenants)
    assert tenants.of([(b"x-api-key", b"key-a")]).name == "a"
    for broken in ("tenants: {a", "", None):
        file.unlink() if broken is None else file.write_text(broken)
        tenants.look(file)
        tenants.look(file)
        assert tenants.of([(b"x-api-key", b"key-a")]).name == "a"
        assert metrics.registry.get_sample_value("pando_router_api_keys_valid") == 0
    assert len([r for r in caplog.records if r.levelname == "ERROR"]) == 3
    file.write_text(entry("b", "key-b"))
    tenants.look(file)
    assert tenants.of([(b"x-api-key", b"key-b")]).name == "b"
    assert metrics.registry.get_sample_value("pando_router_api_keys_valid") == 1
    with pytest.raises(Exception, match="is unknown"):
        tenants.of([(b"x-api-key", b"key-a")])


def test_the_admin_key_is_known_besides_those_of_each_file(tmp_path: Path) -> None:
    file, key = tmp_path / "keys.yaml", b"a key of sixteen bytes"
    file.write_text(entry("a", "key-a"))
    tenants = Tenants(file, Metrics().tenants, SecretStr(key.decode()))
    assert tenants.of([(b"x-api-key", key)]).admin
    assert not tenants.of([(b"x-api-key", b"key-a")]).admin
    file.write_text(entry("bb", "key-b"))
    tenants.look(file)
    assert tenants.of([(b"x-api-key", key)]).admin
    assert tenants.of([(b"x-api-key", b"key-b")]).name == "bb"


def test_a_secret_that_kubernetes_swaps_is_read_again(tmp_path: Path) -> None:
    secret = mounted(tmp_path, keys=entry("a", "key-a"))
    tenants = Tenants(secret, Metrics().tenants)
    swap(secret, keys=entry("b", "key-b"))
    tenants.look(secret)
    assert tenants.of([(b"authorization", b"Bearer key-b")]).name == "b"


def test_a_removed_tenant_leaves_no_metric(tmp_path: Path) -> None:
    file, metrics = tmp_path / "keys.yaml", Metrics()
    file.write_text(entry("a", "key-a"))
    tenants = Tenants(file, metrics.tenants)
    metrics.tenants.of("a").requests.inc()
    assert b'tenant="a"' in metrics.render()
    file.write_text(entry("bb", "key-b"))
    tenants.look(file)
    assert b'tenant="a"' not in metrics.render()


def test_keys_new_makes_a_key_that_its_entry_knows(tmp_path: Path) -> None:
    done = CliRunner().invoke(group, ["keys", "new", "--tenant", "acme"])
    key = done.stderr.split()[-1]
    assert key not in done.stdout
    file = tmp_path / "keys.yaml"
    file.write_text(done.stdout)
    found = read_keys(file).find(key.encode())
    assert found and found.tenant.name == "acme"
    assert len({new_key() for _ in range(100)}) == 100


def test_keys_new_refuses_a_name_that_no_file_may_have() -> None:
    done = CliRunner().invoke(group, ["keys", "new", "--tenant", "a\nb"])
    assert done.exit_code == 2 and "sk-pando-" not in done.output


def mounted(folder: Path, **files: str) -> Path:
    """A folder like the kubelet's mount of a Secret: links to links to files."""
    secret = folder / "secret"
    secret.mkdir()
    for name in files:
        (secret / name).symlink_to(Path("..data") / name)
    swap(secret, **files)
    return secret


def swap(secret: Path, **files: str) -> None:
    """Like the kubelet: a new folder, and one link that is replaced."""
    content = secret / f"..{len(list(secret.iterdir()))}"
    content.mkdir()
    for name, text in files.items():
        (content / name).write_text(text)
    link = secret / "..data_tmp"
    link.symlink_to(content.name)
    link.replace(secret / "..data")
