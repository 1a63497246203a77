"""`python -m pando_operator.declared apply|delete NAMESPACE CONFIGMAP` exits with 0 once all is
applied, or all is deleted."""

import asyncio
import sys

from pando_operator.declared.apply import DeclaredError, apply_declared, delete_declared
from pando_operator.kube.client import Kube
from pando_operator.kube.configuration import load_configuration
from pando_operator.kube.errors import KubeError
from pando_operator.kube.resources import Key

LIMIT_S = 120.0
DOES = {"apply": apply_declared, "delete": delete_declared}


async def run(what: str, namespace: str, config_map: str) -> None:
    kube = Kube(await load_configuration())
    try:
        async with asyncio.timeout(LIMIT_S):
            await DOES[what](kube, Key(namespace, config_map), print)
    finally:
        await kube.close()


def main(arguments: list[str]) -> int:
    if len(arguments) != 3 or arguments[0] not in DOES:
        usage = "usage: python -m pando_operator.declared apply|delete NAMESPACE CONFIGMAP"
        print(usage, file=sys.stderr)
        return 2
    try:
        asyncio.run(run(*arguments))
    except TimeoutError:
        print(f"gave up after {LIMIT_S:.0f} s", file=sys.stderr)
        return 1
    except (KubeError, DeclaredError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
