"""A cluster that is not configured, or wrongly: one line says so."""

from pathlib import Path

import pytest

from pando.main import main
from pando_operator.kube.configuration import load_configuration
from pando_operator.kube.errors import KubeError

HOSTILE = "apiVersion: v1\ncurrent-context: a\ncontexts: {a: b}\nclusters: 3\nusers: [x]\n"


@pytest.mark.parametrize("content", ["{{{", "", "[]", "text", "a: 1", HOSTILE])
async def test_a_broken_file_is_refused_in_one_line(tmp_path: Path, content: str) -> None:
    file = tmp_path / "config"
    file.write_text(content)
    with pytest.raises(KubeError, match="no cluster is configured: ") as raised:
        await load_configuration(str(file))
    assert "\n" not in str(raised.value)


def test_a_file_that_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(SystemExit) as ended:
        main(["pools"])
    assert ended.value.code == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert f"there is no kubeconfig file {tmp_path / 'none'}" in line


async def test_a_file_that_is_no_yaml_is_named_with_the_line(tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text("users:\n- {token: secret\n")
    with pytest.raises(KubeError) as raised:
        await load_configuration(str(path))
    assert f"the kubeconfig file {path} is not YAML: expected ',' or '}}'" in str(raised.value)
    assert str(raised.value).endswith("in line 3")
    assert "secret" not in str(raised.value)
    path.write_text("users:\n- {token: 2024-99-99}\n")
    with pytest.raises(KubeError, match=r"is not YAML: .* of type timestamp .* in line 2$"):
        await load_configuration(str(path))
