"""The `pando` command.

Each subcommand imports its component only when it runs or shows its help, and most of it only once
its settings are right. So `pando --help` is fast, a mistake is reported at once, and a router
never loads torch.
"""

import errno
import sys
from collections.abc import Callable, Sequence
from functools import partial

import click

from pando.usage import Group, StrictCommand, line_of


def _up() -> click.Command:
    from pando.settings.options import settings_command
    from pando.up.command import run
    from pando.up.plan import PARTS
    from pando.up.settings import UpSettings

    return settings_command("up", UpSettings, run, PARTS)


def _demo() -> click.Command:
    from pando.demo.command import run
    from pando.demo.settings import DemoSettings
    from pando.settings.options import settings_command

    return settings_command("demo", DemoSettings, lambda settings, log, _: run(settings, log))


def _worker() -> click.Command:
    from pando.logs import LogSettings, configure
    from pando.settings.load import Sources
    from pando.settings.options import settings_command
    from pando_worker.settings import WorkerSettings

    def run(settings: WorkerSettings, log_settings: LogSettings, _: Sources[WorkerSettings]) -> int:
        from pando_worker.serve import run

        return run(settings, partial(configure, log_settings))

    return settings_command("worker", WorkerSettings, run)


def _router() -> click.Command:
    from pando.logs import LogSettings, configure
    from pando.settings.load import Sources
    from pando.settings.options import settings_command
    from pando_router.configuration.settings import RouterSettings

    def run(
        settings: RouterSettings, log_settings: LogSettings, sources: Sources[RouterSettings]
    ) -> int:
        from pando_router.configuration.reloader import SettingsSource
        from pando_router.serve import run

        source = SettingsSource(sources.config, sources.load) if sources.config else None
        return run(settings, partial(configure, log_settings), source)

    return settings_command("router", RouterSettings, run)


def _operator() -> click.Command:
    from pando.logs import LogSettings, configure
    from pando.settings.load import Sources
    from pando.settings.options import settings_command
    from pando_operator.settings import OperatorSettings

    def run(
        settings: OperatorSettings, log_settings: LogSettings, _: Sources[OperatorSettings]
    ) -> int:
        from pando_operator.serve import run

        return run(settings, partial(configure, log_settings))

    return settings_command("operator", OperatorSettings, run)


def _pools() -> click.Command:
    from pando.pools.command import pools_command

    return pools_command()


def _sim() -> click.Command:
    from pando.sim.command import sim_command

    return sim_command()


def _tune() -> click.Command:
    from pando.tune.command import tune_command

    return tune_command()


def _record() -> click.Command:
    from pando.record.command import command

    return command


def _keys() -> click.Command:
    from pando.keys import keys_group

    return keys_group()


def _version() -> click.Command:
    return StrictCommand("version", callback=_show_version, help="Show Pando's version.")


def _show_version() -> None:
    from pando_fleet.distribution import version

    click.echo(f"pando {version()}")


def _help() -> click.Command:
    def show(words: tuple[str, ...]) -> None:
        group.main([*words, "--help"], prog_name="pando", standalone_mode=False)

    words = click.Argument(["words"], metavar="[COMMAND]...", nargs=-1)
    return StrictCommand("help", callback=show, params=[words], help="Show a command's help.")


COMMANDS: dict[str, tuple[str, Callable[[], click.Command]]] = {
    "up": ("Serve a model on this machine: a router, workers and Redis.", _up),
    "demo": ("Compare cache-aware routing with round robin on shared conversations.", _demo),
    "worker": ("Run one worker: a model, its HTTP server and its scheduler.", _worker),
    "router": ("Run one router: the fleet's OpenAI API.", _router),
    "operator": (
        "Run the operator, which scales the WorkerPools of a Kubernetes cluster.",
        _operator,
    ),
    "pools": ("Show the pools of a Kubernetes cluster, their pressure and decisions.", _pools),
    "record": ("Fetch what routers recorded of their traffic, as a trace.", _record),
    "sim": ("Replay a trace against a simulated fleet, to compare policies.", _sim),
    "tune": ("Search the settings of a pool that serve a trace best.", _tune),
    "keys": ("Make API keys for routers.", _keys),
    "version": ("Show Pando's version.", _version),
    "help": ("Show a command's help: pando help up.", _help),
}

_EXTRAS = {"demo": "up", "pools": "operator", "record": "sim", "tune": "sim"}
"""What a command's packages are installed with, where it is not the extra of its own name."""


class _LazyGroup(Group):
    """A group that creates a command only when it is used, and lists commands without that."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        _, make = COMMANDS[cmd_name]
        return make()

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        ctx.invoked_subcommand = args[0]  # already now: its module may lack what it imports
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.startswith("pando"):
                raise
            from pando_fleet.distribution import how_to_install

            command = ctx.invoked_subcommand or ""
            raise click.ClickException(
                f"{command} needs the Python package {error.name}, which is not installed:"
                f" {how_to_install(_EXTRAS.get(command, command))}"
            ) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (summary, _) in COMMANDS.items()])


def _version_option() -> click.Option:
    def show(ctx: click.Context, parameter: click.Parameter, is_given: bool) -> None:
        if is_given:
            _show_version()
            ctx.exit()

    return click.Option(
        ["-V", "--version"], is_flag=True, is_eager=True, expose_value=False, callback=show
    )


group = _LazyGroup(
    "pando",
    help="LLM serving: many engines, one prefix tree.",
    params=[_version_option()],
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the `pando` script. An error prints one line to stderr. The exit code is 2 for
    wrong usage, 1 for a failure, and 130 after Ctrl-C before the end.

    `arguments` default to those of the command line.
    """
    try:
        group.main(arguments, prog_name="pando", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:  # no mistake, but not a command either
        click.echo(error.ctx.get_help() if error.ctx else "", err=True)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        click.echo(line_of(error), err=True)
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except OSError as error:  # most commands write to standard output, which may be a file
        if error.errno != errno.ENOSPC:
            raise
        click.echo(
            f"pando: cannot write {error.filename or 'the output'}: {error.strerror}", err=True
        )
        sys.exit(1)
