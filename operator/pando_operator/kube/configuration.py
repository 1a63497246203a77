"""Which cluster it is, and with whose credentials: a pod's service account or a kubeconfig file.

A wrong file is reported before the official client is imported, which takes longer than all else
that a command does until then.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from pando_fleet import strict_yaml
from pando_operator.kube.errors import KubeError

if TYPE_CHECKING:
    from kubernetes.aio.client.configuration import Configuration

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
IN_CLUSTER = _ACCOUNT / "token"


async def load_configuration(kubeconfig: str = "") -> "Configuration":
    """The API server's address and our credentials: from the file given, else the pod's service
    account, else KUBECONFIG or ~/.kube/config. Raises KubeError if none can be read."""
    from_pod = not kubeconfig and _in_cluster()
    if not from_pod:
        _check(_files(kubeconfig))
    from kubernetes.aio import config as kube_config
    from kubernetes.aio.client.configuration import Configuration

    configuration = Configuration()
    try:
        if from_pod:
            kube_config.load_incluster_config(client_configuration=configuration)
        else:
            await kube_config.load_kube_config(
                config_file=_files(kubeconfig),
                client_configuration=configuration,
                persist_config=False,
            )
    except (kube_config.ConfigException, OSError) as error:
        raise KubeError(f"no cluster is configured: {error}") from error
    except Exception as error:  # the client's own of other content
        what = " ".join(str(error).split())
        raise KubeError(
            f"no cluster is configured: the kubeconfig file is broken: {what}"
        ) from error
    return configuration


def own_namespace(kubeconfig: str = "") -> str:
    """The namespace of this pod, or of the kubeconfig's context. Call `load_configuration` first,
    which says what is wrong with a kubeconfig."""
    file = _ACCOUNT / "namespace"
    if not kubeconfig and file.is_file():
        return file.read_text().strip()
    from kubernetes.aio import config as kube_config

    _, active = kube_config.list_kube_config_contexts(_files(kubeconfig))
    return str(active["context"].get("namespace") or "default")


def _in_cluster() -> bool:
    return "KUBERNETES_SERVICE_HOST" in os.environ and IN_CLUSTER.exists()


def _files(kubeconfig: str) -> str:
    """The file given, else those of the environment, with colons between them."""
    return kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"


def _check(files: str) -> None:
    """Raises KubeError if none of the files exists, or one is not YAML. They are merged, and those
    that are missing left out."""
    paths = [Path(file).expanduser() for file in files.split(os.pathsep) if file]
    found = [path for path in paths if path.exists()]
    if not found:
        missing = os.pathsep.join(map(str, paths))
        raise KubeError(
            f"no cluster is configured: there is no kubeconfig file {missing}; the variable"
            " KUBECONFIG names another"
        )
    for path in found:
        try:
            strict_yaml.load(path.read_bytes())
        except OSError as error:
            raise KubeError(f"no cluster is configured: {error}") from error
        except yaml.YAMLError as error:
            raise KubeError(
                f"no cluster is configured: the kubeconfig file {path} is not YAML:"
                f" {strict_yaml.problem_of(error)}"
            ) from error
