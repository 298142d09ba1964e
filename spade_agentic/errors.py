"""Every error that spade-agentic raises, in one tree.

::

    SpadeError
    ├── UserError (also ValueError)   the user can mend it; the command line exits with 2
    │   ├── ConfigError               a run's YAML, an override or an option is wrong
    │   ├── PluginError               a plugin is missing, broken, or answers with the wrong thing
    │   └── RunDirError               a run directory is missing, locked, or not readable
    ├── EnvironmentFault              a program misbehaved: crash, wrong reward, broken protocol
    │   └── EnvironmentTimeout        ... or did not answer before its deadline
    ├── SandboxError                  the sandbox itself failed, whatever the program did
    │   └── SandboxUnavailable        this backend cannot run on this machine
    ├── EngineError                   an inference server failed or refused a request
    │   ├── EngineUnavailable         no answer, or the server is gone
    │   ├── ContextOverflow           a conversation does not fit the model's context any more
    │   └── WeightUpdateFailed        the weights that a server holds are not the ones published
    ├── LearnerError                  a training step could not be taken
    └── StoreError                    the run store refused a commit or holds something impossible

A message says what happened, to which object, and what to do. A failed play is not an error: it is a
:class:`~spade_agentic.hooks.records.Play` with a stop reason. A broken invariant of ours is an ``assert``.
"""

from __future__ import annotations

__all__ = [
    "ConfigError",
    "ContextOverflow",
    "EngineError",
    "EngineUnavailable",
    "EnvironmentFault",
    "EnvironmentTimeout",
    "LearnerError",
    "PluginError",
    "RunDirError",
    "SandboxError",
    "SandboxUnavailable",
    "SpadeError",
    "StoreError",
    "UserError",
    "WeightUpdateFailed",
]


class SpadeError(Exception):
    """Base of every error of this package."""


class UserError(SpadeError, ValueError):
    """Something that the user wrote or chose is wrong.

    ``what`` happened, ``where`` (which object), and ``todo`` (what to do about it) make up the message.
    """

    def __init__(self, what: str, *, where: str | None = None, todo: str | None = None) -> None:
        self.what = what
        self.where = where
        self.todo = todo
        lines = [what]
        if where:
            lines.append(f"  in: {where}")
        if todo:
            lines.append(f"  do: {todo}")
        super().__init__("\n".join(lines))


class ConfigError(UserError):
    """A run's YAML, an override or an option is wrong."""


class PluginError(UserError):
    """A plugin is missing, broken, or answers with the wrong thing."""


class RunDirError(UserError):
    """A run directory is missing, locked by another process, or not readable."""


class EnvironmentFault(SpadeError):
    """A program misbehaved. ``code`` is a stable reason code, such as ``crash`` or ``bad_reward``."""

    def __init__(self, code: str, detail: str = "") -> None:
        self.code = code
        self.detail = detail
        super().__init__(f"{code}: {detail}" if detail else code)


class EnvironmentTimeout(EnvironmentFault):
    """A program did not answer before its deadline; its worker has been killed."""

    def __init__(self, detail: str = "") -> None:
        super().__init__("timeout", detail)


class SandboxError(SpadeError):
    """The sandbox itself failed, whatever the program did."""


class SandboxUnavailable(SandboxError):
    """This sandbox backend cannot run on this machine; the message says what is missing."""


class EngineError(SpadeError):
    """An inference server failed or refused a request."""


class EngineUnavailable(EngineError):
    """An inference server gave no answer, or is gone."""


class ContextOverflow(EngineError):
    """A conversation does not fit the model's context any more; nothing was sampled."""


class WeightUpdateFailed(EngineError):
    """The weights that a server holds are not the ones that were published."""


class LearnerError(SpadeError):
    """A training step could not be taken."""


class StoreError(SpadeError):
    """The run store refused a commit, or holds something impossible."""
