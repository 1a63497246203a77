"""Where the chart's routers record to, and how much."""

import yaml

from tests.helm.chart import render_files


def parts(values: dict[str, object]) -> tuple[dict[str, object], dict[str, object]]:
    """The router's settings file, and the volume of its recordings."""
    files = render_files({"router": {"recording": values}})
    (configmap,) = (text for path, text in files.items() if path.endswith("router/configmap.yaml"))
    (deployment,) = (
        text for path, text in files.items() if path.endswith("router/deployment.yaml")
    )
    pod = yaml.safe_load(deployment)["spec"]["template"]["spec"]
    (volume,) = (one for one in pod["volumes"] if one["name"] == "recordings")
    (mount,) = (one for one in pod["containers"][0]["volumeMounts"] if one["name"] == "recordings")
    variables = {one["name"]: one.get("value", "") for one in pod["containers"][0]["env"]}
    assert variables["PANDO_ROUTER_RECORD"].startswith(mount["mountPath"] + "/$(POD_NAME)")
    return yaml.safe_load(yaml.safe_load(configmap)["data"]["router.yaml"]), volume


def test_routers_have_a_place_to_record_to_before_anybody_wants_it() -> None:
    settings, volume = parts({})
    assert settings["record_on"] is False
    assert volume == {"name": "recordings", "emptyDir": {}}


def test_recordings_are_bounded_by_the_values_and_may_outlive_the_pods() -> None:
    settings, volume = parts({"enabled": True, "gib": 0.5, "days": 30, "existingClaim": "kept"})
    assert settings["record_on"] is True
    assert settings["record_days"] == 30
    files, size = settings["record_files"], settings["record_file_bytes"]
    assert isinstance(files, int) and isinstance(size, int)
    assert files * size == 2**29
    assert volume == {"name": "recordings", "persistentVolumeClaim": {"claimName": "kept"}}
